// Package faults holds no code but tests: the built binary as a child process between a real
// PostgreSQL and a real Kafka broker, while one of them is killed, stopped, paused, cut off or
// changed under its feet. A writer commits events that are numbered per key, a reader reads every
// partition to its end, and package audit says what is lost, repeated or out of order.
//
// Each test is named after a row of the matrix in rows_test.go and after a promise. The short form
// runs in CI; the full form writes docs/FAULTS.md and the table in README.md. A seed that was
// printed repeats the random choices, but not how fast the machine was:
//
//	go test ./test/faults
//	go test ./test/faults -run TestFault01 -rounds 30 -seed 4711
//	go test ./test/faults -run TestFault01 -long -timeout 0
//	go test ./test/faults -container 64    (each relay in a container of 64 MiB)
//
// Faults of all kinds in a random order, for hours, are test/soak.
package faults
