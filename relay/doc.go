// Package relay joins the stream, the router and a sink, and owns the promise: nothing is
// confirmed to PostgreSQL before the broker has it.
//
// # Guarantees
//
//  1. An LSN is confirmed only when every message of every transaction up to it has been
//     acknowledged by the sink.
//  2. Messages go to the sink in WAL order, and one session has one sink: a later message is never
//     delivered to a partition earlier. After a failure the next session starts again from the
//     slot.
//  3. A clean stop publishes the open transaction to its end, begins no other, waits for what is
//     in flight and confirms it: no duplicates. If the drain timeout strikes first, what was in
//     flight is published again at the next start.
//  4. A pause ends the session like a clean stop. If the drain timeout strikes, the relay is
//     paused nevertheless.
//  5. A row that can't be routed or delivered halts the relay: everything before it is confirmed,
//     nothing after it is. Or, by policy, a dead letter takes its place, in the same transaction
//     of the window, so that nothing behind it is confirmed before the dead letter is durable; or
//     it is skipped (deadletters.go).
//  6. What a broker refuses after it was sent ends the session. The next one sends what was
//     refused one by one, and only a record that is refused by itself, deadletter.retries times,
//     is poison (quarantine.go).
//  7. With relay.exactly_once nothing is confirmed before readers see it (exactlyonce.go), and
//     what the stored position covers is skipped (resume.go).
//
// # The one recovery path
//
// Whatever fails ends the session. The error is looked up in one table, and either a new session
// starts from the slot's confirmed position after a pause or Run returns. Nothing is repaired in
// place.
//
// # Goroutines of a session
//
//	stream  runs Stream.Run: owns the replication connection; closes the batch channel
//	pump    runs session.pump: owns the router and the intake of the window; publishes to the sink
//	sink    the sink's own; they call session.delivered
//
// session.pumpAll starts the first two and waits for them; the sink waits for its own in Close.
// Two more belong to Relay.Run and end with it: one runs Server.Watch, which looks after slot and
// publication on a connection of its own, one keeps the gauges. A third publishes heartbeats.
//
// # Files
//
//   - relay.go runs sessions, one after the other; parts.go is what they are made of, open.go
//     opens and closes one; classify.go looks errors up, backoff.go spaces sessions; pause.go
//     pauses;
//   - session.go takes events through router and window, publish.go messages through the sink;
//     window.go has what is in flight; messages.go has messages that are used again;
//   - resume.go, exactlyonce.go and dedup.go are what relay.exactly_once and relay.dedup add;
//   - deadletters.go, quarantine.go and missing.go deal with rows that cannot be delivered;
//   - identity.go recognizes servers; heartbeat.go publishes heartbeats;
//   - status.go reports the State of state.go, recent.go what happened lately;
//   - config.go is the section [relay].
package relay
