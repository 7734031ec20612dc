package relay

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var anyTime = time.Unix(1_700_000_000, 0)

// upTo returns limits of messages and bytes, and none else.
func upTo(messages int, bytes int64) limits {
	return limits{messages: messages, bytes: bytes, repeatable: 1 << 30}
}

// unfinished counts the transactions that the window remembers.
func unfinished(w *window) (n int) {
	for t := w.root.next; t != &w.root; t = t.next {
		n++
	}
	return n
}

func TestWindow_AdvancesToTheEndOfADeliveredTransaction(t *testing.T) {
	w := newWindow(100, upTo(10, 1000))
	tx := w.begin(anyTime)
	require.True(t, w.tryAdd(5))
	w.commit(200, false)
	require.Equal(t, pglogrepl.LSN(100), w.ackedLSN())
	w.done(tx, 5, 0)
	require.Equal(t, pglogrepl.LSN(200), w.ackedLSN())
}

func TestWindow_DoesNotPassOpenTransaction(t *testing.T) {
	w := newWindow(100, upTo(10, 1000))
	tx := w.begin(anyTime)
	require.True(t, w.tryAdd(5))
	w.done(tx, 5, 0) // delivered before its commit was read
	require.Equal(t, pglogrepl.LSN(100), w.ackedLSN())
	w.commit(200, false)
	require.Equal(t, pglogrepl.LSN(200), w.ackedLSN())
}

func TestWindow_DoesNotPassAnOlderPendingTransaction(t *testing.T) {
	w := newWindow(100, upTo(10, 1000))
	first := w.begin(anyTime)
	require.True(t, w.tryAdd(1))
	w.commit(200, false)
	second := w.begin(anyTime)
	require.True(t, w.tryAdd(1))
	w.commit(300, false)
	w.idle(400)
	w.done(second, 1, 0)
	require.Equal(t, pglogrepl.LSN(100), w.ackedLSN())
	w.done(first, 1, 0)
	require.Equal(t, pglogrepl.LSN(400), w.ackedLSN())
}

func TestWindow_IdlePositionsBehindAStallTakeNoPlace(t *testing.T) {
	w := newWindow(100, upTo(10, 1000))
	tx := w.begin(anyTime)
	require.True(t, w.tryAdd(1))
	w.commit(200, false)
	for lsn := pglogrepl.LSN(201); lsn < 5000; lsn++ {
		w.idle(lsn)
	}
	require.Equal(t, 1, unfinished(w))
	w.done(tx, 1, 0)
	require.Equal(t, pglogrepl.LSN(4999), w.ackedLSN())
}

func TestWindow_EmptyTransactionsBehindAStallTakeNoPlace(t *testing.T) {
	w := newWindow(100, upTo(10, 1000))
	tx := w.begin(anyTime)
	require.True(t, w.tryAdd(1))
	w.commit(200, true)
	for lsn := pglogrepl.LSN(300); lsn < 5000; lsn += 10 {
		w.begin(anyTime)
		w.commit(lsn, false)
		w.idle(lsn + 5)
	}
	require.Equal(t, 1, unfinished(w))
	w.done(tx, 1, 0)
	require.Equal(t, pglogrepl.LSN(100), w.ackedLSN())
	w.visible(200, func(time.Time) {})
	require.Equal(t, pglogrepl.LSN(4995), w.ackedLSN())
	require.Zero(t, unfinished(w))
}

func TestWindow_DeliveredTransactionsBehindAStuckOneTakeNoMemory(t *testing.T) {
	w := newWindow(100, upTo(10, 1000))
	var stuck []uint64
	var delivered uint64
	end := pglogrepl.LSN(100)
	for i := range 300_000 {
		tx := w.begin(anyTime)
		require.True(t, w.tryAdd(1))
		end += 10
		w.commit(end, false)
		if i%100_000 == 5 {
			stuck = append(stuck, tx)
			continue
		}
		w.done(tx, 1, 0)
		delivered = tx
	}
	require.Equal(t, len(stuck), unfinished(w))
	require.Len(t, w.byIndex, len(stuck)+1, "the transactions that were delivered")
	require.Panics(t, func() { w.done(delivered, 1, 0) }, "a second time")
	_, _, oldest := w.inFlight()
	require.Equal(t, anyTime, oldest)

	require.Equal(t, pglogrepl.LSN(100+5*10), w.ackedLSN())
	w.done(stuck[1], 1, 0)
	require.Equal(t, pglogrepl.LSN(100+5*10), w.ackedLSN())
	w.done(stuck[0], 1, 0)
	require.Equal(t, pglogrepl.LSN(100+200_005*10), w.ackedLSN())
	w.done(stuck[2], 1, 0)
	require.Equal(t, end, w.ackedLSN())
	require.Zero(t, unfinished(w))
}

