// Package embedded starts real parts for the demo command and for tests: a PostgreSQL server as a
// child process and an in-process Kafka broker.
//
// The server binaries are fetched once and kept in the user's cache directory, together with one
// initialised data directory for each version, so that a later start takes well under a second.
// Nothing here is meant for data that matters: fsync is off.
//
// PostgreSQL refuses to run as root. When the caller is root, the server runs as the user postgres
// if there is one and as nobody otherwise, and the cache is where that user can read it.
//
//	postgres.go a PostgreSQL server as a child process
//	cluster.go  initdb
//	binaries.go fetching the server
//	cache.go    where it is kept
//	kafka.go    an in-process Kafka broker
package embedded
