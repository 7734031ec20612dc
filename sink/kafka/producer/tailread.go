package producer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/sink/kafka/topicreader"
)

const (
	// tailGap bounds how much of what others wrote to a partition is read through in search of the
	// next older record of ours.
	tailGap = 64 << 20
	// tailFetch is what one request asks for, and tailReaders how many partitions are read at a
	// time: together what the reading takes of memory.
	tailFetch   = 1 << 20
	tailReaders = 4
	// tailOlder is how many of our records in a row have to be older than the session's first
	// message before the search ends: one without a key may stand behind newer ones.
	tailOlder = 32
	// tailFirst and tailMost bound how many offsets one step back covers. Steps grow while records
	// are small.
	tailFirst = 16
	tailMost  = 8192
	// tailPause spaces the questions after replicas that lag.
	tailPause = 25 * time.Millisecond
)

// tailReader reads the ends of the partitions of a topic backwards, as far as a session needs them.
type tailReader struct {
	reader   *topicreader.Reader
	log      zerolog.Logger
	patience time.Duration // with replicas that lag
	topic    string
	n        int32 // partitions
	source   string
	from     position // of the session's first message
	room     int      // blocks of events to remember
	all      *tails   // which the tail will belong to; of another goroutine
	gap      int64    // instead of tailGap, if positive
	deadline time.Time

	mu   sync.Mutex
	tail *tail // what all partitions have
}

// found is what one partition has.
type found struct {
	count  int      // events at or behind from
	oldest position // of the events with keys from some offset to the end; zero: there are none
}

func (r *tailReader) read(ctx context.Context) (*tail, error) {
	begun := time.Now()
	if r.gap == 0 {
		r.gap = tailGap
	}
	r.deadline = begun.Add(r.patience)
	r.tail = newTail(r.log, r.topic, r.room, r.all)
	all := make([]found, r.n)
	errs := make([]error, r.n)
	var wg sync.WaitGroup
	turns := make(chan struct{}, tailReaders)
	for p := range r.n {
		turns <- struct{}{}
		wg.Go(func() { // waited for below
			defer func() { <-turns }()
			all[p], errs[p] = r.partition(ctx, p)
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	count := 0
	for _, f := range all {
		count += f.count
	}
	r.log.Debug().Str("topic", r.topic).Int32("partitions", r.n).Int("events", count).
		Stringer("until", r.tail.seen.until.lsn).Float64("duration", time.Since(begun).Seconds()).
		Msg("end of the topic read for what is published already")
	return r.tail, nil
}

// partition reads from the end of the log until all that is older is older than the session's
// first message.
func (r *tailReader) partition(ctx context.Context, p int32) (f found, err error) {
	var start int64
	end, err := r.end(ctx, p)
	if err == nil {
		start, err = r.reader.Start(ctx, r.topic, p)
	}
	if err == nil {
		f, err = r.search(start, end, func(from, to int64) (span, error) {
			s := span{reader: r, partition: p}
			step := topicreader.Span{Topic: r.topic, Partition: p, From: from, End: to}
			err := r.reader.Scan(ctx, step, tailFetch, s.take)
			return s, err
		})
	}
	if err != nil {
		return found{}, fmt.Errorf("partition %d of topic %q: %w", p, r.topic, err)
	}
	return f, nil
}

// search is partition, between two offsets.
func (r *tailReader) search(start, end int64,
	read func(from, to int64) (span, error)) (f found, err error) {
	gap, step, older := int64(0), int64(tailFirst), 0
	for to := end; to > start; {
		at := max(start, to-step)
		s, err := read(at, to)
		if err != nil {
			return f, err
		}
		gap += s.bytes
		if n := r.add(&f, &s); n < len(s.events) { // a newer one was among them
			older, gap = n, 0
		} else {
			older += n
		}
		if older >= tailOlder || older > 0 && gap > r.gap {
			return f, nil
		}
		if gap > r.gap {
			r.log.Warn().Str("topic", r.topic).Int32("partition", s.partition).Int64("bytes",
				gap).Int("events", f.count).
				Msg("end of the partition read no further for what is published already: what others wrote " +
					"there is too much; rows may be published again")
			return f, nil
		}
		step = min(step*4, max(tailFirst, tailFetch*(to-at)/max(s.bytes, 1)), tailMost)
		to = at
	}
	return f, nil
}

// add takes the records of one step back. It returns how many of ours, from the oldest on, are
// older than the session's first message.
func (r *tailReader) add(f *found, s *span) (older int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range slices.Backward(s.events) {
		overtaken := e.keyed && f.oldest.lsn != 0 && f.oldest.before(e.position)
		if e.keyed && !overtaken {
			f.oldest = e.position
		}
		if e.before(r.from) {
			older++
			continue
		}
		older = 0
		f.count++
		if !overtaken {
			r.tail.seen.add(e.position)
		}
		if r.tail.newest.before(e.position) {
			r.tail.newest = e.position
		}
	}
	return older
}

// end is where the leader's log ends, once all of it can be read: what a replica does not have
// yet, it may have in a moment.
func (r *tailReader) end(ctx context.Context, p int32) (int64, error) {
	end, readable, err := r.reader.LogEnd(ctx, r.topic, p)
	for err == nil && readable < end {
		if time.Now().After(r.deadline) {
			return 0, fmt.Errorf("%w: %d records were not on enough replicas for %s "+
				"(sink.kafka.delivery_timeout)", sink.ErrUnreachable, end-readable, r.patience)
		}
		if err = kafka.Pause(ctx, tailPause); err == nil {
			_, readable, err = r.reader.LogEnd(ctx, r.topic, p)
		}
	}
	return readable, err
}

// span is one step back.
type span struct {
	reader    *tailReader
	partition int32

	events []keyedEvent // ours, in the order of the log
	bytes  int64
}

// keyedEvent is where an event stands, and whether it has a key, and with that an order.
type keyedEvent struct {
	position
	keyed bool
}

// take takes a record. One of a transaction is none of ours: it may have been taken back.
func (s *span) take(r *kgo.Record) error {
	if r.Attrs.IsControl() {
		return nil
	}
	s.bytes += int64(len(r.Key) + len(r.Value))
	if p, ok := positionOf(r.Headers, s.reader.source); ok && !r.Attrs.IsTransactional() {
		s.events = append(s.events, keyedEvent{p, r.Key != nil})
	}
	return nil
}
