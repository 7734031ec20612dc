// Package badinput makes every mistake that a person can make with configuration, PostgreSQL and
// Kafka, and holds what the built binary says about it to one page: testdata/messages.txt.
//
// Each message has to say what is wrong and where, what it means for the WAL, and what to type
// next; the exit status is that of the contract; a password never shows; and where the cause can
// be removed, the test removes it the way the message says and sees the relay run. After a change
// of a message run
//
//	go test ./test/badinput -update
//
// which also puts the messages into docs/TROUBLESHOOTING.md, and read the difference as the person
// on call at night.
package badinput
