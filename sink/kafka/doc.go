// Package kafka is the sink that delivers messages to Apache Kafka through sarama.
//
// One Sink is one idempotent producer of one session. It retries in place, under the same producer id and sequence
// numbers, whatever Kafka calls retriable: a stalled broker, a moved leader, too few replicas. So a short outage costs
// neither a duplicate nor the session. What cannot be healed like that, or lasts longer than delivery_timeout, is
// reported as the failure of the messages concerned; the caller then closes the sink and opens another. The sink never
// sends a message again behind later ones.
//
//	settings.go     Config: what a user can set, defaults, validation
//	config.go       the sarama configuration, each line with its reason
//	dialer.go       connections: TLS files read anew for each, all closed at once when it must end
//	scram.go        SASL SCRAM
//	open.go         Open: reach a broker, tell apart why not
//	topics.go       is the topic there, how many partitions, create it if configured
//	partitioner.go  Java's murmur2, or the explicit partition
//	record.go       reused producer messages, and which of them are in flight
//	sink.go         Publish, the result loop, Close
//	errors.go       sarama's errors in the words of package sink
//	transactional*.go exactly once, through franz-go: client, queue, and the writer that commits
//	position.go     the stored position, and reading it back
//	inspect.go      what the check command wants to know
package kafka
