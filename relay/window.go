package relay

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
)

// window is the transactions in flight, in WAL order. It is the only place where a position
// advances. The pump alone calls begin, tryAdd, replace, commit and idle.
//
// A transaction is finished when it is committed, its messages are done, and it is not held. Then
// it leaves its position to the one before it. So memory grows with the messages in flight, not
// with the transactions that were delivered behind one that is not.
type window struct {
	maxMessages int
	maxBytes    int64
	moved       chan struct{} // one token: a message left, or acked moved, since it was last taken

	mu sync.Mutex // guards what follows
	// root is the head of the list of unfinished transactions, oldest first. root.covered is the
	// acked LSN: it never decreases, and is less than the end of every transaction in the list.
	root  transaction
	open  *transaction   // the last in the list, between begin and commit; else nil
	slots []*transaction // by the lower half of their number
	free  *transaction   // those that can be used again, linked by next
	// messages <= maxMessages and bytes <= maxBytes when tryAdd admits a message, except that an
	// empty window admits any one. Two go beyond: a held transaction by 1 message, and a dead
	// letter by as much as it is larger than the message whose place it takes.
	messages int // in flight, and held transactions
	holds    int // held transactions
	bytes    int64
}

type transaction struct {
	number     uint64        // slot, and in the upper half how often it was used
	end        pglogrepl.LSN // zero while open
	commitTime time.Time
	pending    int  // messages added and not done, >= 0
	had        bool // a message
	held       bool // readers do not see its messages yet
	// end of the finished transactions and idle positions right behind this one; at least end
	covered    pglogrepl.LSN
	prev, next *transaction
}

func newWindow(seed pglogrepl.LSN, maxMessages int, maxBytes int64) *window {
	w := &window{maxMessages: maxMessages, maxBytes: maxBytes, moved: make(chan struct{}, 1)}
	w.root.covered, w.root.prev, w.root.next = seed, &w.root, &w.root
	return w
}

// begin opens a transaction and returns its number, which done takes.
func (w *window) begin(commitTime time.Time) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open != nil {
		panic("relay: begin inside a transaction")
	}
	t := w.free
	if t == nil {
		t = &transaction{number: uint64(len(w.slots))}
		w.slots = append(w.slots, t)
	} else {
		w.free = t.next
	}
	t.commitTime, t.prev, t.next = commitTime, w.root.prev, &w.root
	t.prev.next, w.root.prev = t, t
	w.open = t
	return t.number
}

// tryAdd takes one message of the open transaction into the window, if there is room.
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
	w.open.had = true
	return true
}

// replace accounts for a message that takes the place of one in the window.
func (w *window) replace(bytes, by int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bytes += int64(by - bytes)
}

// commit closes the open transaction. hold: it stays, and counts as one message, until visible
// names its end or a later one. Without a message there is nothing to see.
func (w *window) commit(end pglogrepl.LSN, hold bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.open
	if t == nil {
		panic("relay: commit outside of a transaction")
	}
	w.open = nil
	t.end, t.covered = end, end
	if t.held = hold && t.had; t.held {
		w.messages++
		w.holds++
	}
	w.finishLocked(t)
}

// visible releases the held transactions that end at end or before, with a call of seen for each.
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

// idle adds a position before which there is nothing more to deliver than what is in the window.
func (w *window) idle(end pglogrepl.LSN) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open != nil {
		panic("relay: idle position inside a transaction")
	}
	w.coverLocked(w.root.prev, end)
}

// done takes a delivered message out of the window. It is called once for each message added.
func (w *window) done(number uint64, bytes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.slots[uint32(number)] //nolint:gosec // the lower half
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

// coverLocked moves t to end, before which all is delivered. Of root, that is the acked LSN.
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

// waitMoved waits until a message left the window or acked moved since the last call, or ctx ends.
func (w *window) waitMoved(ctx context.Context) error {
	select {
	case <-w.moved:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ackedLSN is the watermark: the end of the longest prefix of finished transactions.
func (w *window) ackedLSN() pglogrepl.LSN {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.root.covered
}

// load is what is in flight, and the commit time of the oldest transaction that is not acked.
func (w *window) load() (messages int, bytes int64, oldest time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.messages, w.bytes, w.root.next.commitTime // that of root is zero
}

// unacknowledged is how many messages the broker has not written yet.
func (w *window) unacknowledged() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.messages - w.holds
}
