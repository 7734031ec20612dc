package producer

import (
	"context"
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
	// tailGap limits how many bytes of other sources are read in search of the source's next older
	// record.
	tailGap = 64 << 20
	// tailFetch is the size of a fetch request, and tailReaders how many partitions are read at a
	// time. Their product is the memory of the reading, unless batches are larger: each takes at
	// most kafka.Config.LargestPlainBatch.
	tailFetch   = 1 << 20
	tailReaders = 4
	// tailMinOlder is how many of the source's records in a row have to be older than the session's
	// first message before the search ends: one without a key may follow newer ones.
	tailMinOlder = 32
	// tailFirstStep and tailMaxStep limit how many offsets one step back covers. Steps grow while
	// records are small.
	tailFirstStep = 16
	tailMaxStep   = 8192
	// tailPause is the time between checks whether replicas have caught up.
	tailPause = 25 * time.Millisecond
)

// tailReader reads the partitions of a topic backwards, as far as a session needs them.
type tailReader struct {
	reader     *topicreader.Reader
	log        zerolog.Logger
	timeout    time.Duration // for replicas that lag
	topic      string
	partitions int32     // their number
	source     string    // Source.Header
	from       position  // of the session's first message
	room       int       // blocks of the tail's events
	tails      *tails    // of the tail; read does not use it
	gap        int64     // instead of tailGap, if positive
	deadline   time.Time // of timeout

	mu   sync.Mutex // guards tail while partitions are read
	tail *tail      // of all partitions
}

// partitionResult is what the search of one partition has found.
type partitionResult struct {
	count  int      // events at from or later
	oldest position // of the events with keys that were read; zero: there are none
}

func (r *tailReader) read(ctx context.Context) (*tail, error) {
	started := time.Now()
	if r.gap == 0 {
		r.gap = tailGap
	}
	r.deadline = started.Add(r.timeout)
	r.tail = newTail(r.log, r.topic, r.room, r.tails)
	ctx, cancel := context.WithCancelCause(ctx) // by the first error
	defer cancel(nil)
	all := make([]partitionResult, r.partitions)
	var wg sync.WaitGroup
	sem := make(chan struct{}, tailReaders)
	for p := range r.partitions {
		sem <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() { // waited for below
			defer func() { <-sem }()
			var err error
			if all[p], err = r.partition(ctx, p); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	r.tail.seen.finish()
	count := 0
	for _, f := range all {
		count += f.count
	}
	r.log.Debug().Str("topic", r.topic).Int32("partitions", r.partitions).Int("events", count).
		Stringer("until", r.tail.seen.until.lsn).Float64("duration", time.Since(started).Seconds()).
		Msg("ends of the topic's partitions read for published rows")
	return r.tail, nil
}

// partition reads a partition backwards, until it finds only events before the session's first
// message.
func (r *tailReader) partition(ctx context.Context, p int32) (f partitionResult, err error) {
	var start int64
	end, err := r.readableEnd(ctx, p)
	if err == nil {
		start, err = r.reader.Start(ctx, r.topic, p)
	}
	if err == nil {
		f, err = r.search(start, end, func(from, to int64) (backStep, error) {
			s := backStep{reader: r, partition: p}
			step := topicreader.Span{Topic: r.topic, Partition: p, From: from, End: to}
			err := r.reader.Scan(ctx, step, tailFetch, s.take)
			return s, err
		})
	}
	if err != nil {
		return partitionResult{}, fmt.Errorf("partition %d of topic %q: %w", p, r.topic, err)
	}
	return f, nil
}

// search is partition between two offsets. read reads one step.
func (r *tailReader) search(start, end int64,
	read func(from, to int64) (backStep, error)) (f partitionResult, err error) {
	gap, step, older := int64(0), int64(tailFirstStep), 0
	for to := end; to > start; {
		at := max(start, to-step)
		s, err := read(at, to)
		if err != nil {
			return f, err
		}
		gap += s.bytes
		if n := r.add(&f, &s); n < len(s.events) { // the others are not older
			older, gap = n, 0
		} else {
			older += n
		}
		if older >= tailMinOlder || older > 0 && gap > r.gap {
			return f, nil
		}
		if gap > r.gap {
			r.log.Warn().Str("topic", r.topic).Int32("partition", s.partition).Int64("bytes",
				gap).Int("events", f.count).
				Msg("search for published rows ended early: the partition has too many bytes of other " +
					"sources; rows may be published again")
			return f, nil
		}
		step = min(step*4, max(tailFirstStep, tailFetch*(to-at)/max(s.bytes, 1)), tailMaxStep)
		to = at
	}
	return f, nil
}

// add adds the events of one step. It returns how many of them, from the oldest offset on, are
// before the session's first message.
func (r *tailReader) add(f *partitionResult, s *backStep) (older int) {
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

// readableEnd returns the end of the leader's log, once all of it is on the replicas and can be
// read.
func (r *tailReader) readableEnd(ctx context.Context, p int32) (int64, error) {
	end, readable, err := r.reader.LogEnd(ctx, r.topic, p)
	for err == nil && readable < end {
		if time.Now().After(r.deadline) {
			return 0, fmt.Errorf("%w: %d records were not on enough replicas for %s "+
				"(sink.kafka.delivery_timeout)", sink.ErrUnreachable, end-readable, r.timeout)
		}
		if err = kafka.Pause(ctx, tailPause); err == nil {
			_, readable, err = r.reader.LogEnd(ctx, r.topic, p)
		}
	}
	return readable, err
}

// backStep is one step of a backward search.
type backStep struct {
	reader    *tailReader
	partition int32

	events []keyedEvent // of the source, in the order of the log
	bytes  int64
}

// keyedEvent is the position of an event, and whether it has a key, by which it is ordered.
type keyedEvent struct {
	position
	keyed bool
}

// take adds a record. It skips transactional records, which can have been aborted.
func (s *backStep) take(r *kgo.Record) error {
	if r.Attrs.IsControl() {
		return nil
	}
	s.bytes += int64(len(r.Key) + len(r.Value))
	if p, ok := positionOf(r.Headers, s.reader.source); ok && !r.Attrs.IsTransactional() {
		s.events = append(s.events, keyedEvent{p, r.Key != nil})
	}
	return nil
}
