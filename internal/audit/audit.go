// Package audit compares what was written with what arrived.
//
// The writer numbers the events of a key 1, 2, 3, ... in commit order and reports each event that
// was committed; the reader reports each event that it receives. The verdict then needs one bit
// per event.
//
//	audit.go      Tally: counts numbered events of both sides while they arrive
//	judge.go      Judge: compares what was written with what was published
//	pass.go       one pass over rows and records, within the memory that is allowed
//	order.go      are the rows of a key in the order of their commits?
//	placement.go  is a record in the partition of its key?
//	example.go    the faults that a report shows
//	compare.go    Comparison: matches the messages of two relays while they arrive
//	waiting.go    messages that wait for that of the other side
//	difference.go what differs in two messages of the same event
//	hint.go       why a member differs, where that is known
//	text.go       texts without what a converter of Kafka Connect adds
package audit

import "sync"

// Tally counts both sides. All methods are safe for concurrent use.
type Tally struct {
	mu      sync.Mutex
	keys    map[string]*key
	verdict Verdict // without Lost and Phantom, which only Verdict can count
}

type key struct {
	written  uint64   // highest number that was committed
	received uint64   // highest number that arrived
	latest   uint64   // number that arrived last
	seen     []uint64 // bit n-1: number n arrived
}

// Verdict is the result. All but Written and Delivered are zero for an exact relay.
type Verdict struct {
	Written    int64 `json:"written"`
	Delivered  int64 `json:"delivered"`    // events that arrived at least once
	Lost       int64 `json:"lost"`         // committed and never received
	Duplicated int64 `json:"duplicated"`   // receipts after the first
	OutOfOrder int64 `json:"out_of_order"` // first receipts behind a later event of their key
	Phantom    int64 `json:"phantom"`      // received and never committed
	// Partial counts receipts that skip the event before them: the last receipt of their key is an
	// event older than that. A repetition that runs up to where it began has none. One that stops
	// halfway leaves consumers that keep the last event of a key with an old one.
	Partial int64 `json:"torn"`
}

// Clean reports whether nothing is wrong.
func (v Verdict) Clean() bool { return v == Verdict{Written: v.Written, Delivered: v.Delivered} }

// New makes an empty tally.
func New() *Tally { return &Tally{keys: map[string]*key{}} }

// Wrote reports that event number of a key was committed. The numbers of a key begin at 1, have no
// gaps, and may be reported in any order.
func (t *Tally) Wrote(k string, number uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.verdict.Written++
	e := t.keyLocked(k)
	e.written = max(e.written, number)
}

// Received reports that event number of a key arrived, and returns whether it is the first time.
func (t *Tally) Received(k string, number uint64) (first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.keyLocked(k)
	if number > e.latest+1 {
		t.verdict.Partial++
	}
	e.latest = number
	word, bit := (number-1)/64, uint64(1)<<((number-1)%64)
	for uint64(len(e.seen)) <= word {
		e.seen = append(e.seen, 0)
	}
	if e.seen[word]&bit != 0 {
		t.verdict.Duplicated++
		return false
	}
	e.seen[word] |= bit
	t.verdict.Delivered++
	if number < e.received {
		t.verdict.OutOfOrder++
	}
	e.received = max(e.received, number)
	return true
}

// Counts returns how many events were committed and how many arrived so far.
func (t *Tally) Counts() (written, delivered int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.verdict.Written, t.verdict.Delivered
}

// Receipts returns how many events arrived so far, those included that arrived before.
func (t *Tally) Receipts() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.verdict.Delivered + t.verdict.Duplicated
}

// Verdict judges what has been reported so far.
func (t *Tally) Verdict() Verdict {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := t.verdict
	for _, e := range t.keys {
		for n := uint64(1); n <= max(e.written, uint64(len(e.seen))*64); n++ {
			arrived := (n-1)/64 < uint64(len(e.seen)) && e.seen[(n-1)/64]&(1<<((n-1)%64)) != 0
			switch {
			case n <= e.written && !arrived:
				v.Lost++
			case n > e.written && arrived:
				v.Phantom++
			}
		}
	}
	return v
}

func (t *Tally) keyLocked(k string) *key {
	if t.keys[k] == nil {
		t.keys[k] = &key{}
	}
	return t.keys[k]
}
