package producer

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
)

const (
	// producerExpiry is the time without an acknowledgement after which a queue sends a single record
	// first, which the client cannot divide. The leader may have expired the producer id by then:
	// producer.id.expiration.ms counts from record timestamps, which can be old
	// (docs/decisions/0016).
	producerExpiry = time.Minute
	// flushPartitions limits a flush: the client compares each record's partition with all others.
	flushPartitions = 64
	// newTopicDelay, times the number of topics that the client has, is the minimum time between two
	// additions of topics, three seconds at most: for each addition the client requests the metadata
	// of all topics again. If as many queues wait for new topics as the client has topics, they are
	// added at once.
	newTopicDelay = time.Millisecond
	// maxMessages and maxBytes are the limits of all queues, above those of the relay
	// (relay.stalled_bytes is 512 MiB at most). The last message accepted may exceed
	// them. The relay's own limits are lower by default.
	maxMessages = 1 << 20
	maxBytes    = 1 << 30
)

// queues holds the records that the client does not have yet, by partition. The client never has
// more than one batch of a partition, and gets the next one when each of its messages is reported.
// So when a batch fails no later message of the partition is written, however the client numbers
// repeated batches. The cost is one round trip per batch and partition; partitions do not wait for
// each other.
type queues struct {
	limit int // bytes of a batch of several records

	mu             sync.Mutex        // guards what follows up to closed, and the queues
	ready          []*partitionQueue // not empty, and the client has no record of them
	newTopicQueues []*partitionQueue // the same, but the client has no metadata of their topics
	newTopicsAt    time.Time         // when they may become ready
	prefetched     int               // topics that the client has metadata of
	topics         map[string]*topicQueues
	messages       int // in ready and newTopicQueues
	bytes          int // the same
	allMessages    int // in all queues
	allBytes       int
	closed         bool

	inClient atomic.Int64 // messages
}

// topicQueues are the queues of one topic, each made on first use.
type topicQueues struct {
	placement
	prefetched bool              // the client has its metadata, or requests them
	queues     []*partitionQueue // by partition; nil: not used yet
}

// partitionQueue is the queue of one partition.
type partitionQueue struct {
	topic       *topicQueues
	first, last *record // a linked list
	messages    int
	bytes       int
	queued      bool         // in queues.ready or queues.newTopicQueues
	inClient    atomic.Int32 // messages
	sent        time.Time    // when the client got its batch
	lastAck     time.Time    // when the client last reported a whole batch; zero: never
}

// topic returns the queues of a topic, which it makes on first use.
func (qs *queues) topic(name string) *topicQueues {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	t := qs.topics[name]
	if t == nil {
		t = &topicQueues{}
		qs.topics[name] = t
	}
	return t
}

// queue returns the queue of a partition. The caller holds mu.
func (t *topicQueues) queue(partition int32) *partitionQueue {
	for int(partition) >= len(t.queues) {
		t.queues = append(t.queues, nil)
	}
	if t.queues[partition] == nil {
		t.queues[partition] = &partitionQueue{topic: t}
	}
	return t.queues[partition]
}

// add appends records to their queues, or returns false if the queues are closed. The caller
// holds mu.
func (qs *queues) add(rs []*record) bool {
	if qs.closed {
		return false
	}
	for _, r := range rs {
		q := r.topic.queue(r.kgo.Partition)
		r.queue = q
		if q.first == nil {
			q.first = r
		} else {
			q.last.next = r
		}
		q.last = r
		q.messages++
		q.bytes += r.size
		qs.allMessages++
		qs.allBytes += r.size
		if q.queued {
			qs.messages++
			qs.bytes += r.size
		} else {
			qs.makeReady(q)
		}
	}
	return true
}

// makeReady adds a queue to ready or newTopicQueues, if it has records and the client has none of
// it. The caller holds mu.
func (qs *queues) makeReady(q *partitionQueue) {
	if q.queued || q.first == nil || q.inClient.Load() > 0 {
		return
	}
	q.queued = true
	qs.messages += q.messages
	qs.bytes += q.bytes
	if q.topic.prefetched {
		qs.ready = append(qs.ready, q)
	} else {
		qs.newTopicQueues = append(qs.newTopicQueues, q)
	}
}

