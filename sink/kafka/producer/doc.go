// Package producer is what the relay writes to Kafka: the sink that publishes at least once, the
// one that publishes exactly once, the progress of a snapshot, and dead letters.
//
// One Sink is one idempotent producer of one session. It retries in place, under the same
// producer id and sequence numbers, whatever Kafka calls retriable: a stalled broker, a moved
// leader, too few replicas. So a short outage costs neither a duplicate nor the session. What
// cannot be healed like that, or lasts longer than delivery_timeout, is reported as the failure
// of the messages concerned; the caller then closes the sink and opens another. The sink never
// sends a message again behind later ones.
//
//	client.go              the options of each kind of producer, and its identity
//	topics.go              which topics are there, and with how many partitions
//	lifetime.go            what both sinks have in common: admission, and how they end
//	sink.go                the at-least-once sink: Open, Publish, Close
//	queues.go              what waits, by partition: the client has one batch of each at most
//	flush.go               what goes to the client at once, and what becomes of it
//	linger.go              when it has to go
//	record.go              reused records
//	size.go                what a broker takes
//	partitioner.go         Java's murmur2, or the explicit partition
//	tail.go                dedup: what earlier sessions have published, in bounded memory
//	tailread.go            how it is read
//	tailevents.go          a set of positions in little memory
//	transactional.go       the exactly-once sink: Begin, Publish, Close
//	transactionalqueue.go  what waits for the writer
//	transactionalwriter.go the writer, which commits
//	position.go            the stored position, and reading it back
//	progress.go            the progress of a snapshot
//	deadletters.go         dead letters: opening the topic, writing to it
//	deadlettersread.go     and reading it
package producer
