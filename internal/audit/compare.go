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

// CompareConfig configures a Comparison.
type CompareConfig struct {
	IDHeaders []string // names of the headers that have an event's id
	OneSource bool     // there is one table, so an id identifies an event without topic and key
	// TimeColumn reports whether the timestamp of a relation's messages comes from a column. Else
	// it comes from a clock and is not compared.
	TimeColumn func(relation string) bool
	// Partition returns the partition of a message of postrider.
	Partition  func(m *sink.Message) (partition int32, known bool)
	Settle     time.Duration // how long a message waits for its counterpart
	MaxWaiting int           // messages of both sides that may wait
	MaxBytes   int64         // of the keys, values and headers of waiting messages
	MaxDetails int           // differing events, and messages of one side, reported in detail
}

// A topic is compared with its table in judge.go.

// Comparison matches the messages of postrider (ours) with those of another relay (theirs), and
// compares each pair. The number of unmatched messages is bounded. All methods are safe for
// concurrent use; none blocks.
//
// The other relay began earlier and goes on after the end. leftAsideLocked recognises its messages
// of rows that were committed before the comparison began.
type Comparison struct {
	cfg CompareConfig

	mu           sync.Mutex // guards what follows
	ours, theirs waiting
	sequence     uint64 // of the newest message, over both sides
	closed       bool
	firstMatch   time.Time                 // zero: none yet
	firstMatched map[topicPartition]uint64 // sequence of their first matched message
	outcomes     recent[outcome]           // of messages of theirs, and of ids of ours
	last         recent[orderedMatch]      // by topic and key
	hints        map[string]int64
	report       CompareReport
}

type topicPartition struct {
	topic     string
	partition int32
}

type outcome uint8

const (
	outcomeMatched outcome = iota + 1
	outcomeMissing
)

// orderedMatch is the last pair of a key in our order, with its sequence on both sides.
type orderedMatch struct {
	ours, theirs uint64
	partition    int32 // of theirs: records of two partitions have no order
}

// startGrace is how long after the first match a partition without a match may have messages of
// rows from before the beginning. A relay publishes in commit order, but partitions are not read
// at the same pace.
const startGrace = 5 * time.Second

// recentEntries bounds Comparison.outcomes and Comparison.last.
const recentEntries = 200_000

// NewComparison returns an empty comparison.
func NewComparison(cfg CompareConfig) *Comparison {
	return &Comparison{
		cfg: cfg, ours: newWaiting(), theirs: newWaiting(),
		firstMatched: map[topicPartition]uint64{}, hints: map[string]int64{},
		outcomes: newRecent[outcome](recentEntries), last: newRecent[orderedMatch](recentEntries),
		report: CompareReport{Members: map[string]int64{}},
	}
}

// Ours adds a message of postrider. It keeps neither the message nor its slices.
func (c *Comparison) Ours(m *sink.Message, now time.Time) {
	c.add(&entry{m: *m, id: cmp.Or(c.idOf(m), m.Origin.EventID), ours: true, at: now})
}

// Theirs adds a message of the other relay. Call it in the order of each partition.
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

// counterpartLocked finds the message of the other side: by topic, key and id, or by id if there
// is one source. guess: also the same id of another topic or key, or the next message of the key.
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
	// Without an id on one side, topic, key and value decide.
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
	c.outcomes.put(theirs.identity(), outcomeMatched)
	at := topicPartition{theirs.m.Topic, theirs.m.Partition}
	if first, ok := c.firstMatched[at]; !ok || theirs.sequence < first {
		c.firstMatched[at] = theirs.sequence
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
		if !counted[m.Name] { // there may be two headers of a name
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

// orderLocked counts a pair as out of order if the two sides disagree on whether it follows the
// last pair of its key.
func (c *Comparison) orderLocked(ours, theirs *entry) {
	if ours.m.Key == nil || theirs.m.Key == nil {
		return // messages without a key have no order
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

// Expire resolves messages that have waited for Settle. Call it often.
func (c *Comparison) Expire(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range []*waiting{&c.ours, &c.theirs} {
		for e := s.oldest(); e != nil && now.Sub(e.at) >= c.cfg.Settle; e = s.oldest() {
			c.resolveLocked(e, false)
		}
	}
}

// Close ends the counting: a later message only matches one that is waiting.
func (c *Comparison) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}

// Settled reports, after Close, whether no message is waiting, apart from repetitions and messages
// of rows from before the beginning.
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
	o, _ := c.outcomes.get(e.identity())
	return o == outcomeMatched
}

// resolveLocked ends the wait of a message: it guesses a counterpart, or counts the message as
// without one. early: the message has not waited for Settle.
func (c *Comparison) resolveLocked(e *entry, early bool) {
	if other := c.counterpartLocked(e, true); other != nil {
		c.pairLocked(e, other)
		return
	}
	c.sideLocked(e.ours).remove(e)
	if e.late {
		return
	}
	if e.ours {
		if early {
			c.report.GivenUp++
			return
		}
		c.report.OnlyPostrider++
		c.outcomes.put(e.idAlone(), outcomeMissing)
		c.unmatchedLocked(e, "postrider")
		return
	}
	ofID, _ := c.outcomes.get(e.idAlone())
	switch {
	case c.repeatsLocked(e):
		c.report.Duplicated++
	case e.id != "" && ofID == outcomeMissing:
		c.report.OnlyPostrider--
		c.report.Late++
	case c.leftAsideLocked(e):
		c.report.LeftAside++
	case early:
		c.report.GivenUp++
	default:
		c.report.OnlyOther++
		c.unmatchedLocked(e, "other")
	}
}

// leftAsideLocked reports whether a message of theirs may be of a row that was committed before
// the comparison began: no message before it in its partition was matched.
func (c *Comparison) leftAsideLocked(e *entry) bool {
	first, ok := c.firstMatched[topicPartition{e.m.Topic, e.m.Partition}]
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

// Finish resolves all waiting messages. Call Expire before: a message that has not waited for
// Settle counts as given up, since it proves nothing.
func (c *Comparison) Finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := c.oldestLocked(); e != nil; e = c.oldestLocked() {
		c.resolveLocked(e, true)
	}
}

// Report returns the result so far.
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

// idOf returns the event's id, from the first header of IDHeaders.
func (c *Comparison) idOf(m *sink.Message) string {
	for _, h := range m.Headers {
		if slices.Contains(c.cfg.IDHeaders, h.Key) {
			return string(PlainText(h.Value))
		}
	}
	return ""
}
