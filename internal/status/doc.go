// Package status is what a relay says of itself: the report of /status, the parts of the status page, and the client that asks for them. Where no
// relay answers, the database is asked.
//
//	report.go Report: relay, slot and verdict in one
//	parts.go  the parts of the page, /api/NAME
//	client.go asking the relay, or the database
//	admin.go  asking the admin listener: pause and resume
//	text.go   a report for people
package status
