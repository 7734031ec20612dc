package producer

import (
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

// position is the position of an event.
type position struct {
	lsn   pglogrepl.LSN // commit LSN of its transaction
	index uint32        // in its transaction
	// time is the commit time in microseconds. Rows of a database and of a copy of it can have the
	// same LSN and index, and differ in it; before ignores it.
	time int64
}

func (p position) before(q position) bool {
	return p.lsn < q.lsn || p.lsn == q.lsn && p.index < q.index
}

// tail holds which events earlier sessions of a source have published to a topic, from a position
// on.
//
// No row is lost: a row is skipped only if its own position was read in the topic. Newer rows of
// its key or partition prove nothing: it may have been in flight to another partition or topic.
//
// Two rows of a key keep their order, if both are in one partition (none was added):
//   - The older one is published now: then so is the newer one, because the key is in republished.
//   - Only the older one is skipped: the newer one is published after it.
//   - Both are skipped: then no record of the older one follows the last of the newer one. If one
//     did, the newer one would be overtaken, and so not in seen.
//
// Killed sessions and rewound slots cause no duplicates by these rules: the published rows of a
// key have no gaps, and the rows with keys are in order in each partition.
// TestTail_LosesNothingAndKeepsTheOrderOfKeys tests all of this.
type tail struct {
	// seen has only events that are not overtaken: no older event with a key follows them in their
	// partition.
	seen   events
	newest position // of all published events
	log    zerolog.Logger
	topic  string

	// republished has the hashes of keys with a row that was not in the topic: their later rows are
	// published again.
	republished map[uint64]struct{}
	seed        maphash.Seed // of the hashes
	warned      bool         // that rows are published again
	tails       *tails       // which count its keys
}

func newTail(log zerolog.Logger, topic string, room int, all *tails) *tail {
	return &tail{
		seen: events{room: room}, log: log, topic: topic,
		republished: map[uint64]struct{}{}, seed: maphash.MakeSeed(), tails: all,
	}
}

// has reports whether an event can be skipped. It is called in the order of positions.
func (t *tail) has(p position, key []byte) bool {
	if t.newest.before(p) {
		t.forget()
		return false
	}
	published := t.seen.has(p)
	if key == nil { // rows without a key have no order
		return published
	}
	hash := maphash.Bytes(t.seed, key)
	_, again := t.republished[hash]
	switch {
	case published && again && !t.warned:
		t.warned = true
		t.log.Warn().Str("topic", t.topic).Stringer("lsn", p.lsn).
			Msg("rows already in the topic are published again: an earlier row of the same key is " +
				"missing from the topic")
	case published || again:
	case t.tails.countKey(p):
		t.republished[hash] = struct{}{}
	default:
		t.log.Warn().Str("topic", t.topic).Stringer("lsn", p.lsn).Int("keys", t.tails.maxKeys()).
			Msg("all rows from this LSN on are published again: rows of too many keys are missing from " +
				"the topic")
		t.forget()
	}
	return published && !again
}

// forget frees everything: after it no event counts as published.
func (t *tail) forget() {
	t.tails.keys -= len(t.republished)
	t.seen, t.republished, t.newest = events{}, nil, position{}
}

// needsRereading reports whether the topic has to be read again for p, whose events had no room.
func (t *tail) needsRereading(p position) bool {
	return !t.newest.before(p) && t.seen.until.lsn != 0 && !p.before(t.seen.until)
}

var _ sink.Deduplicator = (*Sink)(nil)

// Published implements sink.Deduplicator. The first call for a topic reads the ends of its
// partitions, back to positions before m's: so m must be the oldest of the session in its topic.
//
// It finds all that is in the leaders' logs, and waits until the replicas have it. It misses
// requests that get to a leader later, from a network or the queue of a hanging broker.
func (s *Sink) Published(ctx context.Context, source sink.Source, m *sink.Message) (bool, error) {
	p := position{m.Origin.LSN, m.Origin.Index, m.Origin.CommitTime.UnixMicro()}
	if p.lsn == 0 {
		return false, nil // a row of a snapshot has no position
	}
	t, known := s.tails.topics[m.Topic]
	if known && !t.needsRereading(p) {
		return t.has(p, m.Key), nil
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
	t, err := s.readTail(ctx, source, m.Topic, p, s.tails.room(p, m.Topic))
	if err != nil {
		return false, &sink.MessageError{Topic: m.Topic, Origin: m.Origin,
			Err: fmt.Errorf("read what earlier sessions have published: %w", err)}
	}
	s.tails.put(t)
	return t.has(p, m.Key), nil
}

// readTail reads the tail of a topic. It ends with ctx or the sink.
func (s *Sink) readTail(ctx context.Context, source sink.Source, topic string, from position,
	room int) (*tail, error) {
	ctx, end := withStop(ctx, s.acceptCtx)
	defer end()
	reader := tailReader{
		reader: topicreader.New(s.client, false), log: s.log, timeout: s.cfg.DeliveryTimeout,
		topic: topic, partitions: s.topics.known[topic], source: source.Header(),
		from: from, room: room, tails: &s.tails,
	}
	t, err := reader.read(ctx)
	if err != nil && s.stopped() { // a request that was cut says so in its own words
		err = s.consequence(err)
	}
	return t, err
}

// positionOf returns the position in the headers of a record, and whether source has published the
// record. The last header of a name counts: those of the row itself come first.
func positionOf(headers []kgo.RecordHeader, source string) (p position, ok bool) {
	var lsn, index, signature []byte
	for _, h := range headers {
		switch h.Key {
		case headerLSN:
			lsn = h.Value
		case headerIndex:
			index = h.Value
		case sink.HeaderSource:
			signature = h.Value
		}
	}
	header, committed, ok := sink.ParseSignature(signature)
	if !ok || string(header) != source {
		return position{}, false
	}
	at, lsnErr := pglogrepl.ParseLSN(string(lsn))
	n, indexErr := strconv.ParseUint(string(index), 10, 32)
	return position{at, uint32(n), committed.UnixMicro()},
		errors.Join(lsnErr, indexErr) == nil && at != 0
}

// tailKeys is how many keys the tails of a sink hold together: 5 MiB at up to 39 bytes for a key.
// After a kill at most what was in flight is missing, stalled messages included: 70,000 messages
// with the default limits.
const tailKeys = 1 << 17

// tails are the tails of a sink, with common limits. Only the goroutine of Publish uses them.
type tails struct {
	topics map[string]*tail
	keys   int // in republished of all topics; <= maxKeys
	limit  int // of keys; zero: tailKeys
}

func (a *tails) maxKeys() int { return cmp.Or(a.limit, tailKeys) }

// room returns how many blocks the tail of a topic may hold, for a session at p.
func (a *tails) room(p position, topic string) int {
	a.forgetBefore(p)
	room := tailRoom
	for other, t := range a.topics {
		if other != topic {
			room -= t.seen.blocks
		}
	}
	return max(room, tailMinRoom)
}

// put stores the tail that was read of a topic.
func (a *tails) put(t *tail) {
	if a.topics == nil {
		a.topics = map[string]*tail{}
	}
	if before := a.topics[t.topic]; before != nil {
		t.inheritKeys(before)
	}
	a.topics[t.topic] = t
}

// inheritKeys takes over the keys of before, which t replaces: the rows missing in before must
// still not be overtaken.
func (t *tail) inheritKeys(before *tail) {
	t.republished, t.seed, t.warned = before.republished, before.seed, before.warned
}

// countKey counts one more key, for a session at p, or returns false if there is no room. The
// caller's tail then forgets everything, so each tail fails here once and forgetBefore is rare.
func (a *tails) countKey(p position) bool {
	if a.keys >= a.maxKeys() {
		a.forgetBefore(p)
	}
	if a.keys >= a.maxKeys() {
		return false
	}
	a.keys++
	return true
}

// forgetBefore empties the tails whose events are all before p.
func (a *tails) forgetBefore(p position) {
	for _, t := range a.topics {
		if t.newest.before(p) {
			t.forget()
		}
	}
}
