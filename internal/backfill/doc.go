// Package backfill publishes rows of the tables that the slot does not send, each once: those from
// before the slot was made (Snapshot), and those that a lost slot has not delivered (Recovery).
//
// # The boundary
//
// A slot that is made with an exported snapshot divides all rows: the snapshot has those committed
// before the slot's consistent point, and the slot sends all others. So the slot is made first,
// the tables are read in that snapshot, and streaming begins when the last row is durable in the
// broker. Meanwhile the slot retains WAL. The exported snapshot ends with its connection. An
// attempt that resumes another reads the tables as they are now. It skips the rows that the slot
// will send, which it finds in the slot's stream without confirming anything, and those that are
// in the topics.
//
//   - source.go       reads the tables as before a boundary, in one transaction: in a slot's
//     exported snapshot, or in one that begins now
//   - table.go        the SELECT of one table, or of some of its rows
//   - order.go        the columns by which its rows are sorted, and a position in that order
//   - rows.go         the cursor over a table
//   - inserted.go     the rows that the slot will send
//   - fingerprint.go  which messages are in the topics
//   - publish.go      publishes chunks of messages, and records their topics
//
// # Snapshot
//
//  1. The record of a chunk is saved when all its messages are acknowledged. No other message is
//     sent before that.
//  2. The end offsets of a topic are saved before the first message is published to it. So all
//     that was published after the last record has those offsets or higher ones.
//  3. Rows after the position in the record are read again. A row whose message is in a topic is
//     skipped.
//  4. A transaction can have committed before the consistent point and not be visible yet, as
//     while a synchronous standby is away: the slot does not send it. So before the tables are
//     read again, every such transaction is waited for. The record shows which those are.
//  5. The confirmed position of the slot is the consistent point until the snapshot is complete.
//
// Not covered: a row that was deleted after the consistent point and before it was read, if an
// interruption came between. Without one the exported snapshot still has it.
//
//   - config.go       the section [snapshot]
//   - decide.go       decides by slot and record whether a copy is due; makes the slot
//   - copy.go         one attempt to publish the rows, and its progress for the status
//   - record.go       the saved progress, in a compacted topic
//
// # Recovery
//
// The new slot has a name of its own, NAME_recover, until everything is published. So no relay can
// stream past the gap meanwhile, and the catalog_xmin of the lost slot still shows which rows may
// be in the gap. Then the lost slot is dropped, and the new one copied to its name.
//
// Rows of the tables are routed as by the relay, and searched for in their topics by topic, key,
// value and headers. A row that is there, or in the dead-letter topic, is skipped. All others are
// published once, in the tables' order.
//
//  1. A row that was not delivered is a candidate: no transaction that the slot still had to
//     deliver is older than its catalog_xmin.
//  2. A row that the new slot will send is no candidate.
//  3. The topics show what an earlier attempt has published, so an interrupted attempt can be
//     repeated.
//
// A row of a parked key must be published after the open dead letters of that key: if there is
// such a row, nothing is published. Not covered: rows that were deleted from the tables, and
// logical messages, which have no table.
//
//   - recovery.go     one attempt: plans or publishes
//   - replace.go      makes the new slot, and gives it the name of the lost one
//   - compare.go      finds which rows are in the topics
//   - report.go       what was found and done
//
// # Two processes
//
// The lock of the slot, slot.Lock, keeps a second process from publishing.
package backfill
