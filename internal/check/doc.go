// Package check finds out, as the relay would meet it, whether everything that a configuration leads to is in order: each Finding says what was
// observed, what is required and how to fix it. It changes nothing. The findings about the server come from package slot.
//
//	check.go        All, and what becomes of a configuration
//	conditions.go   the conditions of package health as findings
//	process.go      this process: memory, descriptors, addresses, secrets
//	rows.go         the newest rows of a table, routed
//	kafka.go        the cluster: brokers, TLS, producer id, ACLs
//	topic.go        the settings of a topic
//	transactions.go what relay.exactly_once asks of the brokers
//	deadletters.go  the dead-letter topic
//	print.go        findings for people, in groups
package check
