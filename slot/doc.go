// Package slot manages what the relay needs on the server besides the stream: the replication
// slot, the publication and the tables in it. It works over ordinary SQL connections and never
// touches the replication connection.
//
// # Consent
//
// A slot is the only memory of what was delivered. One that has been used and is gone, or lost its
// WAL, is never recreated by the relay itself: rows would be missing silently. A missing slot is
// created only before the first session of a process, only if the configuration allows it, only
// for tables that never held a row, and the log says from where on rows are published.
//
// The slot:
//
//   - slot.go         Slot, a row of pg_replication_slots: get, list, drop, advance
//   - config.go       Config, the section [slot]
//   - status.go       Status, a slot with its distances, as JSON
//   - create.go       makes a slot, also with an exported snapshot or from another one
//   - prepare.go      makes sure that slot and publication are there before a session
//   - verify.go       whether the relay can read from a slot
//   - await.go        waits until a slot is free
//   - lock.go         Lock, the right to publish rows of the tables for a slot
//   - temporary.go    names of temporary slots
//
// The tables:
//
//   - publication.go  Publication: what the server says about it, and what is wrong with it
//   - publicationsql.go SQL that makes and repairs a publication
//   - evidence.go     the rows of the catalog that decide whether inserted rows are in the stream
//   - changed.go      what has changed in them since
//   - owner.go        publications that belong to another role
//   - relation.go     a table as the stream describes it
//   - partitions.go   the partitions of tables
//   - mayread.go      whether rows of a table may be read
//
// Transactions and errors:
//
//   - blocker.go      transactions that others wait for
//   - visible.go      waits until what a slot does not send can be read
//   - diagnose.go     the cause of a failure, in one sentence
//   - errors.go       Error, LostError, PublicationError
//   - gap.go          what a lost slot has not delivered
//   - role.go         the role of a connection
//   - connection.go   what to change when a connection fails
package slot
