// Package deadletter keeps rows that can never be delivered as they are, in a topic of their own, until somebody publishes them after all
// or lets them go.
//
// # The records
//
// The topic is a log; nothing else remembers anything. It holds three forms of records, told apart by the header postrider.dead_letter.form:
//
//	message, row, claim  a letter: the message as it was routed; or the columns of a row that could not be routed; or, for what is
//	                     too large, where to find the row. Written by the relay, in the place of the row's own message.
//	resolution           names letters that were redriven or discarded, by whom and when. Written by whoever did that.
//	unparked             says that the relay publishes the rows of a key to their topic again. Written by the relay.
//
// A letter has the key of its message, so those of one key are in one partition, in order. Its ID follows from the source and the position of its row: a row that is
// read again after a crash makes the same letter, and a reader takes the first of those with one ID.
//
// # Parked keys
//
// A key of a topic is parked as long as one of its parking letters is open: not named by a resolution. A letter parks if
// the policy was dead_letter_key, or if the key was parked already. This holds whatever the order in which records of several
// partitions are read, so that every reader of the topic comes to the same result. A session reads the topic to its end when it begins, and follows it.
// Within a session a letter counts as open from the moment in which it is made, not only once it is in the topic.
//
// # The race between a row and a redrive
//
// While letters of a key are redriven, new rows of it come. A row is published to its own topic only if the key is not parked for
// the relay, so:
//
//  1. Whoever redrives publishes open letters in order, and the resolution that names them in the same Kafka transaction: after a
//     crash both are there or neither is. So no letter comes twice, and none is named that was not published.
//  2. The relay reads a resolution after that transaction. What it publishes because of it is behind what was redriven.
//  3. A letter that the relay makes before it has read the resolution is not named by it. So the key stays parked, and every later
//     row follows, until that letter is redriven, too. No row can overtake a letter.
//  4. When the relay has read the resolution of the last open letter of a key, it says so: unparked. Whoever redrives waits for that, looks for
//     new letters meanwhile, and redrives them, too.
//
// Under a steady flow of rows of one key there could always be a new letter. So a resolution asks the relay to hold: a
// row of the key then waits for the next resolution, for a second at most, and with it everything behind.
//
// # Rows that are read again
//
// After a crash a session begins at the confirmed position, and reads rows again.
//
//   - A row whose letter is in the topic is ErrKept: it is neither written nor published, even if it could be by now, and even
//     if it was redriven.
//   - A row in front of the first open letter of its parked key was published before the key was parked: it does not follow.
//
// A position of one source says nothing about those of another one (a slot made anew, a failover): then a row of a parked key follows.
package deadletter