func TestWindow_IdlePositionBelowTheSeedChangesNothing(t *testing.T) {
	w := newWindow(100, upTo(10, 1000))
	w.idle(50)
	require.Equal(t, pglogrepl.LSN(100), w.ackedLSN())
}

func TestWindow_AdmitsAnyOneMessageWhenEmpty(t *testing.T) {
	w := newWindow(0, upTo(10, 100))
	tx := w.begin(anyTime)
	require.True(t, w.tryAdd(5000))
	require.False(t, w.tryAdd(1), "over the limit of bytes")
	w.done(tx, 5000, 0)
	require.True(t, w.tryAdd(1))
}

func TestWindow_BoundsMessages(t *testing.T) {
	w := newWindow(0, upTo(2, 1000))
	w.begin(anyTime)
	require.True(t, w.tryAdd(0))
	require.True(t, w.tryAdd(0))
	require.False(t, w.tryAdd(0))
}

func TestWindow_MisuseOfOurOwnPanics(t *testing.T) {
	w := newWindow(0, upTo(2, 1000))
	require.Panics(t, func() { w.commit(1, false) }, "commit without begin")
	require.Panics(t, func() { w.tryAdd(1) }, "message without begin")
	tx := w.begin(anyTime)
	require.Panics(t, func() { w.begin(anyTime) })
	require.Panics(t, func() { w.idle(5) })
	require.True(t, w.tryAdd(1))
	w.done(tx, 1, 0)
	require.Panics(t, func() { w.done(tx, 1, 0) })
	w.commit(1, false)
	next := w.begin(anyTime)
	require.True(t, w.tryAdd(1))
	require.Panics(t, func() { w.done(tx, 1, 0) }, "a message of another transaction is in its place")
	w.done(next, 1, 0)
}

func TestWindow_WaitMovedEndsWithItsContext(t *testing.T) {
	w := newWindow(0, upTo(2, 1000))
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(ErrSecondSignal)
	for range 2 {
		if err := w.waitMoved(ctx); err != nil {
			require.ErrorIs(t, err, ErrSecondSignal)
		}
	}
}

// naive is the same promise written without a thought for speed: every transaction ever, looked through from the start.
type naive struct {
	seed pglogrepl.LSN
	txs  []naiveTx

	generation uint32
	replaced   int64 // bytes that replace has added
}

type naiveTx struct {
	end     pglogrepl.LSN
	pending []naiveMessage
	added   int // messages
	held    bool
}

type naiveMessage struct {
	size       int
	generation uint32
}

func (t naiveTx) finished() bool { return t.end != 0 && len(t.pending) == 0 && !t.held }

func (n *naive) acked() pglogrepl.LSN {
	acked := n.seed
	for _, t := range n.txs {
		if !t.finished() {
			break
		}
		acked = max(acked, t.end)
	}
	return acked
}

func (n *naive) load() (messages int, bytes int64) {
	for _, t := range n.txs {
		messages += len(t.pending)
		if t.held {
			messages++
		}
		for _, m := range t.pending {
			bytes += int64(m.size)
		}
	}
	return messages, bytes
}

// stalled counts the messages of before the last generation.
func (n *naive) stalled() (c inWindow) {
	for _, t := range n.txs {
		for _, m := range t.pending {
			if m.generation+1 < n.generation {
				c.add(1, int64(m.size))
			}
		}
	}
	return c
}

// repeatable counts the messages from the first unfinished transaction on, without those of the open one.
func (n *naive) repeatable() (messages int) {
	counts := false
	for _, t := range n.txs {
		counts = counts || !t.finished()
		if counts && t.end != 0 {
			messages += t.added
		}
	}
	return messages
}

