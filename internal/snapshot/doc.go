// Package snapshot publishes the rows that were in the tables before the slot, each once, before the first row that comes by the slot.
//
// # The boundary
//
// A slot that is made with an exported snapshot divides all rows: those that had committed before its consistent point are in the snapshot,
// all others come by the slot. So a Copy makes the slot, reads the tables in that snapshot, and only when the last row is durable in the
// broker does streaming begin. The slot keeps the WAL meanwhile.
//
// # After an interruption
//
// The exported snapshot ends with the connection. A Copy that goes on reads the tables as they are now, leaves out the rows that were
// inserted after the consistent point, which it learns from the slot's stream without confirming anything, and
// those that stand in the topics already. How far it had come is a Record in a compacted topic: nothing is kept on a disk.
//
//  1. The record of a chunk is saved when every message of the chunk is acknowledged, and no other is sent before that.
//  2. The end offsets of a topic are saved before the first message is published to it. So what was published after
//     the last record is found at or behind the offsets in it.
//  3. Rows after the position in the record are read again; one whose message is found in a topic is not published.
//  4. The tables are read again when no transaction is left that may have committed before the consistent point and is not visible
//     yet, as while a synchronous standby is away: the slot does not send it. The record says which cannot have.
//  5. The confirmed position of the slot is the consistent point until the record says complete.
//
// What cannot be held: a row that was deleted from the table after the consistent point and before it was read, if an interruption
// came between; without one the exported snapshot still has it.
//
// # Two relays
//
// A lock that takes the relay's rights, slot.Lock, keeps a second relay from copying.
package snapshot
