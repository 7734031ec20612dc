package relay

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
)

// window holds the transactions in flight, in WAL order. It is the only place where a position
// advances.
//
// One goroutine, the pump, calls begin, tryAdd, commit and idle; any goroutine calls done and the
// readers.
//
// Invariants:
//  1. acked never decreases.
//  2. acked < end of every transaction that is open or has a message pending: it is at most the
//     end of the one before.
//  3. acked = end of the longest prefix of transactions that are committed and have nothing
//     pending.
//  4. done is called at most once for each add; pending >= 0.
//  5. tryAdd admits a message only while bytes <= maxBytes and messages <= maxMessages, except
//     that an empty window admits any one. Two go beyond: a held transaction by 1 message, and a
//     dead letter by as much as it is larger than the message whose place it takes.
//  6. An idle position enters as an empty transaction, in order, never between begin and commit.
//  7. A transaction that had a message and was committed with hold stays, and counts as one
//     message, until visible has named its end or a later one.
//  8. Its memory grows with the messages in flight, not with the transactions that were delivered
//     behind one that is not.
type window struct {
	maxMessages int
	maxBytes    int64

	mu    sync.Mutex
	ring  []transaction // ring[number%len(ring)], for base <= number < next
	limit int           // how long the ring grows
	// in order: what is left of those before base. Empty unless an old one does not move
	behind   []numbered
	first    uint64 // oldest transaction that is not yet acked
	base     uint64 // oldest in the ring; first, unless some are behind
	shown    uint64 // no transaction before it is held
	next     uint64 // number that the next transaction gets
	open     bool   // ring[next-1] has not seen its commit
	acked    pglogrepl.LSN
	messages int           // in flight, over all transactions, and held transactions
	holds    int           // of them, transactions
	bytes    int64         // of them
	moved    chan struct{} // one token: a message left, or acked moved, since it was last taken
}

type transaction struct {
	end        pglogrepl.LSN // zero while open
	commitTime time.Time     // zero for an idle position
	pending    int           // messages handed over and not done
	had        bool          // a message
	held       bool          // readers do not see its messages yet
}

// numbered is a transaction that the ring has no more room for.
type numbered struct {
	number uint64
	transaction
}

// longestRing is how many transactions the ring holds, if no more messages may be in flight.
const longestRing = 16 << 10

func newWindow(seed pglogrepl.LSN, maxMessages int, maxBytes int64) *window {
	return &window{maxMessages: maxMessages, maxBytes: maxBytes, ring: make([]transaction, 64),
		limit: max(longestRing, 4*maxMessages), acked: seed,
		moved: make(chan struct{}, 1)}
}

// begin opens a transaction and returns its number, which add and done take.
func (w *window) begin(commitTime time.Time) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open {
		panic("relay: begin inside a transaction")
	}
	w.open = true
	return w.pushLocked(transaction{commitTime: commitTime})
}

// tryAdd takes one message of the open transaction into the window, if there is room.
func (w *window) tryAdd(bytes int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.open {
		panic("relay: message outside of a transaction")
	}
	if w.messages > 0 && (w.messages >= w.maxMessages || w.bytes+int64(bytes) > w.maxBytes) {
		return false
	}
	w.messages++
	w.bytes += int64(bytes)
	t := w.atLocked(w.next - 1)
	t.pending++
	t.had = true
	return true
}

// replace takes account of a message of a transaction that another one takes the place of.
func (w *window) replace(bytes, by int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bytes += int64(by - bytes)
}

// commit closes the open transaction. hold: it is not delivered before visible names it. Without a
// message there is nothing to see.
func (w *window) commit(end pglogrepl.LSN, hold bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.open {
		panic("relay: commit outside of a transaction")
	}
	w.open = false
	t := w.atLocked(w.next - 1)
	hold = hold && t.had
	if t.pending == 0 && !hold && w.joinLocked(w.next-1, end) {
		// Of tables that are not ours. While the sink stalls, any number of these can pass.
		*t = transaction{}
		w.next--
		return
	}
	t.end = end
	if hold {
		t.held = true
		w.messages++
		w.holds++
	}
	w.advanceLocked()
}

// visible releases the held transactions that end at end or before, and tells each one's commit
// time to seen.
func (w *window) visible(end pglogrepl.LSN, seen func(commitTime time.Time)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.advanceLocked()
	for i := range w.behind {
		if b := &w.behind[i]; b.number >= w.shown {
			if !w.showLocked(&b.transaction, end, seen) {
				return
			}
			w.shown = b.number + 1
		}
	}
	for w.shown = max(w.shown, w.base); w.shown < w.next &&
		w.showLocked(w.atLocked(w.shown), end, seen); {
		w.shown++
	}
}

