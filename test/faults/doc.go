// Package faults holds no code but tests: the built binary as a child process between a real PostgreSQL and a real Kafka broker,
// while one of them is killed, stopped, paused, cut off or changed under its feet. A writer commits events that are
// numbered per key, a reader reads every partition to its end, and package audit says what is lost, repeated or out of order.
//
// Each test is named after a promise. How often a fault strikes is set by flags; the short form runs in CI:
//
//	go test ./test/faults -run TestKill9 -rounds 30
//	go test ./test/faults -run TestBrokerStall -stall 2m
package faults
