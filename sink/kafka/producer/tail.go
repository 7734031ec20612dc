package producer

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"strconv"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/sink/kafka/topicreader"
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
	// When it was committed, in microseconds. It tells apart the rows of two databases that have
	// the same positions, since one was copied from the other; before leaves it out.
	time int64
}

func (p position) before(q position) bool {
	return p.lsn < q.lsn || p.lsn == q.lsn && p.index < q.index
}

// tail is what earlier sessions of a source have published to a topic, from a position on.
//
// No row is lost: one is left out only if its own position was read in the topic. Newer rows of
// its key or of its partition prove nothing. It may have been under way to a partition where its
// key lies no more, or to another topic.
//
// Rows of a key keep their order, if no partitions are added, so that they lie in one. Take an
// older and a newer one:
//   - The older one is published now: then the newer one follows it, whether it is there or
//     not, because of again.
//   - The older one is left out, the newer one is published now: it comes behind.
//   - Both are left out: then no record of the older one stands behind the last of the newer
//     one, which would be overtaken, and so not in seen. That holds also for an older row
//     from before the session's first.
//
// Neither rule costs anything while sessions are killed and slots rewound. What sessions have
// published of a key then has no gaps, and the rows with keys in a partition are in order. So a
// row that is not there has none behind it of its key, and no row is overtaken.
//
// The test of all of this is TestTail_LosesNothingAndKeepsTheOrderOfKeys.
type tail struct {
	// that are not overtaken: no older row with a key stands behind them in their partition
	seen   events
	newest position // behind it nothing is published
	log    zerolog.Logger
	topic  string

	// hashes of the keys of which a row was not there: what follows of them is published
	again  map[uint64]struct{}
	seed   maphash.Seed // of the hashes
	warned bool         // that rows are published again
	all    *tails       // which it belongs to: they count its keys
}

func newTail(log zerolog.Logger, topic string, room int, all *tails) *tail {
	return &tail{
		seen: events{room: room}, log: log, topic: topic,
		again: map[uint64]struct{}{}, seed: maphash.MakeSeed(), all: all,
	}
}

// has reports whether an event was published. It is asked in the order of positions.
func (t *tail) has(p position, key []byte) bool {
	if t.newest.before(p) {
		t.forget()
		return false
	}
	there := t.seen.has(p)
	if key == nil { // it has no order
		return there
	}
	hash := maphash.Bytes(t.seed, key)
	_, again := t.again[hash]
	if there && !again {
		return true
	}
	if there && !t.warned {
		t.warned = true
		t.log.Warn().Str("topic", t.topic).Stringer("lsn", p.lsn).
			Msg("rows that are in the topic are published again: they follow a row of the same key that " +
				"is not there, or not there any more")
	}
	if again {
		return false
	}
	if !t.all.takeKey(p) {
		t.log.Warn().Str("topic", t.topic).Stringer("lsn", p.lsn).Int("keys", t.all.mostKeys()).
			Msg("all rows of the topic are published again from here on: rows of too many keys are not " +
				"there")
		t.forget()
		return false
	}
	t.again[hash] = struct{}{}
	return false
}

// forget lets go of everything: nothing counts as published then, and no keys are held.
func (t *tail) forget() {
	t.all.keys -= len(t.again)
	t.seen, t.again, t.newest = events{}, nil, position{}
}

// ends reports whether the tail was read only up to before p, for want of room.
func (t *tail) ends(p position) bool {
	return !t.newest.before(p) && t.seen.until.lsn != 0 && !p.before(t.seen.until)
}

var _ sink.Deduplicator = (*Sink)(nil)

// Published reports whether an earlier session of the source has published m. The first call for a
// topic reads the ends of its partitions, back to where the positions lie before m's; so the first
// message of a topic must be the oldest of the session. So does a later one, when what there was
// room for is behind the session. Where it cannot be told, the answer is false. That includes what
// a topic does not say at all, because it is missing: Publish reports that.
//
// What has been acknowledged is always found. So is what the brokers have appended and not
// acknowledged yet: the ends are those of the leaders' logs, and what the replicas do not have yet
// is waited for. What is still on its way to a leader, in a network or in the queue of a broker
// that hangs, is not found if it gets there after the ends were read.
func (s *Sink) Published(ctx context.Context, source sink.Source, m *sink.Message) (bool, error) {
	p := position{m.Origin.LSN, m.Origin.Index, m.Origin.CommitTime.UnixMicro()}
	if p.lsn == 0 {
		return false, nil // of a snapshot
	}
	before, known := s.tails.topics[m.Topic]
	if known && !before.ends(p) {
		return before.has(p, m.Key), nil
	}
	if s.stopped() {
		return false, s.cause()
	}
	if err := s.topics.ensure(ctx, m.Topic); err != nil {
		if kafka.IsVerdict(err) {
			return false, nil
		}
		return false, &sink.MessageError{Topic: m.Topic, Origin: m.Origin, Err: err}
	}
	t, err := s.readTails(ctx, source, m.Topic, p, s.tails.room(p, m.Topic))
	if err != nil {
		return false, &sink.MessageError{Topic: m.Topic, Origin: m.Origin,
			Err: fmt.Errorf("read what earlier sessions have published: %w", err)}
	}
	s.tails.put(t)
	return t.has(p, m.Key), nil
}

// follow goes on where there was no room any more: what was not there until then is still not to
// be overtaken. before is used no more: its keys are t's.
func (t *tail) follow(before *tail) {
	t.again, t.seed, t.warned = before.again, before.seed, before.warned
}

// readTails reads until ctx or the sink ends.
func (s *Sink) readTails(ctx context.Context, source sink.Source, topic string, from position,
	room int) (*tail, error) {
	ctx, end := until(ctx, s.taking)
	defer end()
	reader := tailReader{
		reader: topicreader.New(s.client, false), log: s.log, patience: s.cfg.DeliveryTimeout,
		topic: topic, n: s.topics.known[topic], source: source.Header(), from: from, room: room,
		all: &s.tails,
	}
	return reader.read(ctx)
}

// positionOf reads the headers of a record: not ok if it is not one of the source's. Ours stand
// behind those that a row brings itself, so the last of a name counts.
func positionOf(headers []kgo.RecordHeader, source string) (p position, ok bool) {
	var lsn, index, from []byte
	for _, h := range headers {
		switch h.Key {
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
