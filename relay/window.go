package relay

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
)

// window has the transactions in flight, in WAL order. It alone advances the acked LSN. Only the
// pump calls begin, tryAdd, replace, commit and idle.
//
// A transaction is finished when it is committed, its messages are done, and it is not held. It is
// removed then, and the transaction before it covers its end. So memory grows with the messages in
// flight, not with the transactions delivered after an undelivered one.
type window struct {
	maxMessages int
	maxBytes    int64
	moved       chan struct{} // has a token after a message left or the acked LSN moved

	mu sync.Mutex // guards what follows
	// root is the head of the list of unfinished transactions, oldest first. root.covered is the
	// acked LSN: it never decreases, and is less than the end of every transaction in the list.
	root    transaction
	open    *transaction   // the last in the list, between begin and commit; else nil
	byIndex []*transaction // indexed by the lower half of their number
	free    *transaction   // removed transactions to reuse, linked by next
	// After tryAdd messages <= maxMessages and bytes <= maxBytes, unless the window was empty.
	// Beyond that a held transaction adds 1 message, and a dead letter that is larger than the
	// message it replaces adds the difference in bytes.
	messages int // in flight, and held transactions
	holds    int // held transactions
	bytes    int64
}

type transaction struct {
	number      uint64        // lower half: index in byIndex; upper half: times it was reused
	end         pglogrepl.LSN // zero while open
	commitTime  time.Time
	pending     int  // messages added and not done, >= 0
	hasMessages bool // or has had
	held        bool // consumers do not see its messages yet
	// end of the last finished transaction or idle position that directly follows this one; else end
	covered    pglogrepl.LSN
	prev, next *transaction
}

func newWindow(seed pglogrepl.LSN, maxMessages int, maxBytes int64) *window {
	w := &window{maxMessages: maxMessages, maxBytes: maxBytes, moved: make(chan struct{}, 1)}
	w.root.covered, w.root.prev, w.root.next = seed, &w.root, &w.root
	return w
}

// begin opens a transaction and returns its number, for done.
func (w *window) begin(commitTime time.Time) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open != nil {
		panic("relay: begin inside a transaction")
	}
	t := w.free
	if t == nil {
		t = &transaction{number: uint64(len(w.byIndex))}
		w.byIndex = append(w.byIndex, t)
	} else {
		w.free = t.next
	}
	t.commitTime, t.prev, t.next = commitTime, w.root.prev, &w.root
	t.prev.next, w.root.prev = t, t
	w.open = t
	return t.number
}

// tryAdd adds a message to the open transaction. It returns false if there is no room.
func (w *window) tryAdd(bytes int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open == nil {
		panic("relay: message outside of a transaction")
	}
	if w.messages > 0 && (w.messages >= w.maxMessages || w.bytes+int64(bytes) > w.maxBytes) {
		return false
	}
	w.messages++
	w.bytes += int64(bytes)
	w.open.pending++
	w.open.hasMessages = true
	return true
}

// replace changes the size of a message in the window.
func (w *window) replace(before, after int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bytes += int64(after - before)
}

// commit closes the open transaction. With hold, a transaction that has messages stays, and counts
// as one message, until visible is called with its end or a later one.
func (w *window) commit(end pglogrepl.LSN, hold bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.open
	if t == nil {
		panic("relay: commit outside of a transaction")
	}
	w.open = nil
	t.end, t.covered = end, end
	if t.held = hold && t.hasMessages; t.held {
		w.messages++
		w.holds++
	}
	w.finishLocked(t)
}

// visible releases the held transactions that end at end or before, and calls seen for each.
func (w *window) visible(end pglogrepl.LSN, seen func(commitTime time.Time)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for next := w.root.next; next.end != 0 && next.end <= end; { // the end of root is 0
		t := next
		if next = t.next; t.held {
			t.held = false
			w.messages--
			w.holds--
			seen(t.commitTime)
			w.finishLocked(t)
			w.signalLocked()
		}
	}
}

// idle adds a position: everything before it is delivered or in the window.
func (w *window) idle(end pglogrepl.LSN) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open != nil {
		panic("relay: idle position inside a transaction")
	}
	w.coverLocked(w.root.prev, end)
}

// done removes a delivered message. It is called once for each message added.
func (w *window) done(number uint64, bytes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.byIndex[uint32(number)] //nolint:gosec // the lower half
	if t.number != number || t.pending == 0 || w.bytes < int64(bytes) {
		panic("relay: a message was reported done twice")
	}
	t.pending--
	w.messages--
	w.bytes -= int64(bytes)
	w.finishLocked(t)
	w.signalLocked()
}

// finishLocked removes a transaction if it is finished.
func (w *window) finishLocked(t *transaction) {
	if t.end == 0 || t.pending > 0 || t.held {
		return
	}
	w.coverLocked(t.prev, t.covered)
	t.prev.next, t.next.prev = t.next, t.prev
	*t = transaction{number: t.number + 1<<32, next: w.free}
	w.free = t
}

// coverLocked moves t.covered to end. For root that is the acked LSN.
func (w *window) coverLocked(t *transaction, end pglogrepl.LSN) {
	if end > t.covered {
		t.covered = end
		if t == &w.root {
			w.signalLocked()
		}
	}
}

func (w *window) signalLocked() {
	select {
	case w.moved <- struct{}{}:
	default:
	}
}

// waitMoved waits until a message leaves or the acked LSN moves after the last call, or ctx ends.
func (w *window) waitMoved(ctx context.Context) error {
	select {
	case <-w.moved:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ackedLSN returns the end of the longest prefix of finished transactions.
func (w *window) ackedLSN() pglogrepl.LSN {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.root.covered
}

// inFlight returns what is in flight, and the commit time of the oldest unacked transaction.
func (w *window) inFlight() (messages int, bytes int64, oldest time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.messages, w.bytes, w.root.next.commitTime // zero for root
}

// unacknowledged returns the number of messages that the broker has not acknowledged.
func (w *window) unacknowledged() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.messages - w.holds
}
