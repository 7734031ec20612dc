package producer

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"strconv"

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
// No row is lost: one is left out only if its own position was read in the topic. Newer rows of its
// key or of its partition prove nothing: it may have been under way to another partition or topic.
//
// Two rows of a key keep their order, if no partitions are added, so that both are in one:
//   - The older one is published now: the newer one follows it, published or not, because of again.
//   - Only the older one is left out: the newer one comes behind it.
//   - Both are left out: then no record of the older one is behind the last of the newer one, which
//     would be overtaken, and so not in seen, even if the older one is from before the session.
//
// Neither rule costs anything while sessions are killed and slots rewound: what they have published
// of a key has no gaps, and the rows with keys in a partition are in order.
// TestTail_LosesNothingAndKeepsTheOrderOfKeys shows all of this.
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

// has reports whether an event was published. It is called in the order of positions.
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
	switch {
	case there && again && !t.warned:
		t.warned = true
		t.log.Warn().Str("topic", t.topic).Stringer("lsn", p.lsn).
			Msg("rows that are in the topic are published again: they follow a row of the same key that " +
				"is not there, or not there any more")
	case there || again:
	case t.all.takeKey(p):
		t.again[hash] = struct{}{}
	default:
		t.log.Warn().Str("topic", t.topic).Stringer("lsn", p.lsn).Int("keys", t.all.mostKeys()).
			Msg("all rows of the topic are published again from here on: rows of too many keys are not " +
				"there")
		t.forget()
	}
	return there && !again
}

// forget frees everything: nothing counts as published then, and no keys are held.
func (t *tail) forget() {
	t.all.keys -= len(t.again)
	t.seen, t.again, t.newest = events{}, nil, position{}
}

// ends reports whether the tail was read only up to before p, for want of room.
func (t *tail) ends(p position) bool {
	return !t.newest.before(p) && t.seen.until.lsn != 0 && !p.before(t.seen.until)
}

var _ sink.Deduplicator = (*Sink)(nil)

// Published reports whether an earlier session of the source has published m, and false where
// that is not certain. The first call for a topic reads the ends of its partitions, back to
// positions before m's: the first message of a topic must be the oldest of the session.
//
// It finds what the brokers have appended, also unacknowledged: it reads to the ends of the
// leaders' logs, and waits for the replicas. It misses what gets to a leader later, from a
// network or from the queue of a broker that hangs.
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
	name, committed, ok := []byte(nil), []byte(nil), false
	if i := bytes.LastIndexByte(from, '@'); i >= 0 {
		name, committed, ok = from[:i], from[i+1:], true
	}
	if !ok || string(name) != source {
		return position{}, false
	}
	at, lsnErr := pglogrepl.ParseLSN(string(lsn))
	n, indexErr := strconv.ParseUint(string(index), 10, 32)
	micros, timeErr := strconv.ParseInt(string(committed), 10, 64)
	return position{at, uint32(n), micros}, errors.Join(lsnErr, indexErr, timeErr) == nil && at != 0
}

// tailKeys is how many keys the tails of a sink hold together: 5 MiB, as a key takes up to 39
// bytes. Of a relay that was killed, at most relay.in_flight_messages rows are missing.
const tailKeys = 1 << 17

// tails are those of a sink, and what they may hold together. They belong to the goroutine of
// Publish.
type tails struct {
	topics map[string]*tail
	keys   int // in again of all of them, at most mostKeys
	limit  int // of keys; zero: tailKeys
}

func (a *tails) mostKeys() int { return cmp.Or(a.limit, tailKeys) }

// room is how many blocks the tail of a topic may hold from p on.
func (a *tails) room(p position, topic string) int {
	a.forgetBefore(p)
	room := tailRoom
	for other, t := range a.topics {
		if other != topic {
			room -= t.seen.blocks
		}
	}
	return max(room, tailLeast)
}

// put takes in what was just read of a topic.
func (a *tails) put(t *tail) {
	if a.topics == nil {
		a.topics = map[string]*tail{}
	}
	if before := a.topics[t.topic]; before != nil {
		t.follow(before)
	}
	a.topics[t.topic] = t
}

// follow takes the keys of before, which is used no more: rows that were missing until then are
// still not to be overtaken.
func (t *tail) follow(before *tail) {
	t.again, t.seed, t.warned = before.again, before.seed, before.warned
}

// takeKey counts one more key of a tail from p on, and reports whether there is room. A tail without
// forgets, so each tail fails here once, and forgetBefore is rare.
func (a *tails) takeKey(p position) bool {
	if a.keys >= a.mostKeys() {
		a.forgetBefore(p)
	}
	if a.keys >= a.mostKeys() {
		return false
	}
	a.keys++
	return true
}

// forgetBefore empties the tails that the session has passed.
func (a *tails) forgetBefore(p position) {
	for _, t := range a.topics {
		if t.newest.before(p) {
			t.forget()
		}
	}
}
