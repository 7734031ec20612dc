// Package check finds out, as the relay does, whether everything that a configuration leads to is
// in order: each finding is what was observed, what is required and how to fix it. It changes
// nothing.
//
//	check.go        All and Beside: one run, and the configuration
//	finding.go      Finding, its severities and classes
//	constructors.go findings of each severity, and the exit code
//	conditions.go   the conditions of package health as findings
//	process.go      this process: memory, descriptors, secrets, the alerts command
//	listen.go       the addresses, and the relay that has them
//	columns.go      the columns of a table, and its snapshot
//	rows.go         the newest rows of a table, routed
//	kafka.go        the cluster: brokers, TLS, producer id, ACLs
//	topic.go        a topic of rows: existence, permission, replicas
//	settings.go     the settings of a topic of rows
//	owntopics.go    the topics of the relay itself
//	transactions.go what relay.exactly_once needs of the brokers
//	print.go        findings for people
//	groups.go       the groups of print, and of docs/CHECK.md
//
// The server:
//
//	server.go       Server: everything about the server, from a Preflight
//	connect.go      role and connections
//	version.go      version, TLS, pooler
//	limits.go       settings of the server
//	objects.go      publication and tables
//	table.go        keys, growth and vacuum of a table
//	slots.go        the slot
//	failover.go     standbys
package check
