// Package recovery publishes rows that a slot which was lost did not deliver, from the tables, and makes the slot anew.
//
// # The boundary
//
// As for a snapshot, a slot that is made with an exported snapshot divides all rows: those that had committed before its consistent point are in the
// snapshot, all others come by the slot. It is made first, under a name of its own, NAME_recover, and keeps the WAL from then on. The lost slot
// stays until everything is published: nobody can stream past the gap meanwhile, and its catalog_xmin still tells which rows may be in it. Only then is it
// dropped, and the new one copied to its name.
//
// # What is published
//
// Rows of the tables are routed as the relay would, and looked for in their topics: topic, key, value and headers. A row that stands there, or in the
// dead-letter topic, is left out; all others are published in the tables' order, once.
//
//  1. A row that was not delivered is a candidate: no transaction that the slot still had to deliver is older than its catalog_xmin.
//  2. A row that comes by the new slot is none.
//  3. What an earlier attempt has published is found in the topics, so an attempt that was interrupted can be repeated.
//
// A row of a key that is parked in the dead-letter topic belongs behind the open letters of that key: nothing is published while there are such rows.
//
// What cannot be held: rows that were deleted from the tables, and logical messages, which have no table.
package recovery
