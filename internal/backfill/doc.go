// Package backfill publishes rows of the tables that do not come by the slot, each once: those
// from before it (Snapshot), and those that a slot which was lost did not deliver (Recovery).
//
// # The boundary
//
// A slot that is made with an exported snapshot divides all rows: those that had committed before
// its consistent point are in the snapshot, all others come by the slot. So the slot is made
// first, the tables are read in that snapshot, and streaming begins when the last row is durable
// in the broker. The slot keeps the WAL meanwhile. The exported snapshot ends with the connection.
// An attempt that resumes another reads the tables as they are now, and leaves out the rows that
// come by the slot, which it learns from the slot's stream without confirming anything, and those
// that are in the topics already.
//
//   - source.go       the tables as they were before a boundary, in one transaction: that of a
//     slot's snapshot, or one that begins now
//   - table.go        the SELECT of one table, or of some of its rows
//   - order.go        the columns by which its rows are sorted, and a position among them
//   - rows.go         the cursor over a table
//   - inserted.go     the rows that come by the slot
//   - fingerprint.go  which messages are in the topics
//   - publish.go      chunks of messages, and what is recorded of them
//
// # Snapshot
//
//  1. The record of a chunk is saved when every message of it is acknowledged, and no other is
//     sent before that.
//  2. The end offsets of a topic are saved before the first message is published to it. So what
//     was published after the last record is found at or behind the offsets in it.
//  3. Rows after the position in the record are read again; one whose message is in a topic is
//     left out.
//  4. The tables are read again when no transaction is left that may have committed before the
//     consistent point and is not visible yet, as while a synchronous standby is away: the slot
//     does not send it. The record has those that cannot have.
//  5. The confirmed position of the slot is the consistent point until the phase is complete.
//
// Not covered: a row that was deleted from the table after the consistent point and before it was
// read, if an interruption came between; without one the exported snapshot still has it.
//
//   - config.go       the section [snapshot]
//   - decide.go       whether and when a copy is due, by slot and record; makes the slot
//   - copy.go         one attempt to publish the rows, and its progress for the status
//   - record.go       how far it has come, in a compacted topic
//
// # Recovery
//
// The new slot has a name of its own, NAME_recover, until everything is published: no relay can
// stream past the gap meanwhile, and the catalog_xmin of the lost slot still shows which rows may
// be in it. Then the lost slot is dropped, and the new one copied to its name.
//
// Rows of the tables are routed as the relay does, and looked for in their topics: topic, key,
// value and headers. A row that is there, or in the dead-letter topic, is left out; all others are
// published in the tables' order, once.
//
//  1. A row that was not delivered is a candidate: no transaction that the slot still had to
//     deliver is older than its catalog_xmin.
//  2. A row that comes by the new slot is none.
//  3. What an earlier attempt has published is found in the topics, so an attempt that was
//     interrupted can be repeated.
//
// A row of a key that is parked in the dead-letter topic belongs behind the open dead letters of
// that key: nothing is published while there are such rows. Not covered: rows that were deleted
// from the tables, and logical messages, which have no table.
//
//   - recovery.go     one attempt: plans or publishes
//   - replace.go      the new slot, and how it takes the place of the lost one
//   - compare.go      which rows are in the topics
//   - report.go       what was found and done
//
// # Two processes
//
// A lock that takes the relay's rights, slot.Lock, keeps a second process from publishing.
package backfill
