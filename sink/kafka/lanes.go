package kafka

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// forgetful is after how long without an acknowledgement we do not count on the leader to know the producer any more. It forgets
	// one that has been silent for producer.id.expiration.ms, a day by default. Silence is the age of the last record's timestamp: where that is a day old
	// it forgets now and then in any case (docs/decisions/0016).
	forgetful = time.Minute
	// roundPartitions bounds a round, because the client compares each record's partition with all of the round.
	roundPartitions = 64
	// perTopic is how long nothing goes to a new topic after the last one that was new, for each topic that there is, and unless as many are new. The
	// client asks for all of them again whenever it hears of a new one; that must not grow with the square of their number.
	perTopic = time.Millisecond
	// What may wait here; the relay's own limits are lower by default. One message more is always taken.
	waitingMessages = 100_000
	waitingBytes    = 64 << 20
)

// lanes holds what was published and is not with the client yet, by partition.
//
// The client never has more than one batch of a partition. That is what makes a failure safe: there is nothing behind it that could be written, and
// nothing follows, since the lane stays closed until every message of the batch is reported. So it does not matter how the client numbers and
// renumbers what it repeats, and batches form here while one is under way. The price is one round trip per batch and partition, as
// with a producer that has one request in flight; other partitions of the broker do not wait for it.
type lanes struct {
	limit int // bytes of a batch of several records

	mu       sync.Mutex
	fresh    []*lane   // like ready, of topics that the client does not know yet
	greet    time.Time // when it may hear of them
	greeted  int       // topics that it has heard of
	topics   map[string]*topicLanes
	ready    []*lane // something waits in them, and the client has nothing of them
	messages int     // in lanes that are ready or fresh
	bytes    int
	waiting  int // messages in all lanes
	held     int // bytes in all lanes
	shut     bool

	out atomic.Int64 // messages with the client
}

// topicLanes are the lanes of one topic, made when they are used first.
type topicLanes struct {
	placement
	greeted bool    // the client has heard of it
	lanes   []*lane // by partition; nil: not used yet
}

// lane is one partition.
type lane struct {
	topic       *topicLanes
	first, last *record // what waits
	messages    int
	bytes       int
	queued      bool         // is in lanes.ready
	out         atomic.Int32 // messages with the client
	acked       time.Time    // when the client was last through with something; zero: never
}

// topic returns the lanes of a topic.
func (ls *lanes) topic(name string) *topicLanes {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	t := ls.topics[name]
	if t == nil {
		t = &topicLanes{}
		ls.topics[name] = t
	}
	return t
}

// lane returns the lane of a partition. The caller holds mu.
func (t *topicLanes) lane(partition int32) *lane {
	for int(partition) >= len(t.lanes) {
		t.lanes = append(t.lanes, nil)
	}
	l := t.lanes[partition]
	if l == nil {
		l = &lane{topic: t}
		t.lanes[partition] = l
	}
	return l
}

// add puts records at the ends of their lanes. False: the lanes are shut, and nothing was taken. The caller holds mu.
func (ls *lanes) add(rs []*record) bool {
	if ls.shut {
		return false
	}
	for _, r := range rs {
		l := r.topic.lane(r.producer.Partition)
		r.lane = l
		if l.first == nil {
			l.first = r
		} else {
			l.last.next = r
		}
		l.last = r
		l.messages++
		l.bytes += r.size
		ls.waiting++
		ls.held += r.size
		if l.queued {
			ls.messages++
			ls.bytes += r.size
		} else {
			ls.queue(l)
		}
	}
	return true
}

// queue makes a lane ready if it is. The caller holds mu.
func (ls *lanes) queue(l *lane) {
	if l.queued || l.first == nil || l.out.Load() > 0 {
		return
	}
	l.queued = true
	ls.messages += l.messages
	ls.bytes += l.bytes
	if l.topic.greeted {
		ls.ready = append(ls.ready, l)
	} else {
		ls.fresh = append(ls.fresh, l)
	}
}

// welcome makes lanes of new topics ready, or returns when it is time for that. The caller holds mu.
func (ls *lanes) welcome(now time.Time) (later time.Time) {
	if len(ls.fresh) == 0 {
		return time.Time{}
	}
	if ls.greet.After(now) && len(ls.fresh) < ls.greeted {
		return ls.greet
	}
	for _, l := range ls.fresh {
		if !l.topic.greeted {
			l.topic.greeted = true
			ls.greeted++
		}
	}
	ls.ready = append(ls.ready, ls.fresh...)
	clear(ls.fresh)
	ls.fresh = ls.fresh[:0]
	ls.greet = now.Add(min(time.Duration(ls.greeted)*perTopic, 3*time.Second))
	return time.Time{}
}

// full tells whether nothing more should be taken. The caller holds mu.
func (ls *lanes) full() bool { return ls.waiting >= waitingMessages || ls.held >= waitingBytes }

// next moves what is ready into r, one batch of each lane, of at most roundPartitions lanes. The caller holds mu.
func (ls *lanes) next(r *round, now time.Time) {
	n := min(len(ls.ready), roundPartitions)
	for _, l := range ls.ready[:n] {
		l.queued = false
		ls.messages -= l.messages
		ls.bytes -= l.bytes
		taken, size := 0, batchHeader
		for l.first != nil && (taken == 0 || size+l.first.size <= ls.limit) {
			next := l.first
			l.first, next.next = next.next, nil
			size += next.size
			taken++
			r.add(next)
			if !l.acked.IsZero() && now.Sub(l.acked) > forgetful {
				break // a batch of one record cannot be divided by the client either
			}
		}
		if l.first == nil {
			l.last = nil
		}
		l.messages -= taken
		l.bytes -= size - batchHeader
		ls.waiting -= taken
		ls.held -= size - batchHeader
		l.out.Store(int32(taken)) //nolint:gosec // a batch has fewer
		ls.out.Add(int64(taken))
	}
	rest := copy(ls.ready, ls.ready[n:])
	clear(ls.ready[rest:])
	ls.ready = ls.ready[:rest]
}

// landed takes one message out of the client. Afterwards freed says that its lane has none there, and idle that none has.
func (ls *lanes) landed(l *lane) (freed, idle bool) {
	freed = l.out.Add(-1) == 0
	return freed, ls.out.Add(-1) == 0
}

// close takes all that waits, in the order of each lane; from then on nothing is taken.
func (ls *lanes) close() []*record {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.shut = true
	var left []*record
	for _, t := range ls.topics {
		for _, l := range t.lanes {
			for l != nil && l.first != nil {
				left = append(left, l.first)
				l.first = l.first.next
			}
		}
	}
	ls.fresh = nil
	ls.ready, ls.messages, ls.bytes, ls.waiting, ls.held = nil, 0, 0, 0, 0
	return left
}
