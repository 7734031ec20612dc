package kafka

import (
	"time"

	"github.com/IBM/sarama"
)

const (
	// metadataRetries times up to metadataBackoff is how long a cluster may be without a broker that answers, or a
	// partition without a leader, before a message fails: about half a minute.
	metadataRetries = 30
	metadataBackoff = time.Second
)

// produce is the configuration of sarama's producer, for what is written one by one and waited for: the progress of a snapshot, and dead letters
// without transactions. What the relay publishes goes through franz-go (client.go).
func (c *Config) produce(d *dialer) (*sarama.Config, error) {
	s, err := c.base(d)
	if err != nil {
		return nil, err
	}

	// Without idempotence sarama reorders on retries, up to its newest releases. These four belong together.
	s.Producer.Idempotent = true
	s.Producer.RequiredAcks = sarama.WaitForAll // a position is confirmed on the strength of this
	s.Net.MaxOpenRequests = 1                   // what idempotence in sarama asks for; batches grow while a request is out
	s.Producer.Retry.Max = retries

	s.Producer.Retry.Backoff = c.RetryBackoff
	s.Producer.Retry.BackoffFunc = exponential(d.ctx, c.RetryBackoff, maxBackoff)
	s.Producer.Timeout = c.ProduceTimeout

	// A batch whose leader cannot be looked up is failed by sarama whatever Retry.Max says, so this is the patience that
	// counts when brokers are gone. A stalled broker takes read_timeout per attempt: there the time limit applies.
	s.Metadata.Retry.Max = metadataRetries
	s.Metadata.Retry.BackoffFunc = exponential(d.ctx, c.RetryBackoff, metadataBackoff)
	s.Metadata.Timeout = c.DeliveryTimeout
	s.Producer.Transaction.Retry.Max = lookupRetries // of InitProducerID, at open

	s.Producer.Return.Successes = true
	s.Producer.Return.Errors = true

	s.Producer.MaxMessageBytes = c.MaxMessageBytes // bounds the batch of a partition as well
	s.Producer.Compression = compressions[c.Compression]
	s.Producer.Partitioner = newPartitioner
	return s, nil
}

// partitioner places messages of one topic as Java's producer does: an explicit partition wins, then murmur2 of the key
// bytes, and without a key a random partition that is kept for a batch's worth. Sarama calls it from one goroutine.
type partitioner struct {
	murmur2 sarama.Partitioner
	random  sarama.Partitioner
	sticky  int32
	left    int // bytes until another sticky partition is chosen
}

func newPartitioner(topic string) sarama.Partitioner {
	return &partitioner{murmur2: sarama.NewMurmur2Partitioner(topic), random: sarama.NewRandomPartitioner(topic)}
}

// Partition is called once per message, never for a retry.
func (p *partitioner) Partition(m *sarama.ProducerMessage, partitions int32) (int32, error) {
	if m.Partition >= 0 {
		return m.Partition, nil // sarama refuses it if it is out of range
	}
	if m.Key != nil {
		return p.murmur2.Partition(m, partitions)
	}
	if p.left <= 0 || p.sticky >= partitions {
		next, err := p.random.Partition(m, partitions)
		if err != nil {
			return 0, err
		}
		p.sticky, p.left = next, stickyBytes
	}
	p.left -= m.ByteSize(2)
	return p.sticky, nil
}

// RequiresConsistency is not asked, because MessageRequiresConsistency is there.
func (p *partitioner) RequiresConsistency() bool { return true }

// MessageRequiresConsistency tells whether the message must go to its partition even when that has no leader just now.
func (p *partitioner) MessageRequiresConsistency(m *sarama.ProducerMessage) bool {
	return m.Partition >= 0 || m.Key != nil
}
