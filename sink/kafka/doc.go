// Package kafka is the sink that delivers messages to Apache Kafka, through franz-go. Questions are asked, and topics read, through sarama.
//
// One Sink is one idempotent producer of one session. It retries in place, under the same producer id and sequence
// numbers, whatever Kafka calls retriable: a stalled broker, a moved leader, too few replicas. So a short outage costs
// neither a duplicate nor the session. What cannot be healed like that, or lasts longer than delivery_timeout, is
// reported as the failure of the messages concerned; the caller then closes the sink and opens another. The sink never
// sends a message again behind later ones.
//
//	settings.go     Config: what a user can set, defaults, validation
//	client.go       the producing clients of franz-go, each option with its reason
//	config.go       the sarama configuration for everything else
//	syncproducer.go sarama's producer, for single records that are waited for
//	dialer.go       connections: TLS files read anew for each, all closed at once when it must end
//	scram.go        SASL SCRAM
//	open.go         Open: reach a broker, tell apart why not
//	topics.go       is the topic there, how many partitions, create it if configured
//	partitioner.go  Java's murmur2, or the explicit partition
//	lifetime.go     what both sinks have in common: admission, and how they end
//	sink.go         Publish, Close
//	lanes.go        what waits, by partition: the client has one batch of each at most
//	linger.go       when it has to go
//	round.go        handing it over, and what becomes of it
//	record.go       reused records
//	errors.go       the clients' errors in the words of package sink
//	transactional*.go exactly once: client, queue, and the writer that commits
//	position.go     the stored position, and reading it back
//	inspect.go      what the check command wants to know
package kafka
