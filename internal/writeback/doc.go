// Package writeback sets columns of outbox rows after they were delivered, as a poller does:
// published_at, a status, a count of attempts, the last error.
//
// It takes no part in the relay. It sweeps: a prune.Prover proves which rows of a table the slot
// has delivered, and those that are still pending are updated, in batches. So nothing is marked
// before the broker has acknowledged it, and a crash at any time leaves rows for the next sweep.
//
//	config.go    the section [write_back]
//	describe.go  the tables and partitions as the catalog has them
//	problems.go  what must not or cannot be written to, each with its fix
//	statements.go the statements that write
//	letters.go   dead letters, and the rows that they are of
//	sweep.go     one sweep
//	writeback.go Writer: sweeps until it is stopped, and its state
package writeback
