// Package replication turns the WAL of one slot into events and reports to PostgreSQL how far they
// are safe.
//
// # Positions
//
// The received LSN is the newest one read from the connection. The acked LSN is the caller's
// watermark: everything before it is durable in the broker. The confirmed flush LSN is the acked
// LSN as last sent; the server may remove WAL before it and never sends what is before it again.
// Rows have no position of their own: the rows of one COPY share one WAL location. An event
// position is the commit LSN of its transaction and the index in it.
//
// # What an acknowledgement means
//
// PostgreSQL believes every flush position, even one in the future, and does not send what is
// before it again. So a status never carries more than the acked LSN, and never more than this
// connection has seen or the slot had confirmed when it was opened (status.go). A flush position
// of zero never leaves: pglogrepl would replace it by the write position and so confirm what is
// not delivered.
//
// # Connection ownership
//
// The goroutine in Stream.Run owns the connection: it alone reads and writes. While the receiver
// of the events has no room, Run waits for room and for the next status.
//
// # Files
//
//   - stream.go runs a stream: reads when a read is due (pace.go) or worth it (lowwater_linux.go,
//     lowwater_other.go), decodes, sends on; open.go connects and starts it, finish.go ends it;
//   - wire.go splits the bytes into protocol messages;
//   - chunk.go has the read buffers and who retains them (chunk_race.go, chunk_norace.go);
//   - decode.go makes events (event.go) in a batch (batch.go), with the values of their rows;
//   - status.go sends statuses;
//   - history.go compares servers and branches of their history; errors.go has the errors;
//   - peek.go reads what a slot would send, and finds one transaction in it; handover.go finds
//     where another reader has stopped;
//   - config.go is the section [replication], assignment.go its partitions.
package replication