// fits tells whether a message of so many bytes may be added.
func (n *naive) fits(l limits, size int) bool {
	messages, bytes := n.load()
	if messages == 0 {
		return true
	}
	if s := n.stalled(); s.bytes+int64(s.messages)*stalledOverhead <= l.stalledBytes {
		messages, bytes = messages-s.messages, bytes-s.bytes
	}
	return messages < l.messages && bytes+int64(size) <= l.bytes && n.repeatable() < l.repeatable
}

func TestWindow_AgreesWithANaiveModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const maxMessages, maxBytes, maxStalled = 6, 40, 4
		l := limits{messages: maxMessages, bytes: maxBytes, repeatable: rapid.IntRange(1, 20).Draw(t, "repeatable")}
		if rapid.Bool().Draw(t, "with stalled messages") {
			l.stalledBytes = maxStalled * stalledOverhead
		}
		seed := pglogrepl.LSN(rapid.IntRange(1, 50).Draw(t, "seed"))
		w := newWindow(seed, l)
		model := &naive{seed: seed}
		numbers := map[int]uint64{} // index in the model -> number in the window
		lsn := seed
		open, now := false, anyTime
		before := w.ackedLSN()
		t.Repeat(map[string]func(*rapid.T){
			"begin": func(t *rapid.T) {
				if open {
					t.Skip()
				}
				open = true
				numbers[len(model.txs)] = w.begin(anyTime)
				model.txs = append(model.txs, naiveTx{})
			},
			"add": func(t *rapid.T) {
				if !open {
					t.Skip()
				}
				size := rapid.IntRange(0, 60).Draw(t, "size")
				messages, bytes := model.load()
				fits := model.fits(l, size)
				if got := w.tryAdd(size); got != fits {
					t.Fatalf("tryAdd(%d) = %v with %d messages of %d bytes", size, got, messages, bytes)
				}
				if fits {
					tx := &model.txs[len(model.txs)-1]
					tx.pending = append(tx.pending, naiveMessage{size, model.generation})
					tx.added++
				}
			},
			"age": func(t *rapid.T) {
				now = now.Add(stallAge)
				w.age(now)
				if l.stalledBytes > 0 {
					model.generation++
				}
			},
			"commit": func(t *rapid.T) {
				if !open {
					t.Skip()
				}
				open = false
				lsn += pglogrepl.LSN(rapid.IntRange(1, 20).Draw(t, "advance"))
				tx := &model.txs[len(model.txs)-1]
				hold := rapid.Bool().Draw(t, "hold")
				tx.end, tx.held = lsn, hold && tx.added > 0
				w.commit(lsn, hold)
			},
			"replace": func(t *rapid.T) {
				if len(model.txs) == 0 || len(model.txs[len(model.txs)-1].pending) == 0 {
					t.Skip()
				}
				m := &model.txs[len(model.txs)-1].pending[0]
				more := rapid.IntRange(0, 10).Draw(t, "larger by")
				w.replace(m.size, m.size+more, m.generation)
				m.size += more
				model.replaced += int64(more)
			},
			"visible": func(t *rapid.T) {
				end := seed + pglogrepl.LSN(rapid.IntRange(0, int(lsn-seed)).Draw(t, "visible up to"))
				want, got := 0, 0
				for i := range model.txs {
					if tx := &model.txs[i]; tx.held && tx.end <= end {
						tx.held = false
						want++
					}
				}
				w.visible(end, func(time.Time) { got++ })
				if got != want {
					t.Fatalf("%d transactions became visible, in the model %d", got, want)
				}
			},
			"idle": func(t *rapid.T) {
				if open {
					t.Skip()
				}
				lsn += pglogrepl.LSN(rapid.IntRange(0, 20).Draw(t, "advance"))
				w.idle(lsn)
				model.txs = append(model.txs, naiveTx{end: lsn})
			},
			"done": func(t *rapid.T) {
				var pending []int
				for i, tx := range model.txs {
					if len(tx.pending) > 0 {
						pending = append(pending, i)
					}
				}
				if len(pending) == 0 {
					t.Skip()
				}
				i := rapid.SampledFrom(pending).Draw(t, "transaction")
				tx := &model.txs[i]
				k := rapid.IntRange(0, len(tx.pending)-1).Draw(t, "message")
				m := tx.pending[k]
				tx.pending = append(tx.pending[:k:k], tx.pending[k+1:]...)
				w.done(numbers[i], m.size, m.generation)
			},
			"": func(t *rapid.T) {
				acked := w.ackedLSN()
				if want := model.acked(); acked != want {
					t.Fatalf("acked %s, in the model %s", acked, want)
				}
				if acked < before {
					t.Fatalf("acked went back from %s to %s", before, acked)
				}
				before = acked
				messages, bytes, _ := w.inFlight()
				if wantMessages, wantBytes := model.load(); messages != wantMessages || bytes != wantBytes {
					t.Fatalf("in flight %d messages of %d bytes, in the model %d of %d", messages, bytes, wantMessages, wantBytes)
				}
				stalled := model.stalled()
				if l.stalledBytes == 0 && (stalled.messages > 0 || messages > maxMessages+1 || w.unacknowledged() > maxMessages) ||
					w.unacknowledged()-stalled.messages > maxMessages || bytes-stalled.bytes > maxBytes+model.replaced && w.unacknowledged() > 1 {
					t.Fatalf("in flight %d messages, of which %d are not acknowledged, of %d bytes", messages, w.unacknowledged(), bytes)
				}
			},
		})
	})
}

