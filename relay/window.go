package relay

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
)

// window has the transactions in flight, in WAL order. It alone advances the acked LSN. Only the
// pump calls begin, age, tryAdd, replace, commit and idle, and once it has ended drain calls age.
//
// A transaction is finished when it is committed, its messages are done, and it is not held. It is
// removed then, and the transaction before it covers its end. So memory grows with the messages in
// flight, not with the transactions delivered after an undelivered one.
//
// A partition without a leader must not stop the others. So messages that have waited for longer
// than stallAge are stalled: the limits of messages and bytes do not count them, as long as all of
// them take no more than limits.stalledBytes. Age is counted in generations: a message of the
// current or the previous one is not stalled.
type window struct {
	limits limits
	moved  chan struct{} // has a token after a message left or the acked LSN moved

	agedAt time.Time // when the generation began; only for the pump

	mu sync.Mutex // guards what follows
	// generation of the messages that are added now; the pump, which alone changes it, may read it
	// without mu
	generation uint32
	// root is the head of the list of unfinished transactions, oldest first. root.covered is the
	// acked LSN: it never decreases, and is less than the end of every transaction in the list.
	root    transaction
	open    *transaction   // the last in the list, between begin and commit; else nil
	byIndex []*transaction // indexed by the lower half of their number
	free    *transaction   // removed transactions to reuse, linked by next
	// After tryAdd messages - stalled.messages <= limits.messages and bytes - stalled.bytes <=
	// limits.bytes, unless the window was empty; nothing is subtracted once the stalled ones take
	// more than limits.stalledBytes. Beyond that a held transaction adds 1 message, and a dead letter
	// that is larger than the message it replaces adds the difference in bytes.
	inWindow
	holds   int      // held transactions, which messages includes
	current inWindow // of the current generation; stalled has those before the previous one
	stalled inWindow
	// repeatable is how many messages a crash can repeat: those of all unfinished transactions, and
	// of those delivered behind them.
	repeatable int
}

// inWindow counts messages and their bytes.
type inWindow struct {
	messages int
	bytes    int64
}

func (c *inWindow) add(messages int, bytes int64) {
	c.messages += messages
	c.bytes += bytes
}

// limits are those of a window.
type limits struct {
	messages int   // not acknowledged and not stalled
	bytes    int64 // of these
	// of stalled messages, with stalledOverhead for each; 0: none is stalled
	stalledBytes int64
	// messages of closed transactions that a crash can repeat
	repeatable int
}

const (
	// stallAge is the minimum age of a generation. It is long for a broker, which acknowledges within
	// milliseconds, and short enough that a third of 30,000 messages a second fits into the default
	// limit until they are stalled.
	stallAge = 250 * time.Millisecond
	// stalledOverhead is what a message in flight takes besides its bytes: 256 for the Message, 200
	// for the record of the sink, and 80 in both for each header, of which there are up to seven.
	stalledOverhead = 1 << 10
)

type transaction struct {
	number     uint64        // lower half: index in byIndex; upper half: times it was reused
	end        pglogrepl.LSN // zero while open
	commitTime time.Time
	pending    int  // messages added and not done, >= 0
	repeatable int  // messages added, and those of the finished transactions that directly follow
	held       bool // consumers do not see its messages yet
	// end of the last finished transaction or idle position that directly follows this one; else end
	covered    pglogrepl.LSN
	prev, next *transaction
}

func newWindow(seed pglogrepl.LSN, l limits) *window {
	w := &window{limits: l, moved: make(chan struct{}, 1)}
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

// age begins a generation, if the current one has lasted long enough.
func (w *window) age(now time.Time) {
	if w.limits.stalledBytes == 0 || now.Sub(w.agedAt) < stallAge {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stalled.messages = w.messages - w.holds - w.current.messages
	w.stalled.bytes = w.bytes - w.current.bytes
	w.current = inWindow{}
	w.generation++
	w.agedAt = now
	w.signalLocked()
}

// tryAdd adds a message to the open transaction, in the current generation. It returns false if
// there is no room.
func (w *window) tryAdd(bytes int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open == nil {
		panic("relay: message outside of a transaction")
	}
	if w.messages > 0 && w.fullLocked(int64(bytes)) {
		return false
	}
	w.add(1, int64(bytes))
	w.current.add(1, int64(bytes))
	w.open.pending++
	w.open.repeatable++
	w.repeatable++
	return true
}

// fullLocked reports whether there is no room for so many bytes more.
func (w *window) fullLocked(bytes int64) bool {
	moving := inWindow{w.messages, w.bytes}
	if overhead := int64(w.stalled.messages) * stalledOverhead; w.stalled.messages > 0 &&
		w.stalled.bytes+overhead <= w.limits.stalledBytes {
		moving.add(-w.stalled.messages, -w.stalled.bytes)
	}
	// the open transaction is repeated as a whole, however many of its messages are added
	behind := w.repeatable - w.open.repeatable
	return moving.messages >= w.limits.messages || moving.bytes+bytes > w.limits.bytes ||
		behind >= w.limits.repeatable
}

// replace changes the size of a message of a generation in the window.
func (w *window) replace(before, after int, generation uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changeLocked(0, int64(after-before), generation)
}

// changeLocked changes the counts by those of messages of a generation.
func (w *window) changeLocked(messages int, bytes int64, generation uint32) {
	w.add(messages, bytes)
	switch w.generation - generation {
	case 0:
		w.current.add(messages, bytes)
	case 1: // is in neither count
	default:
		w.stalled.add(messages, bytes)
	}
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
	if t.held = hold && t.repeatable > 0; t.held {
		w.messages++ // in no generation
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

// done removes a delivered message of a generation. It is called once for each message added.
func (w *window) done(number uint64, bytes int, generation uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.byIndex[uint32(number)] //nolint:gosec // the lower half
	if t.number != number || t.pending == 0 || w.bytes < int64(bytes) {
		panic("relay: a message was reported done twice")
	}
	t.pending--
	w.changeLocked(-1, -int64(bytes), generation)
	w.finishLocked(t)
	w.signalLocked()
}

// finishLocked removes a transaction if it is finished.
func (w *window) finishLocked(t *transaction) {
	if t.end == 0 || t.pending > 0 || t.held {
		return
	}
	w.coverLocked(t.prev, t.covered)
	if t.prev == &w.root {
		w.repeatable -= t.repeatable
	} else {
		t.prev.repeatable += t.repeatable
	}
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
