// Package bench measures the relay: how fast it drains a backlog, how soon a row arrives at a
// steady rate, what it costs, and what its slot retains while the database writes other tables.
// Every run is audited row by row.
//
// The relay is a child process, so that its CPU and memory are its own; they are read from
// outside, through /metrics and /proc. A figure that cannot be measured, because a part is on
// another machine or the system does not provide it, is nil, never zero.
//
//	bench.go    Run: every workload, one after the other
//	workload.go what a workload does
//	load.go     the writer
//	rows.go     the rows that it writes
//	drain.go    how fast a backlog is published
//	rate.go     latency at a steady rate
//	idle.go     what the relay costs while nothing is published
//	relay.go    the relay under test, a child process
//	process.go  CPU and memory of a process
//	broker.go   a stand-in for Kafka, in a process of its own
//	topics.go   the topics of a run, and the audit of what arrives there
//	result.go   what was measured of one workload
//	report.go   what was measured, and where
//	table.go    the report for people
package bench
