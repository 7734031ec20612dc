// Package audit compares what was written with what arrived.
//
// Who writes numbers the events of a key 1, 2, 3, ... in commit order, and reports each event that was committed; who reads
// reports each event that it receives. The verdict then needs one bit per event.
//
//	audit.go      Tally: counts numbered events of both sides while they come
//	judge.go      Judge: compares what was written with what was published
//	pass.go       one pass over rows and records, within the memory that is allowed
//	order.go      are the rows of a key in the order of their commits?
//	placement.go  is a record in the partition of its key?
//	recordset.go  sets and tables that hold a few bytes for each event
//	example.go    the faults that a report shows
//	compare.go    Comparison: matches the messages of two relays while they come
//	waiting.go    messages that wait for that of the other side
//	difference.go what differs in two messages of the same event
//	hint.go       why a member differs, where that is known
package audit

import "sync"

// Tally counts both sides. All methods are safe for concurrent use.
type Tally struct {
	mu         sync.Mutex
	keys       map[string]*key
	written    int64
	delivered  int64 // first receipts
	duplicated int64
	outOfOrder int64
	torn       int64
}

type key struct {
	written  uint64   // highest number that was committed
	received uint64   // highest number that arrived
	latest   uint64   // number that arrived last
	seen     []uint64 // bit n-1: number n arrived
}

// Verdict is the result. All but Written and Delivered are zero for a relay that is exact.
type Verdict struct {
	Written    int64 `json:"written"`
	Delivered  int64 `json:"delivered"`    // events that arrived at least once
	Lost       int64 `json:"lost"`         // committed and never received
	Duplicated int64 `json:"duplicated"`   // receipts after the first
	OutOfOrder int64 `json:"out_of_order"` // first receipts after that of a later event of the same key
	Phantom    int64 `json:"phantom"`      // received and never committed
	// Torn counts receipts that leave out the event before them: the one received last for the key is neither the one before,
	// nor the same, nor a later one. A repetition that goes on to where it began leaves none; one that stops
	// halfway leaves whoever keeps the last event of a key with an old one.
	Torn int64 `json:"torn"`
}

// Clean tells whether nothing is wrong.
func (v Verdict) Clean() bool {
	return v.Lost == 0 && v.Duplicated == 0 && v.OutOfOrder == 0 && v.Phantom == 0 && v.Torn == 0
}

// New makes an empty tally.
func New() *Tally { return &Tally{keys: map[string]*key{}} }

// Wrote reports that event number of a key was committed. The numbers of a key begin at 1, leave nothing out, and
// may be reported in any order.
func (t *Tally) Wrote(k string, number uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.written++
	e := t.keyLocked(k)
	e.written = max(e.written, number)
}

// Received reports that event number of a key arrived, and tells whether it is the first time.
func (t *Tally) Received(k string, number uint64) (first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.keyLocked(k)
	if number > e.latest+1 {
		t.torn++
	}
	e.latest = number
	word, bit := (number-1)/64, uint64(1)<<((number-1)%64)
	for uint64(len(e.seen)) <= word {
		e.seen = append(e.seen, 0)
	}
	if e.seen[word]&bit != 0 {
		t.duplicated++
		return false
	}
	e.seen[word] |= bit
	t.delivered++
	if number < e.received {
		t.outOfOrder++
	}
	e.received = max(e.received, number)
	return true
}

// Counts are the events committed and the events that arrived so far.
func (t *Tally) Counts() (written, delivered int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.written, t.delivered
}

// Verdict judges what has been reported so far.
func (t *Tally) Verdict() Verdict {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := Verdict{Written: t.written, Delivered: t.delivered, Duplicated: t.duplicated, OutOfOrder: t.outOfOrder, Torn: t.torn}
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
	e := t.keys[k]
	if e == nil {
		e = &key{}
		t.keys[k] = e
	}
	return e
}
