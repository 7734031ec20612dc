// Package relay moves events from the replication stream through the router to a sink. It confirms
// nothing to PostgreSQL before the broker has it.
//
// # Guarantees
//
//  1. An LSN is confirmed only when the sink has acknowledged every message of every transaction
//     up to it.
//  2. Messages go to the sink in WAL order, and one session has one sink, so each partition
//     receives its messages in WAL order. After a failure the next session starts from the slot.
//  3. A clean stop publishes the open transaction to its end, waits for the messages in flight and
//     confirms them: the next start publishes no duplicates. Messages that are in flight after the
//     drain timeout are published again at the next start.
//  4. A pause ends the session like a clean stop. A drain timeout then does not halt the relay.
//  5. A row that cannot be routed or delivered halts the relay, and so does one that the server
//     cannot send: everything before it is acknowledged first (session.go), nothing after it is.
//     A policy may skip the row instead, or publish a dead letter in its place. Nothing after a
//     dead letter is confirmed before it is durable (deadletters.go).
//  6. A batch that the broker refuses ends the session. The next session publishes each of its
//     records alone. A record that is refused alone deadletter.retries times is poison
//     (quarantine.go).
//  7. With relay.exactly_once nothing is confirmed before consumers see it (exactlyonce.go), and
//     transactions up to the stored position are skipped (resume.go).
//
// # The one recovery path
//
// Every failure ends the session. The rules in classify.go decide whether the next session starts
// from the slot's confirmed position after a delay, or Run returns. No session is repaired.
//
// # Goroutines of a session
//
//	stream  runs Stream.Run: owns the replication connection; closes the batch channel
//	pump    runs session.pump: owns the router, adds to the window, publishes to the sink
//	sink    the goroutines of the sink: they call session.delivered and session.committed
//
// session.run starts the first two and waits for them. Close waits for those of the sink.
// Relay.Run starts three more and waits for them: Server.Watch, which observes slot and
// publication on its own connection, keepGauges, and keepHeartbeat.
//
// # Files
//
//   - relay.go runs sessions, one after the other; parts.go has their dependencies; open.go opens
//     and closes one; classify.go classifies errors; backoff.go has the delay between sessions;
//     pause.go pauses the relay;
//   - session.go routes events and adds messages to the window; publish.go publishes them
//     and reuses them once they are delivered; window.go tracks what is in flight;
//     pace.go waits for relay.max_rate;
//   - resume.go, exactlyonce.go and dedup.go are what relay.exactly_once and relay.dedup add;
//   - deadletters.go, quarantine.go and missing.go deal with rows that cannot be delivered;
//   - identity.go compares servers; heartbeat.go publishes heartbeats;
//   - state.go reports the State, recent.go the last events and failures;
//   - config.go is the section [relay].
package relay