// showLocked returns false for a transaction that ends behind end.
func (w *window) showLocked(t *transaction, end pglogrepl.LSN,
	seen func(commitTime time.Time)) bool {
	if t.end == 0 || t.end > end {
		return false
	}
	if t.held {
		t.held = false
		w.messages--
		w.holds--
		seen(t.commitTime)
	}
	return true
}

// idle adds a position before which there is nothing more to deliver than what is in the window.
func (w *window) idle(end pglogrepl.LSN) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open {
		panic("relay: idle position inside a transaction")
	}
	if w.joinLocked(w.next, end) {
		return
	}
	w.pushLocked(transaction{end: end})
	w.advanceLocked()
}

// joinLocked has the transaction before number end at end, if that one waits behind others and has
// nothing of its own pending: it only moves on. So a stalled sink on an idle table does not fill
// the window with positions.
func (w *window) joinLocked(number uint64, end pglogrepl.LSN) bool {
	if number <= w.base {
		return false
	}
	last := w.atLocked(number - 1)
	if last.pending > 0 || last.held {
		return false
	}
	last.end = max(last.end, end)
	return true
}

// done takes one delivered message of a transaction out of the window.
func (w *window) done(number uint64, bytes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if number < w.first || number >= w.next {
		panic(fmt.Sprintf("relay: done for transaction %d, in the window are %d to %d", number,
			w.first, w.next))
	}
	t := w.atLocked(number)
	if t == nil {
		panic("relay: a message was reported done twice")
	}
	t.pending--
	w.messages--
	w.bytes -= int64(bytes)
	if t.pending < 0 || w.messages < 0 || w.bytes < 0 {
		panic("relay: a message was reported done twice")
	}
	if t.pending == 0 && number == w.first {
		w.advanceLocked()
	}
	w.signalLocked()
}

// waitMoved waits until a message left the window or acked moved since the last call, or ctx ends.
func (w *window) waitMoved(ctx context.Context) error {
	select {
	case <-w.moved:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ackedLSN is the watermark.
func (w *window) ackedLSN() pglogrepl.LSN {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.acked
}

// load is what is in flight, and the commit time of the oldest transaction that holds acked back.
func (w *window) load() (messages int, bytes int64, oldest time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.next > w.first {
		oldest = w.atLocked(w.first).commitTime
	}
	return w.messages, w.bytes, oldest
}

// unacknowledged is how many messages the broker has not written yet.
func (w *window) unacknowledged() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.messages - w.holds
}

func (w *window) advanceLocked() {
	defer w.signalLocked()
	for ; len(w.behind) > 0; w.behind = w.behind[1:] {
		t := &w.behind[0]
		if w.first = t.number; t.pending > 0 || t.held {
			return
		}
		w.acked = max(w.acked, t.end)
	}
	w.behind = nil
	for ; w.base < w.next; w.base++ {
		t := w.atLocked(w.base)
		if t.end == 0 || t.pending > 0 || t.held {
			break
		}
		w.acked = max(w.acked, t.end) // an idle position may lie before the seed
		*t = transaction{}
	}
	w.first = w.base
}

func (w *window) pushLocked(t transaction) uint64 {
	if w.next-w.base == uint64(len(w.ring)) {
		if len(w.ring) < w.limit {
			bigger := make([]transaction, 2*len(w.ring))
			for n := w.base; n < w.next; n++ {
				bigger[n%uint64(len(bigger))] = *w.atLocked(n)
			}
			w.ring = bigger
		} else {
			w.thinLocked()
		}
	}
	number := w.next
	w.next++
	*w.atLocked(number) = t
	return number
}

// thinLocked makes room in the ring. A partition may be without a leader for hours, while the
// others are published: then one message holds back all transactions behind it, and those of them
// that have nothing pending only move the end of the one before.
func (w *window) thinLocked() {
	left := w.behind[:0]
	leave := func(n numbered) {
		if last := len(left) - 1; last >= 0 && n.pending == 0 && !n.held && !left[last].held {
			left[last].end = max(left[last].end, n.end)
			return
		}
		left = append(left, n)
	}
	for _, n := range w.behind {
		leave(n)
	}
	// the open one is the last
	for half := w.base + uint64(len(w.ring)/2); w.base < half; w.base++ {
		t := w.atLocked(w.base)
		leave(numbered{w.base, *t})
		*t = transaction{}
	}
	w.behind = left
}

// atLocked is nil for a transaction that has nothing pending, and is part of another's end.
func (w *window) atLocked(number uint64) *transaction {
	if number >= w.base {
		return &w.ring[number%uint64(len(w.ring))]
	}
	i, found := slices.BinarySearchFunc(w.behind, number,
		func(n numbered, number uint64) int { return cmp.Compare(n.number, number) })
	if !found {
		return nil
	}
	return &w.behind[i].transaction
}

func (w *window) signalLocked() {
	select {
	case w.moved <- struct{}{}:
	default:
	}
}
