// Package slot manages what the relay needs on the server besides the stream: the replication
// slot, the publication and the tables in it. It works over ordinary SQL connections and never
// touches the replication connection.
//
// # Consent
//
// A slot is the only memory of what was delivered. One that has been used and is gone, or lost its
// WAL, is never recreated by the relay itself: rows would be missing silently. A missing slot is
// created only before the first session of a process, only if the configuration allows it, only
// for tables that never held a row, and the log has the position from which rows are published.
//
// The slot:
//
//   - slot.go         Slot, a row of pg_replication_slots, and Status: get, list, drop, advance
//   - config.go       Config, the section [slot]
//   - create.go       makes a slot, also with an exported snapshot or from another one
//   - prepare.go      makes sure that slot and publication are there before a session
//   - lock.go         Lock, the right to publish the tables for a slot; waits for free slots
//   - setup.go        Setup: tables, publication and slot, as the command init makes them
//
// The tables:
//
//   - publication.go  Publication: its properties, and what is wrong with it
//   - others.go       what else is in it
//   - publicationsql.go SQL that makes and repairs a publication; its owner
//   - evidence.go     the rows of the catalog that decide whether inserted rows are in the stream
//   - changed.go      what has changed in them since
//   - relation.go     a table as the stream describes it, its partitions, the right to read it
//
// Transactions and errors:
//
//   - writers.go      open transactions that the creation of a slot waits for; what holds WAL
//     back is in slot/monitor/blockers.go
//   - visible.go      waits until what a slot does not send can be read
//   - diagnose.go     the cause of a failure, in one sentence; the role of a connection
//   - errors.go       Error, LostError, PublicationError
//   - rows.go         the rows that a table still has of a transaction
//   - gap.go          what a lost slot has not delivered
package slot
