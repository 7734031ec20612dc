// Package auditor runs audits: it reads outbox tables, a slot or a write log on one side and
// topics on the other, for package audit to judge. It writes nothing but, for a comparison with a
// prefix, topics of its own. Errors are ready to be printed.
//
//	auditor.go       Run: one audit of tables or a write log against topics
//	tables.go        the rows of outbox tables, in one snapshot
//	slot.go          the order of commits, read from a slot that is left as it is
//	writelog.go      the lines of a write log
//	topics.go        the records of topics, up to their ends; dead letters of the tables
//	record.go        the id of its row in a record, and the place of its commit
//	result.go        the report, as text and JSON
//	compare.go       Compare: a relay whose messages are compared with those of another
//	comparesink.go   the sink that hands messages to the comparison
//	compareresult.go the report of a comparison
package auditor
