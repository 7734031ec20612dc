// Package relay joins the stream, the router and a sink, and owns the promise: nothing is confirmed to PostgreSQL before the
// broker has it.
//
// # Guarantees
//
//  1. An LSN is confirmed only when every message of every transaction up to it has been acknowledged by the sink.
//  2. Messages are handed to the sink in WAL order, and one session has one sink: what was handed over later is never
//     delivered to a partition earlier. After a failure the next session starts again from the slot.
//  3. A clean stop publishes the open transaction to its end, begins no other, waits for what is in flight and confirms it:
//     no duplicates. If the drain timeout strikes first, what was in flight is published again at the next start.
//  4. A pause ends the session like a clean stop. If the drain timeout strikes, the relay is paused all the same.
//  5. A row that can't be routed or delivered halts the relay: everything before it is confirmed, nothing after it is. Or, by
//     policy, a dead letter takes its place, in the same transaction of the window, so that nothing behind it is confirmed before
//     the letter is durable; or it is left out (poison.go).
//  6. What a broker refuses after it was sent ends the session. The next one sends what was refused one by one, and only a record that
//     is refused by itself, deadletter.retries times, is poison.
//  7. With relay.exactly_once nothing is confirmed before readers see it, and what the stored position covers is left out (transit.go).
//
// # The one recovery path
//
// Whatever fails ends the session (session.go). The error is looked up in one table (classify.go), and either a new session
// starts from the slot's confirmed position after a pause (relay.go) or Run returns. There is no repair in place.
//
// # Goroutines of a session
//
//	stream  runs Stream.Run: owns the replication connection; closes the batch channel
//	pump    runs session.pump: owns the router and the intake of the window; hands over to the sink
//	sink    the sink's own; they call session.delivered
//
// session.pumpAll starts the first two and waits for them; the sink waits for its own in Close. Two more belong to Relay.Run
// and end with it: one runs Parts.Watch, which looks after slot and publication on a connection of its own, one
// keeps the gauges.
package relay
