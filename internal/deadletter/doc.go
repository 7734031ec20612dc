// Package deadletter makes dead letters: rows that cannot be delivered as they are, in a topic of
// their own until they are redriven or discarded.
//
// # The records
//
// The topic is the only state. The header postrider.dead_letter.form is the kind of a record:
//
//	message, row, claim  a dead letter: the message as it was routed; the columns of a row that
//	                     could not be routed; or, if both are too large, where to find the row.
//	                     The relay writes it in the place of the row's own message.
//	resolution           the IDs of dead letters that were redriven or discarded, by whom and when.
//	                     The command that did it writes it.
//	unparked             the relay publishes the rows of a key to their topic again.
//
// A dead letter has the key of its message, so those of one key are in one partition, in order.
// Its ID is a hash of the source and the position of its row: a row that is read again after a
// crash makes the same dead letter. A reader takes the first record of an ID.
//
// # Parked keys
//
// A dead letter is open until a resolution names it. It parks its key if the policy is
// dead_letter_key, or if the key is parked already. A key of a topic is parked while one of these
// dead letters is open. A session makes the one that parks a key when all earlier rows are
// acknowledged: a redrive does not overtake them. Each reader of the topic finds the same keys
// parked, in whatever order it reads the partitions. A session reads the topic to its end when it
// begins, and polls it from then on. It counts its own dead letters as open as soon as it makes
// them.
//
// # The race between a row and a redrive
//
// New rows of a key arrive while its dead letters are redriven:
//
//  1. A redrive publishes open dead letters in order, with their resolution, in one Kafka
//     transaction. So none is published twice, and none is resolved without being published.
//  2. The relay reads the resolution only once that transaction is committed. The rows that it
//     publishes after that follow those that were redriven.
//  3. The resolution does not name a dead letter that the relay makes before it has read the
//     resolution. So the key stays parked, and later rows become dead letters too, until that one
//     is redriven. No row overtakes a dead letter.
//  4. When the relay has read the resolution of the last open dead letter of a key, it writes
//     unparked. A redrive waits for that record, and redrives the dead letters made meanwhile.
//
// Under a steady flow of rows of one key there might always be a new dead letter. So a resolution
// requests a hold: the next row of the key, and all rows after it, wait for the next resolution,
// at most for a second.
//
// # Rows that are read again
//
// After a crash a session begins at the confirmed position. A row whose dead letter is in the
// topic is ErrKept: it is not published, not even if it was redriven or could be published now. A
// row before the first open dead letter of its parked key was published before the key was parked:
// it is published again. Positions of two sources (a recreated slot, a failover) do not compare: a
// dead letter of another source counts as before every row.
//
// # Files
//
// A dead letter is written by letter.go, for Tracker.DeadLetter, and redriven by redrive.go.
//
//   - handler.go is what a session needs; tracker.go fulfils it and polls the topic, and state.go
//     has the parked keys;
//   - letter.go writes dead letters, document.go the values of those without a message; record.go
//     has the records of the topic;
//   - index.go has the contents of the topic, redrive.go redrives and discards;
//   - config.go is the section [deadletter].
package deadletter
