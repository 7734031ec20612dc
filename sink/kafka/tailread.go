package kafka

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/rs/zerolog"

	"github.com/postrider/postrider/sink"
)

const (
	// tailGap bounds how much of what others wrote to a partition is read through in search of the next older record of ours.
	tailGap = 64 << 20
	// tailFetch is what one request asks for, and tailReaders how many partitions are read at a time: together what the reading takes of memory.
	tailFetch   = 1 << 20
	tailReaders = 4
	// tailOlder is how many of our records in a row have to be older than the session's first message before the search ends: one without a key
	// may stand behind newer ones.
	tailOlder = 32
	// tailFirst and tailMost bound how many offsets one step back covers. Steps grow while records are small.
	tailFirst = 16
	tailMost  = 8192
	// tailTries is how often a partition is tried: its leader may have moved.
	tailTries = 5
	tailPause = 100 * time.Millisecond
	// debuggingReplica has a leader say where its log ends, and not how far its replicas are, which is what it tells consumers.
	debuggingReplica = -2
)

// tailReader reads the ends of the partitions of a topic, backwards, as far as a session needs them.
type tailReader struct {
	client   sarama.Client
	log      zerolog.Logger
	stop     <-chan struct{}
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

func (r *tailReader) read() (*tail, error) {
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
			all[p], errs[p] = r.partition(p)
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

// partition tries again what a new leader can heal.
func (r *tailReader) partition(p int32) (f found, err error) {
	for try := range tailTries {
		if f, err = r.backwards(p); err == nil || !errors.Is(err, sink.ErrUnreachable) || time.Now().After(r.deadline) || !r.pause(tailPause<<try) {
			break
		}
		_ = r.client.RefreshMetadata(r.topic) // if that fails, so will the next try, and say it better
	}
	if err != nil {
		return found{}, fmt.Errorf("partition %d of topic %q: %w", p, r.topic, err)
	}
	return f, nil
}

// pause is false once the sink is closed.
func (r *tailReader) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.stop:
		return false
	}
}

// backwards reads from the end of the log until all that is older is older than the session's first message.
func (r *tailReader) backwards(p int32) (f found, err error) {
	end, err := r.end(p)
	if err != nil {
		return f, err
	}
	start, err := r.client.GetOffset(r.topic, p, sarama.OffsetOldest)
	if err != nil {
		return f, translate(err)
	}
	return r.search(start, end, func(from, to int64) (span, error) {
		s := span{reader: r, partition: p}
		err := s.read(from, to)
		return s, err
	})
}

// search is backwards, between two offsets.
func (r *tailReader) search(start, end int64, read func(from, to int64) (span, error)) (f found, err error) {
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
			r.log.Warn().Str("topic", r.topic).Int32("partition", s.partition).Int64("bytes", gap).Int("events", f.count).
				Msg("end of the partition read no further for what is published already: what others wrote there is too much; rows may be published again")
			return f, nil
		}
		step = min(step*4, max(tailFirst, tailFetch*(to-at)/max(s.bytes, 1)), tailMost)
		to = at
	}
	return f, nil
}

// add takes the records of one step back. It returns how many of ours, from the oldest on, are older than the session's first message.
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

// end is where the leader's log ends, once all of it can be read: what a replica does not have yet, it may have in a moment.
func (r *tailReader) end(p int32) (int64, error) {
	end, err := r.ask(p, debuggingReplica)
	if errors.Is(err, sink.ErrUnreachable) {
		return 0, err
	}
	if err != nil { // not Apache Kafka: what consumers are told has to do
		r.log.Debug().Err(err).Str("topic", r.topic).Int32("partition", p).Msg("end of the leader's log not told")
		end = 0
	}
	for {
		readable, err := r.ask(p, -1)
		if err != nil || readable >= end {
			return readable, err
		}
		if time.Now().After(r.deadline) || !r.pause(tailPause/4) {
			return 0, fmt.Errorf("%w: %d records were not on enough replicas for %s (sink.kafka.delivery_timeout)", sink.ErrUnreachable, end-readable, r.patience)
		}
	}
}

func (r *tailReader) ask(p, replica int32) (int64, error) {
	leader, err := r.client.Leader(r.topic, p)
	if err != nil {
		return 0, translate(err)
	}
	request := sarama.NewOffsetRequest(r.client.Config().Version)
	request.SetReplicaID(replica)
	request.AddBlock(r.topic, p, sarama.OffsetNewest, 1)
	response, err := leader.GetAvailableOffsets(request)
	if err != nil {
		return 0, translate(err)
	}
	block := response.GetBlock(r.topic, p)
	switch {
	case block == nil:
		return 0, translate(sarama.ErrIncompleteResponse)
	case !errors.Is(block.Err, sarama.ErrNoError):
		return 0, translate(block.Err)
	}
	return block.Offset, nil
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

// read reads the records from one offset up to another.
func (s *span) read(from, to int64) error {
	r := s.reader
	for next := from; next < to; {
		select {
		case <-r.stop:
			return sink.ErrClosed
		default:
		}
		block, err := fetchBlock(r.client, r.topic, s.partition, next, tailFetch)
		if errors.Is(err, sarama.ErrOffsetOutOfRange) { // retention has taken it just now
			oldest, oldestErr := r.client.GetOffset(r.topic, s.partition, sarama.OffsetOldest)
			if oldestErr == nil && oldest > next {
				next = oldest
				continue
			}
			if err = oldestErr; err == nil {
				err = fmt.Errorf("%w: the partition begins at offset %d, and the broker says that %d is out of range", sink.ErrUnreachable, oldest, next)
			}
		}
		if err != nil {
			return translate(err)
		}
		before := next
		for _, set := range block.RecordsSet {
			if b := set.RecordBatch; b != nil && !b.PartialTrailingRecord {
				next = s.batch(b, next, to)
			}
		}
		if next == before {
			return fmt.Errorf("%w: nothing to read at offset %d of %d", sink.ErrUnreachable, next, to)
		}
	}
	return nil
}

// batch takes the records of a batch from next on, and returns the offset behind it. A record of a transaction is none of ours: it may have
// been taken back.
func (s *span) batch(b *sarama.RecordBatch, next, to int64) int64 {
	for _, rec := range b.Records {
		at := b.FirstOffset + rec.OffsetDelta
		if b.Control || at < next || at >= to {
			continue
		}
		s.bytes += int64(len(rec.Key) + len(rec.Value))
		p, ok := positionOf(rec.Headers, s.reader.source)
		if !ok || b.IsTransactional {
			continue
		}
		s.events = append(s.events, keyedEvent{p, rec.Key != nil})
	}
	return max(next, b.LastOffset()+1)
}
