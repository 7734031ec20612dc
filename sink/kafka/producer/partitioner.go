package producer

import (
	"math/rand/v2"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"
)

// stickyBytes is how much goes to one partition before the next is chosen for messages without a
// key: Java's batch.size.
const stickyBytes = 16 << 10

// placement chooses the partitions of one topic as Java's producer does: the explicit one, else
// by murmur2 of the key, else a random one that is kept for a batch's worth. For the publisher
// only.
type placement struct {
	partitions atomic.Int32               // as many as there are, as far as the client has them
	led        func(partition int32) bool // has it a leader?
	sticky     int32
	left       int // bytes until another sticky partition is chosen
}

// byKey hashes keys; it keeps nothing.
var byKey = kgo.StickyKeyPartitioner(nil).ForTopic("")

// KeyHash is the hash of a key's bytes by which it is placed: its partition is the remainder by
// the number of partitions.
func KeyHash(key []byte) int64 {
	return int64(byKey.Partition(&kgo.Record{Key: key}, 1<<31))
}

// partition of a record that takes so many bytes. explicit is negative if there is none. A nil key
// is none; an empty one is a key.
func (p *placement) partition(r *kgo.Record, explicit int32, size int) int32 {
	if explicit >= 0 {
		return explicit
	}
	n := max(p.partitions.Load(), 1) // a topic has one at least
	if r.Key != nil {
		return int32(byKey.Partition(r, int(n))) //nolint:gosec // less than n
	}
	if p.left <= 0 || p.sticky >= n {
		p.sticky, p.left = rand.Int32N(n), stickyBytes
		for range n { // the next that can be written to, if there is one
			if p.led(p.sticky) {
				break
			}
			p.sticky = (p.sticky + 1) % n
		}
	}
	p.left -= size
	return p.sticky
}

// placed is the partitioner of a client whose records have their partition. It passes on the number
// of partitions.
type placed struct{ queues *queues }

func (p placed) ForTopic(topic string) kgo.TopicPartitioner {
	return placedTopic{p.queues.topic(topic)}
}

type placedTopic struct{ topic *topicQueues }

// RequiresConsistency makes the client count all partitions, those without a leader too.
func (placedTopic) RequiresConsistency(*kgo.Record) bool { return true }

func (p placedTopic) Partition(r *kgo.Record, partitions int) int {
	p.topic.partitions.Store(int32(partitions)) //nolint:gosec // Kafka counts them in 32 bits
	return int(r.Partition)
}

// javaPartitioner is the same for a client that chooses the partitions itself.
type javaPartitioner struct{ byKey kgo.Partitioner }

func (p javaPartitioner) ForTopic(topic string) kgo.TopicPartitioner {
	return &javaTopicPartitioner{p.byKey.ForTopic(topic)}
}

type javaTopicPartitioner struct{ kgo.TopicPartitioner }

// RequiresConsistency reports whether the record must go to its partition even when that has no
// leader just now.
func (p *javaTopicPartitioner) RequiresConsistency(r *kgo.Record) bool {
	return r.Partition >= 0 || p.TopicPartitioner.RequiresConsistency(r)
}

// Partition may return one that does not exist; the client then refuses the record.
func (p *javaTopicPartitioner) Partition(r *kgo.Record, partitions int) int {
	if r.Partition >= 0 {
		return int(r.Partition)
	}
	return p.TopicPartitioner.Partition(r, partitions)
}

// OnNewBatch ends the stay at a partition of records without a key.
func (p *javaTopicPartitioner) OnNewBatch() {
	if sticky, ok := p.TopicPartitioner.(kgo.TopicPartitionerOnNewBatch); ok {
		sticky.OnNewBatch()
	}
}