// addOne commits a transaction of one message.
func addOne(t *testing.T, w *window, end pglogrepl.LSN) (number uint64, generation uint32) {
	t.Helper()
	number = w.begin(anyTime)
	require.True(t, w.tryAdd(1))
	generation = w.generation
	w.commit(end, false)
	return number, generation
}

func isFull(w *window) bool {
	w.begin(anyTime)
	full := !w.tryAdd(1)
	return full
}

func TestWindow_MessagesThatWaitForTheirPartitionLeaveRoomForOthers(t *testing.T) {
	w := newWindow(100, limits{messages: 2, bytes: 1000, stalledBytes: 3 * (stalledOverhead + 1), repeatable: 100})
	now := anyTime
	w.age(now)
	stuck, generation := addOne(t, w, 200)
	next := pglogrepl.LSN(300)
	for range 3 { // the other partition goes on, a second later each time
		now = now.Add(stallAge)
		number, in := addOne(t, w, next)
		w.done(number, 1, in)
		next += 100
		w.age(now)
	}
	addOne(t, w, next)
	addOne(t, w, next+100) // two besides the stalled one
	require.True(t, isFull(w))
	w.done(stuck, 1, generation)
	require.Equal(t, next-100, w.ackedLSN())
}

// A large transaction to such a partition fills the window, and nothing else is in it that could be acknowledged.
func TestWindow_ABurstToAPartitionThatWaitsLeavesRoomForOthers(t *testing.T) {
	w := newWindow(100, limits{messages: 5, bytes: 1000, stalledBytes: 1 << 20, repeatable: 100})
	now := anyTime
	w.age(now)
	w.begin(anyTime)
	for range 5 {
		require.True(t, w.tryAdd(1))
	}
	require.False(t, w.tryAdd(1))
	for range 2 {
		now = now.Add(stallAge)
		w.age(now)
	}
	require.True(t, w.tryAdd(1))
}

func TestWindow_StalledMessagesHaveALimitOfMemory(t *testing.T) {
	w := newWindow(100, limits{messages: 3, bytes: 1000, stalledBytes: 3 * (stalledOverhead + 1), repeatable: 100})
	now, end := anyTime, pglogrepl.LSN(200)
	w.age(now)
	for range 4 { // one that waits, and one that is delivered, in each generation
		addOne(t, w, end)
		number, generation := addOne(t, w, end+100)
		w.done(number, 1, generation)
		now, end = now.Add(stallAge), end+200
		w.age(now)
	}
	require.Equal(t, 3, w.stalled.messages)
	addOne(t, w, end)
	addOne(t, w, end+100)
	require.True(t, isFull(w), "three are stalled and three are not")
	w.commit(end+200, false)
	for range 2 {
		now = now.Add(stallAge)
		w.age(now)
	}
	require.True(t, isFull(w), "six are stalled, which is more than the limit")
}