// prefetchTopics makes the queues of new topics ready, or returns when they may become ready. The
// caller holds mu.
func (qs *queues) prefetchTopics(now time.Time) (later time.Time) {
	if len(qs.newTopicQueues) == 0 {
		return time.Time{}
	}
	if qs.newTopicsAt.After(now) && len(qs.newTopicQueues) < qs.prefetched {
		return qs.newTopicsAt
	}
	for _, q := range qs.newTopicQueues {
		if !q.topic.prefetched {
			q.topic.prefetched = true
			qs.prefetched++
		}
	}
	qs.ready = append(qs.ready, qs.newTopicQueues...)
	clear(qs.newTopicQueues)
	qs.newTopicQueues = qs.newTopicQueues[:0]
	qs.newTopicsAt = now.Add(min(time.Duration(qs.prefetched)*newTopicDelay, 3*time.Second))
	return time.Time{}
}

// full reports whether a limit is reached. The caller holds mu.
func (qs *queues) full() bool { return qs.allMessages >= maxMessages || qs.allBytes >= maxBytes }

// next moves one batch of each ready queue, of at most flushPartitions queues, into f. The caller
// holds mu.
func (qs *queues) next(f *flush, now time.Time) {
	n := min(len(qs.ready), flushPartitions)
	for _, q := range qs.ready[:n] {
		q.queued = false
		qs.messages -= q.messages
		qs.bytes -= q.bytes
		taken, size := 0, kafka.BatchHeader
		for q.first != nil && (taken == 0 || size+q.first.size <= qs.limit) {
			next := q.first
			q.first, next.next = next.next, nil
			size += next.size
			taken++
			f.add(next)
			if !q.lastAck.IsZero() && now.Sub(q.lastAck) > producerExpiry {
				break // the client cannot divide a batch of one record
			}
		}
		if q.first == nil {
			q.last = nil
		}
		q.messages -= taken
		q.bytes -= size - kafka.BatchHeader
		qs.allMessages -= taken
		qs.allBytes -= size - kafka.BatchHeader
		q.sent = now
		q.inClient.Store(int32(taken)) //nolint:gosec // a batch has fewer
		qs.inClient.Add(int64(taken))
	}
	rest := copy(qs.ready, qs.ready[n:])
	clear(qs.ready[rest:])
	qs.ready = qs.ready[:rest]
}

// acked counts one message that the client has reported. freed: the client has none of q any more.
// idle: it has none at all.
func (qs *queues) acked(q *partitionQueue) (freed, idle bool) {
	freed = q.inClient.Add(-1) == 0
	return freed, qs.inClient.Add(-1) == 0
}

// stalled returns the partitions whose batch the client has had for sink.StalledAfter. Leaderless
// is not set.
func (qs *queues) stalled(now time.Time) (s sink.Stalled) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for name, t := range qs.topics {
		for number, q := range t.queues {
			if q == nil || q.inClient.Load() == 0 || now.Sub(q.sent) < sink.StalledAfter {
				continue
			}
			s.Partitions++
			s.Messages += q.messages + int(q.inClient.Load())
			if s.Since.IsZero() || q.sent.Before(s.Since) {
				s.Topic, s.Partition, s.Since = name, int32(number), q.sent //nolint:gosec // few
			}
		}
	}
	return s
}

// close closes the queues and returns their records, in the order of each queue.
func (qs *queues) close() []*record {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	qs.closed = true
	var left []*record
	for _, t := range qs.topics {
		for _, q := range t.queues {
			for q != nil && q.first != nil {
				left = append(left, q.first)
				q.first = q.first.next
			}
		}
	}
	qs.newTopicQueues = nil
	qs.ready, qs.messages, qs.bytes, qs.allMessages, qs.allBytes = nil, 0, 0, 0, 0
	return left
}
