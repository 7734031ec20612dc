package producer

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider/sink/kafka"
)

const (
	// forgetful is the time without an acknowledgement after which the leader may have forgotten
	// the producer: after producer.id.expiration.ms, by the timestamps of records
	// (docs/decisions/0016).
	forgetful = time.Minute
	// flushPartitions bounds a flush: the client compares each record's partition with all of it.
	flushPartitions = 64
	// perTopic, times the number of topics, spaces new topics, unless as many are new: the client
	// asks for all topics again whenever it gets a new one.
	perTopic = time.Millisecond
	// What may wait here; the relay's own limits are lower by default. One message more is always
	// taken.
	waitingMessages = 100_000
	waitingBytes    = 64 << 20
)

// queues holds what was published and is not with the client yet, by partition. The client never
// has more than one batch of a partition. That makes a failure safe: nothing behind it could be
// written, and nothing follows, since the queue stays closed until every message of the batch is
// reported. So it does not matter how the client numbers what it repeats. The price is one round
// trip per batch and partition; other partitions of the broker do not wait for it.
type queues struct {
	limit int // bytes of a batch of several records

	mu          sync.Mutex
	newTopics   []*partitionQueue // like ready, of topics that the client has no metadata of yet
	newTopicsAt time.Time         // when it may ask for them
	prefetched  int               // topics that it has metadata of
	topics      map[string]*topicQueues
	ready       []*partitionQueue // something waits in them, and the client has nothing of them
	messages    int               // in queues that are ready or of new topics
	bytes       int
	waiting     int // messages in all queues
	held        int // bytes in all queues
	shut        bool

	out atomic.Int64 // messages with the client
}

// topicQueues are the queues of one topic, made when they are used first.
type topicQueues struct {
	placement
	prefetched bool              // the client has its metadata, or asks for them
	queues     []*partitionQueue // by partition; nil: not used yet
}

// partitionQueue is one partition.
type partitionQueue struct {
	topic       *topicQueues
	first, last *record // what waits
	messages    int
	bytes       int
	queued      bool         // is in queues.ready
	out         atomic.Int32 // messages with the client
	lastAck     time.Time    // when the client was last through with something; zero: never
}

// topic returns the queues of a topic.
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

// add puts records at the ends of their queues. False: they are shut, and nothing was taken. The
// caller holds mu.
func (qs *queues) add(rs []*record) bool {
	if qs.shut {
		return false
	}
	for _, r := range rs {
		q := r.topic.queue(r.producer.Partition)
		r.queue = q
		if q.first == nil {
			q.first = r
		} else {
			q.last.next = r
		}
		q.last = r
		q.messages++
		q.bytes += r.size
		qs.waiting++
		qs.held += r.size
		if q.queued {
			qs.messages++
			qs.bytes += r.size
		} else {
			qs.makeReady(q)
		}
	}
	return true
}

// makeReady puts a queue in line if something waits in it and the client has nothing of it. The
// caller holds mu.
func (qs *queues) makeReady(q *partitionQueue) {
	if q.queued || q.first == nil || q.out.Load() > 0 {
		return
	}
	q.queued = true
	qs.messages += q.messages
	qs.bytes += q.bytes
	if q.topic.prefetched {
		qs.ready = append(qs.ready, q)
	} else {
		qs.newTopics = append(qs.newTopics, q)
	}
}

// prefetchTopics makes the queues of new topics ready, or returns when it is time for that. The
// caller holds mu.
func (qs *queues) prefetchTopics(now time.Time) (later time.Time) {
	if len(qs.newTopics) == 0 {
		return time.Time{}
	}
	if qs.newTopicsAt.After(now) && len(qs.newTopics) < qs.prefetched {
		return qs.newTopicsAt
	}
	for _, q := range qs.newTopics {
		if !q.topic.prefetched {
			q.topic.prefetched = true
			qs.prefetched++
		}
	}
	qs.ready = append(qs.ready, qs.newTopics...)
	clear(qs.newTopics)
	qs.newTopics = qs.newTopics[:0]
	qs.newTopicsAt = now.Add(min(time.Duration(qs.prefetched)*perTopic, 3*time.Second))
	return time.Time{}
}

// full reports whether nothing more should be taken. The caller holds mu.
func (qs *queues) full() bool { return qs.waiting >= waitingMessages || qs.held >= waitingBytes }

// next moves what is ready into f, one batch of each queue, of at most flushPartitions queues. The
// caller holds mu.
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
			if !q.lastAck.IsZero() && now.Sub(q.lastAck) > forgetful {
				break // a batch of one record cannot be divided by the client either
			}
		}
		if q.first == nil {
			q.last = nil
		}
		q.messages -= taken
		q.bytes -= size - kafka.BatchHeader
		qs.waiting -= taken
		qs.held -= size - kafka.BatchHeader
		q.out.Store(int32(taken)) //nolint:gosec // a batch has fewer
		qs.out.Add(int64(taken))
	}
	rest := copy(qs.ready, qs.ready[n:])
	clear(qs.ready[rest:])
	qs.ready = qs.ready[:rest]
}

// acked takes one message out of the client. Afterwards freed says that its queue has none there,
// and idle that none has.
func (qs *queues) acked(q *partitionQueue) (freed, idle bool) {
	freed = q.out.Add(-1) == 0
	return freed, qs.out.Add(-1) == 0
}

// close takes all that waits, in the order of each queue; from then on nothing is taken.
func (qs *queues) close() []*record {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	qs.shut = true
	var left []*record
	for _, t := range qs.topics {
		for _, q := range t.queues {
			for q != nil && q.first != nil {
				left = append(left, q.first)
				q.first = q.first.next
			}
		}
	}
	qs.newTopics = nil
	qs.ready, qs.messages, qs.bytes, qs.waiting, qs.held = nil, 0, 0, 0, 0
	return left
}
