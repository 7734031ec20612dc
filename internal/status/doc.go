// Package status is what a relay reports of itself: the report of /status, the parts of the status
// page, and the client that gets them. Where no relay answers, the report comes from the database.
//
//	report.go Report: relay, slot and verdict in one
//	parts.go  the parts of the page, /api/NAME
//	client.go requests to the relay on this machine, and a report from the database
//	admin.go  requests to the admin listener: pause and resume
//	text.go   a report for people
package status
