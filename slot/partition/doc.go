// Package partition proves to which outbox table a row belongs that comes under the name of a
// partition, or reports that it is not known: a likeness is no proof.
//
//   - assigner.go    Assigner: the outbox table of a row, and what was learned before
//   - proof.go       the rows of the catalog that decide, and since when they are as they are
//   - judge.go       what they prove of each outbox table
//   - look.go        which relations are partitions now, for when they no longer are
//   - changes.go     waits until the catalog shows what a transaction has changed
//   - unassigned.go  the error of a row that may belong to several tables
package partition
