package kafka

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/IBM/sarama"
	"github.com/jackc/pglogrepl"

	"postrider/sink"
)

// The position headers of package router.
const (
	headerLSN   = "postrider.lsn"
	headerIndex = "postrider.index"
)

// position is that of an event: the commit LSN of its transaction, and which event of it.
type position struct {
	lsn   pglogrepl.LSN
	index uint32
	// When it was committed, in microseconds. It tells apart the rows of two databases that have the same positions, since one was copied from the other;
	// before leaves it out.
	time int64
}

func (p position) before(q position) bool {
	return p.lsn < q.lsn || p.lsn == q.lsn && p.index < q.index
}

// tail is what earlier sessions of a source have published to a topic, from a position on.
//
// It holds every single position, and not only the newest of each partition. That is exact whatever has become of the partitions meanwhile: if some
// were added, a key may lie in another one now, and the newest position there says nothing about the row; taken for its word, it
// would lose the row. The test is TestPublished_LosesNothingWhenPartitionsWereAdded.
type tail struct {
	seen   events
	newest position
	marks  map[int32]mark // of partitions in which something is missing
	n      int32          // partitions of the topic
}

// events is a set of them: which of the 64 of a block are in it.
type events map[block]uint64

// block is 64 events of a transaction. A transaction of three million rows takes less than a megabyte.
type block struct {
	lsn   pglogrepl.LSN
	time  int64
	group uint32 // index / 64
}

// mark stands for a partition that does not hold any more all that was published: compaction or retention took some, or what others wrote
// in between was too much to read through. There, whatever is older than its newest event counts as published: publishing it now would
// put an older row of a key behind a newer one.
type mark struct {
	newest position
	moved  bool // an event was there whose key belongs into another partition: partitions were added
}

func (e events) add(p position) { e[block{p.lsn, p.time, p.index / 64}] |= 1 << (p.index % 64) }

func (e events) has(p position) bool {
	return e[block{p.lsn, p.time, p.index / 64}]&(1<<(p.index%64)) != 0
}

func (e events) merge(other events) {
	for b, bits := range other {
		e[b] |= bits
	}
}

// has tells whether an event was published. Positions of one session ascend: what lies behind the newest ends the use of the tail.
func (t *tail) has(p position, m *sink.Message) bool {
	if t.newest.before(p) {
		t.seen, t.marks = nil, nil
		return false
	}
	if t.seen.has(p) {
		return true
	}
	at := m.Partition
	if at < 0 {
		var known bool
		if at, known = homeOf(m.Key, t.n); !known {
			return false
		}
	}
	k, damaged := t.marks[at]
	return damaged && !k.newest.before(p) && p.time <= k.newest.time && (m.Partition >= 0 || !k.moved)
}

// homeOf is the partition of a key, as the producer chooses it. Without a key it cannot be known.
func homeOf(key []byte, partitions int32) (int32, bool) {
	if key == nil || partitions <= 0 {
		return 0, false
	}
	at, err := sarama.NewMurmur2Partitioner("").Partition(&sarama.ProducerMessage{Key: sarama.ByteEncoder(key)}, partitions)
	return at, err == nil
}

var _ sink.Deduplicator = (*Sink)(nil)

// Published tells whether an earlier session of the source has published m. The first call for a topic reads the ends of its partitions, back
// to where the positions lie before m's; so the first message of a topic must be the oldest of the session. Where it cannot be
// told, the answer is false. That includes what a topic does not say at all, because it is missing: Publish reports that.
//
// What has been acknowledged is always found. So is what the brokers have appended and not acknowledged yet: the ends are those of the
// leaders' logs, and what the replicas do not have yet is waited for. What is still on its way to a leader, in a network or in
// the queue of a broker that hangs, is not found if it gets there after the ends were read.
func (s *Sink) Published(ctx context.Context, source sink.Source, m *sink.Message) (bool, error) {
	p := position{m.Origin.LSN, m.Origin.Index, m.Origin.CommitTime.UnixMicro()}
	t, known := s.tails[m.Topic]
	if known {
		return t.has(p, m), nil
	}
	if p.lsn == 0 {
		return false, nil // of a snapshot
	}
	if s.stopped() {
		return false, s.cause
	}
	if err := s.topics.ensure(ctx, m.Topic); err != nil {
		if isVerdict(err) {
			return false, nil
		}
		return false, &sink.MessageError{Topic: m.Topic, Origin: m.Origin, Err: err}
	}
	t, err := s.readTails(ctx, source, m.Topic, p)
	if err != nil {
		return false, &sink.MessageError{Topic: m.Topic, Origin: m.Origin, Err: fmt.Errorf("read what earlier sessions have published: %w", err)}
	}
	if s.tails == nil {
		s.tails = map[string]*tail{}
	}
	s.tails[m.Topic] = t
	return t.has(p, m), nil
}

// readTails runs the reading, which cannot be interrupted, beside, and waits for it only until ctx or the sink ends.
func (s *Sink) readTails(ctx context.Context, source sink.Source, topic string, from position) (*tail, error) {
	type answer struct {
		tail *tail
		err  error
	}
	answers := make(chan answer, 1)
	reader := tailReader{
		client: s.topics.client, log: s.log, stop: s.stop, patience: s.cfg.DeliveryTimeout,
		topic: topic, n: s.topics.known[topic], source: source.Header(), from: from,
	}
	s.topics.asking.Go(func() { // ends when the sink is closed, at the latest; Close waits
		t, err := reader.read()
		answers <- answer{t, err}
	})
	select {
	case a := <-answers:
		return a.tail, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-s.stop:
		return nil, sink.ErrClosed
	}
}

// positionOf reads the headers of a record: not ok if it is not one of the source's. Ours stand behind those that a row brings itself, so the
// last of a name counts.
func positionOf(headers []*sarama.RecordHeader, source string) (p position, ok bool) {
	var lsn, index, from []byte
	for _, h := range headers {
		switch string(h.Key) {
		case headerLSN:
			lsn = h.Value
		case headerIndex:
			index = h.Value
		case sink.HeaderSource:
			from = h.Value
		}
	}
	name, committed, ok := cutLast(string(from), "@")
	if !ok || name != source {
		return position{}, false
	}
	at, lsnErr := pglogrepl.ParseLSN(string(lsn))
	n, indexErr := strconv.ParseUint(string(index), 10, 32)
	micros, timeErr := strconv.ParseInt(committed, 10, 64)
	return position{at, uint32(n), micros}, errors.Join(lsnErr, indexErr, timeErr) == nil && at != 0
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
