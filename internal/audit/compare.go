package audit

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/postrider/postrider/sink"
)

// CompareConfig is how two streams of messages are matched.
type CompareConfig struct {
	IDHeaders []string // names of the headers that carry an event's id
	OneSource bool     // there is one table: an id names one event, whatever its topic and key
	// TimeColumn reports whether the time of a relation's messages comes from a column. Otherwise
	// it is that of a clock, which is not compared.
	TimeColumn func(relation string) bool
	// Partition returns where a message of ours goes.
	Partition  func(m *sink.Message) (partition int32, known bool)
	Settle     time.Duration // how long a message waits for that of the other side
	MaxWaiting int           // messages of both sides that may wait
	MaxBytes   int64         // of their keys, values and headers
	MaxDetails int           // differing events, and messages of one side, reported in detail
}

// Comparison matches the messages that postrider makes with those that another relay published,
// and compares each pair. The number of messages that wait for their other side is bounded. All
// methods are safe for concurrent use; none blocks.
//
// The other relay began earlier and goes on after the end. Its messages of rows that were
// committed before the comparison began are known by their place only: see leftAsideLocked.
type Comparison struct {
	cfg CompareConfig

	mu           sync.Mutex
	ours, theirs waiting
	sequence     uint64
	closed       bool
	firstMatch   time.Time            // zero: none yet
	matched      map[place]uint64     // by partition: sequence of their first matched message
	known        recent[fate]         // matched messages of theirs, missing ids of ours
	last         recent[orderedMatch] // by topic and key
	hints        map[string]int64
	report       CompareReport
}

type place struct {
	topic     string
	partition int32
}

type fate uint8

const (
	fateMatched fate = iota + 1
	fateMissing
)

// orderedMatch is the pair of a key that is last in our order, by its sequence on both sides.
type orderedMatch struct {
	ours, theirs uint64
	partition    int32 // of theirs: nothing orders two partitions
}

// startGrace is how long after the first match a partition without a match may bring messages of
// rows from before the beginning. A relay publishes in commit order, so it covers the time by
// which partitions are read unevenly.
const startGrace = 5 * time.Second

// recentEntries is how many messages, and how many keys, are kept to recognise repetitions.
const recentEntries = 200_000

// NewComparison makes an empty comparison.
func NewComparison(cfg CompareConfig) *Comparison {
	return &Comparison{
		cfg: cfg, ours: newWaiting(), theirs: newWaiting(),
		matched: map[place]uint64{}, hints: map[string]int64{},
		known: newRecent[fate](recentEntries), last: newRecent[orderedMatch](recentEntries),
		report: CompareReport{Members: map[string]int64{}},
	}
}

// Ours takes a message that postrider made. It keeps neither the message nor its slices.
func (c *Comparison) Ours(m *sink.Message, now time.Time) {
	c.add(&entry{m: *m, id: cmp.Or(c.idOf(m), m.Origin.EventID), ours: true, at: now})
}

// Theirs takes a message that the other relay published, in the order of its partition.
func (c *Comparison) Theirs(m *sink.Message, offset int64, now time.Time) {
	c.add(&entry{m: *m, id: c.idOf(m), offset: offset, at: now})
}

func (c *Comparison) add(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sequence++
	e.sequence, e.late = c.sequence, c.closed
	if e.ours {
		c.report.Postrider++
	} else {
		c.report.Other++
	}
	if other := c.counterpartLocked(e, false); other != nil {
		c.pairLocked(e, other)
		return
	}
	c.sideLocked(e.ours).add(e)
	for c.ours.count+c.theirs.count > c.cfg.MaxWaiting ||
		c.ours.bytes+c.theirs.bytes > c.cfg.MaxBytes {
		c.resolveLocked(c.oldestLocked(), true)
	}
}

func (c *Comparison) sideLocked(ours bool) *waiting {
	if ours {
		return &c.ours
	}
	return &c.theirs
}

func (c *Comparison) oldestLocked() *entry {
	o, t := c.ours.oldest(), c.theirs.oldest()
	if t == nil || o != nil && o.sequence < t.sequence {
		return o
	}
	return t
}

// counterpartLocked finds the other side of a message: by topic, key and id, or by id where there
// is one source. A guess, for a message that has waited long enough, takes the same id elsewhere,
// or the next of the same key.
func (c *Comparison) counterpartLocked(e *entry, guess bool) *entry {
	other := c.sideLocked(!e.ours)
	if e.id != "" {
		found := other.first(e.identity())
		if found == nil && (guess || c.cfg.OneSource) {
			found = other.first(e.idAlone())
		}
		if found != nil {
			return found
		}
	}
	// Without an id on one side: the same topic and key, and the same value.
	return other.find(e.topicAndKey(), func(o *entry) bool {
		return (e.id == "" || o.id == "") && (guess ||
			bytes.Equal(o.m.Value, e.m.Value) && (o.m.Value == nil) == (e.m.Value == nil))
	})
}

