// Package deadletter keeps rows that can never be delivered as they are, in a topic of their own,
// until they are redriven or discarded.
//
// # The records
//
// The topic is a log, and the only memory. The header postrider.dead_letter.form tells its records
// apart:
//
//	message, row, claim  a dead letter: the message as it was routed; or the columns of a row that
//	                     could not be routed; or, for what is too large, where to find the row.
//	                     The relay writes it in the place of the row's own message.
//	resolution           names dead letters that were redriven or discarded, by whom and when. The
//	                     command that did it writes it.
//	unparked             the relay publishes the rows of a key to their topic again.
//
// A dead letter has the key of its message, so those of one key are in one partition, in order.
// Its ID follows from the source and the position of its row: a row that is read again after a
// crash makes the same dead letter, and a reader takes the first of those with one ID.
//
// # Parked keys
//
// A key of a topic is parked while one of its parking dead letters is open: not named by a
// resolution. A dead letter parks if the policy was dead_letter_key, or if the key was parked
// already. The order in which the partitions are read does not matter: every reader of the topic
// comes to the same result. A session reads the topic to its end when it begins, and follows it.
// Within a session a dead letter is open from the moment in which it is made.
//
// # The race between a row and a redrive
//
// While dead letters of a key are redriven, new rows of it come:
//
//  1. A redrive publishes open dead letters in order, with the resolution that names them in the
//     same Kafka transaction. So none comes twice, and none is named that was not published.
//  2. The relay reads a resolution after that transaction. What it publishes because of it is
//     behind what was redriven.
//  3. A dead letter that the relay makes before it has read the resolution is not named by it. So
//     the key stays parked, and every later row follows, until that one is redriven, too. No row
//     can overtake a dead letter.
//  4. When the relay has read the resolution of the last open dead letter of a key, it writes
//     unparked. A redrive waits for that, and redrives what comes meanwhile.
//
// Under a steady flow of rows of one key there could always be a new dead letter. So a resolution
// requests a hold: a row of the key then waits for the next resolution, for a second at most, and
// with it everything behind.
//
// # Rows that are read again
//
// After a crash a session begins at the confirmed position. A row whose dead letter is in the
// topic is ErrKept: it is not published, even if it could be by now, and even if it was redriven.
// A row in front of the first open dead letter of its parked key was published before the key was
// parked: it does not follow. Positions of another source (a recreated slot, a failover) cannot be
// compared: then a row of a parked key follows.
//
// # Files
//
//   - handler.go is what a session needs; tracker.go follows the topic for it, and state.go has
//     the keys that are parked;
//   - letter.go makes dead letters, document.go the values of those without a message; record.go
//     has the records of the topic;
//   - index.go is what the topic holds, redrive.go redrives and discards;
//   - config.go is the section [deadletter].
package deadletter
