// Package producer writes to Kafka for the relay: messages at least once (Sink) or exactly once
// (TransactionalSink), the progress of a snapshot, and dead letters.
//
// One Sink is one idempotent producer of one session. It repeats requests that fail with an error
// that Kafka calls retriable (a stalled broker, a moved leader, too few replicas) with the same
// producer id and sequence numbers. So a short outage causes no duplicates and does not end the
// session. Any other error fails the messages concerned, and so does a delivery_timeout in which
// the brokers have acknowledged none; the caller then closes the sink and opens another. The sink
// never sends a message again behind later ones.
//
//	options.go             the options of each kind of producer, and its identity; those that all
//	                       clients have are in sink/kafka/client.go
//	topics.go              which topics exist, and with how many partitions
//	base.go                the common part of both sinks: checks of messages, stop and close
//	sink.go                the at-least-once sink: Open, Publish, Close
//	queues.go              queues by partition: at most one batch of each is with the client
//	flush.go               hands batches to the client, and handles their acknowledgements
//	throttles.go           how long brokers throttle the relay by quotas
//	linger.go              when the next flush is due
//	record.go              reused records
//	size.go                the size limits of a record
//	partitioner.go         Java's murmur2, or the explicit partition
//	tail.go                dedup: which messages earlier sessions have published
//	tailread.go            reads the ends of partitions for tail.go
//	tailevents.go          a compact set of positions
//	transactional.go       the exactly-once sink: Begin, Publish, Close
//	transactionalqueue.go  the queue of its writer
//	transactionalwriter.go its writer, which commits
//	position.go            the stored position: reads it, and stores one outside of a relay
//	progress.go            the progress of a snapshot
//	deadletters.go         the dead-letter topic outside of a sink: opens it, appends to it
//	deadlettersread.go     reads the dead-letter topic
package producer
