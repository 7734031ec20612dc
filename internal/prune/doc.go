// Package prune removes rows from outbox tables that were delivered and are old enough.
//
// A row does not hold the position of its commit. What is proven is about its xmin, in two
// directions (docs/decisions/0032-pruning-by-proof.md): the horizon bounds it from above by the
// confirmed position of the slot, and the coverage bounds it from below by the time since which
// the slot has existed without interruption.
//
//	config.go   the section [prune]
//	prune.go    Pruner: runs, one after the other, and what they log and export
//	report.go   what a run did
//	table.go    which tables must not be pruned, and which column orders a table's rows
//	rows.go     deletes in chunks
//	letters.go  which rows stay because of open dead letters
//	partitions.go       what a Pruner does with partitioned tables
//	partition.go        removes the partitions of one table, step by step
//	partitionlist.go    the partitions as the catalog has them, and which must stay
//	partitionbound.go   ranges of partitions
//	partitionseal.go    the constraint that keeps rows out of a partition that goes
//	partitiondrop.go    the tables that were partitions
//	partitionahead.go   creates partitions ahead
//	partitionstep.go    range and name of the next partition
//	partitionpartman.go tables of pg_partman
//	coverage.go Coverage: which rows of a relation the slot has certainly delivered, as SQL
//	state.go    the table public.postrider_prune, where coverage survives a restart and a restore
//	slot.go     whether the slot is still the one of an earlier look
//	look.go     one look at the server: snapshot, position, wait, and the new coverage
//	beside.go   a Prover of another user than pruning, with coverage and lock of its own
//	evidence.go whether inserts into a relation were published all the time
//	lock.go     one pruner at a time for a slot, and a mark on the slot
package prune
