// Package audit compares the committed events with the published ones.
//
//	audit.go      Tally: counts numbered events while they are committed and received
//	judge.go      Judge: compares the rows of tables with the records of topics
//	pass.go       one pass over rows and records, within the memory limit
//	order.go      the order of the rows of a key
//	placement.go  keys with records in several partitions
//	example.go    the faults that a report shows
//	compare.go    Comparison: matches the messages of two relays while they arrive
//	waiting.go    messages that are not matched yet
//	difference.go the differences between two messages of one event
//	hint.go       the configuration key that removes a difference
//	text.go       texts without the additions of Kafka Connect's converters
package audit

import "sync"

// Tally counts the events of keys. The writer numbers the events of a key 1, 2, 3, ... in commit
// order, so that one bit per event suffices. All methods are safe for concurrent use.
type Tally struct {
	mu      sync.Mutex // guards what follows
	keys    map[string]*key
	verdict Verdict // without Lost and Phantom, which only Verdict can count
}

type key struct {
	written  uint64   // highest number that was committed
	received uint64   // highest number that was received
	latest   uint64   // number that was received last
	seen     []uint64 // bit n-1: number n was received
}

// Verdict is the result. Without faults all but Written and Delivered are zero.
type Verdict struct {
	Written    int64 `json:"written"`
	Delivered  int64 `json:"delivered"`    // events received at least once
	Lost       int64 `json:"lost"`         // committed and never received
	Duplicated int64 `json:"duplicated"`   // receipts after the first
	OutOfOrder int64 `json:"out_of_order"` // first receipts after a later event of their key
	Phantom    int64 `json:"phantom"`      // received and never committed
	// Partial counts receipts that skip a number: the receipt before them, of their key, is not of
	// the previous event. A complete repetition has none. After a partial one, a consumer that
	// keeps the last event of a key has an old one.
	Partial int64 `json:"torn"`
}

// Clean reports whether there is no fault.
func (v Verdict) Clean() bool { return v == Verdict{Written: v.Written, Delivered: v.Delivered} }

// New returns an empty tally.
func New() *Tally { return &Tally{keys: map[string]*key{}} }

// Wrote counts event number of key k as committed. The numbers of a key begin at 1 and have no
// gaps. Calls may come in any order.
func (t *Tally) Wrote(k string, number uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.verdict.Written++
	e := t.keyLocked(k)
	e.written = max(e.written, number)
}

// Received counts event number of key k as received, and reports whether that is the first time.
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

// Counts returns how many events were committed and how many of all were received.
func (t *Tally) Counts() (written, delivered int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.verdict.Written, t.verdict.Delivered
}

// Receipts returns how many events were received, with repetitions.
func (t *Tally) Receipts() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.verdict.Delivered + t.verdict.Duplicated
}

// Verdict returns the result of all calls so far.
func (t *Tally) Verdict() Verdict {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := t.verdict
	for _, e := range t.keys {
		for n := uint64(1); n <= max(e.written, uint64(len(e.seen))*64); n++ {
			received := (n-1)/64 < uint64(len(e.seen)) && e.seen[(n-1)/64]&(1<<((n-1)%64)) != 0
			switch {
			case n <= e.written && !received:
				v.Lost++
			case n > e.written && received:
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