func TestWindow_BoundsWhatACrashRepeats(t *testing.T) {
	w := newWindow(100, limits{messages: 10, bytes: 1000, repeatable: 5})
	stuck, generation := addOne(t, w, 200)
	for end := pglogrepl.LSN(300); end < 700; end += 100 { // four are delivered behind it
		number, in := addOne(t, w, end)
		w.done(number, 1, in)
	}
	require.True(t, isFull(w))
	w.done(stuck, 1, generation)
	require.True(t, w.tryAdd(1))
	require.Zero(t, w.repeatable-w.open.repeatable)
	for range 9 { // those of the open transaction do not count
		require.True(t, w.tryAdd(1))
	}
}

func TestWindow_HoldsNothingThatHadNoMessage(t *testing.T) {
	w := newWindow(100, upTo(10, 1000))
	for lsn := pglogrepl.LSN(200); lsn < 5000; lsn++ {
		w.begin(anyTime)
		w.commit(lsn, true)
		require.Equal(t, lsn, w.ackedLSN())
	}
	require.Zero(t, unfinished(w))
	messages, _, _ := w.inFlight()
	require.Zero(t, messages)
}

// A dead letter can be larger than the row in whose place it is.
func TestWindow_ALargerMessageInPlaceOfAnotherKeepsOthersOut(t *testing.T) {
	w := newWindow(100, upTo(10, 1000))
	tx := w.begin(anyTime)
	require.True(t, w.tryAdd(900))
	require.True(t, w.tryAdd(90))
	w.replace(90, 300, 0)
	_, bytes, _ := w.inFlight()
	require.Equal(t, int64(1200), bytes)
	require.False(t, w.tryAdd(1))
	w.done(tx, 300, 0)
	require.True(t, w.tryAdd(1))
}

func TestWindow_HeldTransactionWaitsUntilItIsVisible(t *testing.T) {
	w := newWindow(100, upTo(2, 1000))
	var seen []time.Time
	see := func(at time.Time) { seen = append(seen, at) }
	first := w.begin(anyTime)
	require.True(t, w.tryAdd(10))
	w.done(first, 10, 0)
	w.commit(200, true)
	require.Equal(t, pglogrepl.LSN(100), w.ackedLSN(), "written is not visible")
	w.idle(250)
	require.Equal(t, pglogrepl.LSN(100), w.ackedLSN())
	second := w.begin(anyTime)
	require.True(t, w.tryAdd(10))
	require.False(t, w.tryAdd(10), "a held transaction takes the place of a message")
	require.Equal(t, 1, w.unacknowledged())

	w.visible(199, see)
	require.Equal(t, pglogrepl.LSN(100), w.ackedLSN())
	w.visible(200, see)
	require.Equal(t, pglogrepl.LSN(250), w.ackedLSN())
	require.Len(t, seen, 1)
	w.commit(300, true)
	w.visible(300, see)
	require.Equal(t, pglogrepl.LSN(250), w.ackedLSN(), "visible is not written: the sink has reported it too early")
	w.done(second, 10, 0)
	require.Equal(t, pglogrepl.LSN(300), w.ackedLSN())
	require.Len(t, seen, 2)
	messages, bytes, _ := w.inFlight()
	require.Zero(t, messages)
	require.Zero(t, bytes)
}

// through takes transactions through the window.
func through(w *window, transactions, rows int) {
	for range transactions {
		tx := w.begin(anyTime)
		for range rows {
			w.tryAdd(300)
		}
		w.commit(w.ackedLSN()+100, false)
		for range rows {
			w.done(tx, 300, 0)
		}
	}
}

func TestWindow_AllocatesNothingPerRow(t *testing.T) {
	w := newWindow(1, upTo(1<<20, 1<<40))
	require.Zero(t, testing.AllocsPerRun(1000, func() { through(w, 10, 1); through(w, 1, 10) }))
}

func BenchmarkWindow_OneRowTransactions(b *testing.B) {
	w := newWindow(0, upTo(1<<20, 1<<40))
	b.ReportAllocs()
	lsn := pglogrepl.LSN(1)
	for b.Loop() {
		tx := w.begin(anyTime)
		w.tryAdd(300)
		lsn += 100
		w.commit(lsn, false)
		w.done(tx, 300, 0)
	}
}

// One operation is one row.
func BenchmarkWindow_TenRowTransactions(b *testing.B) {
	w := newWindow(1, upTo(1<<20, 1<<40))
	b.ReportAllocs()
	through(w, b.N/10, 10)
}
