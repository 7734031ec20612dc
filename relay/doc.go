// Package relay joins the stream, the router and a sink, and owns the promise: nothing is
// confirmed to PostgreSQL before the broker has it.
//
// # Guarantees
//
//  1. An LSN is confirmed only when the sink has acknowledged every message of every transaction
//     up to it.
//  2. Messages go to the sink in WAL order, and one session has one sink: a later message is never
//     delivered to a partition earlier. After a failure the next session starts from the slot.
//  3. A clean stop publishes the open transaction to its end, begins no other, waits for what is
//     in flight and confirms it: no duplicates. What is in flight after the drain timeout is
//     published again at the next start.
//  4. A pause ends the session like a clean stop, also when the drain timeout strikes.
//  5. A row that can't be routed or delivered halts the relay: everything before it is confirmed,
//     nothing after it is. Or, by policy, it is skipped, or a dead letter takes its place in the
//     window, so that nothing behind is confirmed before the dead letter is durable
//     (deadletters.go).
//  6. What a broker refuses after it was sent ends the session. The next one sends it by itself,
//     and only a record that is refused so, deadletter.retries times, is poison (quarantine.go).
//  7. With relay.exactly_once nothing is confirmed before readers see it (exactlyonce.go), and
//     what the stored position covers is skipped (resume.go).
//
// # The one recovery path
//
// Whatever fails ends the session. One table decides whether a new session starts from the slot's
// confirmed position after a pause, or Run returns. Nothing is repaired in place.
//
// # Goroutines of a session
//
//	stream  runs Stream.Run: owns the replication connection; closes the batch channel
//	pump    runs session.pump: owns the router and the intake of the window; publishes to the sink
//	sink    the sink's own; they call session.delivered
//
// session.pumpAll starts the first two and waits for them; the sink waits for its own in Close.
// Relay.Run has three more, and waits for them: Server.Watch, which looks after slot and
// publication on its own connection, keepGauges, and keepHeartbeat.
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
//   - state.go reports the State, recent.go what happened lately;
//   - config.go is the section [relay].
package relay