func (c *Comparison) pairLocked(a, b *entry) {
	ours, theirs := a, b
	if b.ours {
		ours, theirs = b, a
	}
	c.ours.remove(ours)
	c.theirs.remove(theirs)
	c.known.put(theirs.identity(), fateMatched)
	at := place{theirs.m.Topic, theirs.m.Partition}
	if first, ok := c.matched[at]; !ok || theirs.sequence < first {
		c.matched[at] = theirs.sequence
	}
	if c.firstMatch.IsZero() {
		c.firstMatch = theirs.at
	}
	if ours.late && theirs.late {
		return
	}
	c.report.Compared++
	c.orderLocked(ours, theirs)
	members := c.compareLocked(&ours.m, &theirs.m)
	if len(members) == 0 {
		c.report.Equal++
		return
	}
	c.report.Differing++
	counted := map[string]bool{}
	for _, m := range members {
		if !counted[m.Name] { // a header may be there twice
			c.report.Members[m.Name]++
		}
		counted[m.Name] = true
		if m.Hint != "" {
			c.hints[m.Hint]++
		}
	}
	if len(c.report.Differences) < c.cfg.MaxDetails {
		c.report.Differences = append(c.report.Differences, Difference{
			EventID: strings.Clone(cmp.Or(ours.m.Origin.EventID, ours.id)),
			LSN:     ours.m.Origin.LSN.String(), Table: ours.m.Origin.Relation,
			Topic: theirs.m.Topic, Partition: theirs.m.Partition, Offset: theirs.offset,
			Members: members,
		})
	}
}

// orderLocked counts a pair that the two sides have in another order, compared with the pair of
// its key that is last in ours.
func (c *Comparison) orderLocked(ours, theirs *entry) {
	if ours.m.Key == nil || theirs.m.Key == nil {
		return // no key, no order
	}
	key := theirs.topicAndKey()
	last, ok := c.last.get(key)
	if ok && last.partition == theirs.m.Partition &&
		(ours.sequence > last.ours) != (theirs.sequence > last.theirs) {
		c.report.OutOfOrder++
	}
	if !ok || ours.sequence > last.ours {
		c.last.put(key, orderedMatch{ours.sequence, theirs.sequence, theirs.m.Partition})
	}
}

// Expire decides about messages that have waited for longer than the settle time. Call it often.
func (c *Comparison) Expire(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range []*waiting{&c.ours, &c.theirs} {
		for e := s.oldest(); e != nil && now.Sub(e.at) >= c.cfg.Settle; e = s.oldest() {
			c.resolveLocked(e, false)
		}
	}
}

// Close ends the counting: a later message only completes one that waits already.
func (c *Comparison) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}

// Settled reports, after Close, whether no message waits that counts: repetitions, and messages of
// rows from before the beginning, do not.
func (c *Comparison) Settled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := func(e *entry) bool {
		return !e.late && (e.ours || !c.repeatsLocked(e) &&
			(c.firstMatch.IsZero() || !c.leftAsideLocked(e)))
	}
	return !c.ours.contains(counts) && !c.theirs.contains(counts)
}

func (c *Comparison) repeatsLocked(e *entry) bool {
	f, _ := c.known.get(e.identity())
	return f == fateMatched
}

// resolveLocked decides about a message without its other side. capped: it could wait no longer,
// because there is no room.
func (c *Comparison) resolveLocked(e *entry, capped bool) {
	if other := c.counterpartLocked(e, true); other != nil {
		c.pairLocked(e, other)
		return
	}
	c.sideLocked(e.ours).remove(e)
	if e.late {
		return
	}
	if e.ours {
		if capped {
			c.report.GivenUp++
			return
		}
		c.report.OnlyPostrider++
		c.known.put(e.idAlone(), fateMissing)
		c.unmatchedLocked(e, "postrider")
		return
	}
	missing, _ := c.known.get(e.idAlone())
	switch {
	case c.repeatsLocked(e):
		c.report.Duplicated++
	case e.id != "" && missing == fateMissing:
		c.report.OnlyPostrider--
		c.report.Late++
	case c.leftAsideLocked(e):
		c.report.LeftAside++
	case capped:
		c.report.GivenUp++
	default:
		c.report.OnlyOther++
		c.unmatchedLocked(e, "other")
	}
}

// leftAsideLocked reports whether a message of theirs may be of a row that was committed before
// the comparison began: no message before it in its partition was matched.
func (c *Comparison) leftAsideLocked(e *entry) bool {
	first, ok := c.matched[place{e.m.Topic, e.m.Partition}]
	switch {
	case c.firstMatch.IsZero():
		return true
	case ok:
		return e.sequence < first
	}
	return e.at.Sub(c.firstMatch) < startGrace
}

func (c *Comparison) unmatchedLocked(e *entry, side string) {
	if len(c.report.Unmatched) >= c.cfg.MaxDetails {
		return
	}
	u := Unmatched{
		Side: side, EventID: e.id, Topic: e.m.Topic,
		Key: quote(e.m.Key, 0), Value: quote(e.m.Value, 0),
	}
	if e.ours {
		u.LSN, u.Table = e.m.Origin.LSN.String(), e.m.Origin.Relation
	} else {
		u.Partition, u.Offset = e.m.Partition, e.offset
	}
	c.report.Unmatched = append(c.report.Unmatched, u)
}

// Finish gives up everything that still waits; call Expire before. A message that has not waited
// for the settle time proves nothing.
func (c *Comparison) Finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := c.oldestLocked(); e != nil; e = c.oldestLocked() {
		c.resolveLocked(e, true)
	}
}

// Report returns what has been found so far.
func (c *Comparison) Report() CompareReport {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.report
	r.Waiting = c.ours.count + c.theirs.count
	r.Members = maps.Clone(r.Members)
	r.Differences, r.Unmatched = slices.Clone(r.Differences), slices.Clone(r.Unmatched)
	for text, count := range c.hints {
		r.Hints = append(r.Hints, Hint{text, count})
	}
	slices.SortFunc(r.Hints, func(a, b Hint) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Text, b.Text))
	})
	return r
}

// idOf returns the value of the first header that carries an id.
func (c *Comparison) idOf(m *sink.Message) string {
	for _, h := range m.Headers {
		if slices.Contains(c.cfg.IDHeaders, h.Key) {
			return string(PlainText(h.Value))
		}
	}
	return ""
}
