// Package check finds out, as the relay does, whether everything that a configuration leads to is
// in order: each finding is what was observed, what is required and how to fix it. It changes
// nothing.
//
//	check.go      All and Beside: one run, and the configuration
//	finding.go    Finding, its severities and classes, and the exit code
//	conditions.go the conditions of package health as findings
//	process.go    this process: memory, descriptors, addresses, secrets, the alerts command
//	columns.go    the columns of a table, its snapshot, and its newest rows, routed
//	kafka.go      the cluster: brokers, TLS, producer id, ACLs, transactions
//	registry.go   the schema registry
//	topic.go      a topic of rows: existence, permission, replicas, settings
//	owntopics.go  the topics of the relay itself
//	print.go      findings for people, in the groups of docs/CHECK.md
//
// The server:
//
//	server.go     Server: everything about the server, from a Preflight
//	connect.go    pooler, TLS, role and connections
//	parameters.go version and settings of the server
//	objects.go    publication and tables
//	table.go      keys, growth and vacuum of a table
//	slots.go      the slot
//	writeback.go  the tables that are written back
//	failover.go   standbys
package check
