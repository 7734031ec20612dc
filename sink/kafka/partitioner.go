package kafka

import "github.com/IBM/sarama"

// stickyBytes is how much goes to one partition before the next is chosen for messages without a key: Java's batch.size.
const stickyBytes = 16 << 10

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
