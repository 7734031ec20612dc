// Package registry holds no code but tests: clients of the other side decode what postrider frames
// for a schema registry, Confluent's Python client and the registry client of kafkajs. The
// programs are in clients; what their package managers install is kept in the user's cache
// directory.
//
// A runtime that is missing is a missing part: python, node.
package registry
