package producer

import (
	"math/rand/v2"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"
)

// stickyBytes is how much without a key goes to one partition before another is chosen: Java's
// batch.size.
const stickyBytes = 16 << 10

// placement chooses the partitions of one topic as Java's producer does: the explicit one, else
// by murmur2 of the key, else a random one for each stickyBytes. Only Publish uses it.
type placement struct {
	partitions atomic.Int32 // their number in the client's metadata
	hasLeader  func(partition int32) bool
	sticky     int32
	left       int // bytes until another sticky partition is chosen
}

// byKey hashes keys. It has no state.
var byKey = kgo.StickyKeyPartitioner(nil).ForTopic("")

// KeyHash returns the hash of a key. The key's partition is the hash modulo the number of
// partitions.
func KeyHash(key []byte) int64 {
	return int64(byKey.Partition(&kgo.Record{Key: key}, 1<<31))
}

// partition returns the partition of a record of size bytes. A negative explicit is none, and so
// is a nil key; an empty key is one.
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
		for range n { // the next with a leader, if there is one
			if p.hasLeader(p.sticky) {
				break
			}
			p.sticky = (p.sticky + 1) % n
		}
	}
	p.left -= size
	return p.sticky
}

// presetPartitioner is the partitioner of a client whose records have their partition already. It
// stores the number of partitions.
type presetPartitioner struct{ queues *queues }

func (p presetPartitioner) ForTopic(topic string) kgo.TopicPartitioner {
	return presetTopicPartitioner{p.queues.topic(topic)}
}

type presetTopicPartitioner struct{ topic *topicQueues }

// RequiresConsistency makes the client count also the partitions without a leader.
func (presetTopicPartitioner) RequiresConsistency(*kgo.Record) bool { return true }

func (p presetTopicPartitioner) Partition(r *kgo.Record, partitions int) int {
	p.topic.partitions.Store(int32(partitions)) //nolint:gosec // Kafka counts them in 32 bits
	return int(r.Partition)
}

// javaPartitioner chooses partitions as placement does, within the client.
type javaPartitioner struct{ byKey kgo.Partitioner }

func (p javaPartitioner) ForTopic(topic string) kgo.TopicPartitioner {
	return &javaTopicPartitioner{p.byKey.ForTopic(topic)}
}

type javaTopicPartitioner struct{ kgo.TopicPartitioner }

// RequiresConsistency reports whether the record must go to its partition even while that has no
// leader.
func (p *javaTopicPartitioner) RequiresConsistency(r *kgo.Record) bool {
	return r.Partition >= 0 || p.TopicPartitioner.RequiresConsistency(r)
}

// Partition may return a partition that does not exist; the client then refuses the record.
func (p *javaTopicPartitioner) Partition(r *kgo.Record, partitions int) int {
	if r.Partition >= 0 {
		return int(r.Partition)
	}
	return p.TopicPartitioner.Partition(r, partitions)
}

// OnNewBatch lets records without a key change to another partition.
func (p *javaTopicPartitioner) OnNewBatch() {
	if sticky, ok := p.TopicPartitioner.(kgo.TopicPartitionerOnNewBatch); ok {
		sticky.OnNewBatch()
	}
}
