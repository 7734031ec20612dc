package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

const (
	writers       = 4
	keysPerWriter = 6
	maxEvents     = 8 // of a transaction
)

// load commits events at a steady rate until it is ended, through whatever happens to the server.
type load struct {
	rig       *rig
	name      string
	stop      context.CancelFunc
	wg        sync.WaitGroup
	committed atomic.Int64 // events
	mu        sync.Mutex
	errs      []error
}

// load starts writers that commit perSecond transactions together.
func (r *rig) load(t testing.TB, perSecond int) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r.loads++
	l := &load{rig: r, name: fmt.Sprintf("l%d", r.loads), stop: cancel}
	for i := range writers {
		w := &writer{load: l, index: i, rand: random(t, uint64(writers*r.loads+i)), numbers: map[string]uint64{}}
		l.wg.Go(func() { w.run(ctx, time.Second*writers/time.Duration(perSecond)) })
	}
	t.Cleanup(func() { cancel(); l.wg.Wait() })
	return l
}

// more waits until n more events are committed.
func (l *load) more(t testing.TB, n int64) {
	t.Helper()
	goal := l.committed.Load() + n
	eventually(t, 60*time.Second, fmt.Sprintf("%d more events committed", n), func() bool { return l.committed.Load() >= goal })
}

// end stops the writers and waits until each knows what became of its last transaction.
func (l *load) end(t testing.TB) {
	t.Helper()
	l.stop()
	l.wg.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	require.Empty(t, l.errs)
}

func (l *load) failed(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errs = append(l.errs, err)
}

// writer owns its keys, so that the numbers of a key are in commit order.
type writer struct {
	load       *load
	index      int
	rand       *rand.Rand
	conn       *pgx.Conn
	numbers    map[string]uint64 // last committed of each key
	rolledBack uint64
}

func (w *writer) key(n int) string { return fmt.Sprintf("%s-%d-%d", w.load.name, w.index, n) }

// run goes on with its last transaction after ctx has ended, until it is known whether that was committed.
func (w *writer) run(ctx context.Context, every time.Duration) {
	background := context.Background()
	defer func() {
		if w.conn != nil {
			_ = w.conn.Close(background)
		}
	}()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for ctx.Err() == nil {
		if w.conn == nil && !w.connect(ctx) {
			continue
		}
		if err := w.transaction(background); err != nil {
			if !w.conn.IsClosed() {
				w.load.failed(err) // not a fault of ours: the statement is wrong
				return
			}
			w.conn = nil
			if err := w.resolve(background); err != nil {
				w.load.failed(err)
				return
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// connect tries once. The session-level lock is held by one session at a time: who has it knows that the one before it has ended.
func (w *writer) connect(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, w.load.rig.dsn)
	if err == nil {
		if _, err = conn.Exec(ctx, "SELECT pg_advisory_lock($1)", w.index+100*w.load.rig.loads); err == nil {
			w.conn = conn
			return true
		}
		_ = conn.Close(ctx)
	}
	pause := time.NewTimer(50 * time.Millisecond)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done():
	}
	return false
}

const insertEvents = `INSERT INTO outbox (aggregate_type, aggregate_id, payload, number)
	SELECT $1, k, p::jsonb, n FROM unnest($2::text[], $3::bigint[], $4::text[]) AS e(k, n, p)`

// transaction commits some events, with now and then a savepoint or the whole of it rolled back. An error with the
// connection closed leaves open whether it was committed.
func (w *writer) transaction(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tx, err := w.conn.Begin(ctx)
	if err != nil {
		return err
	}
	undo := w.rand.IntN(20)
	if undo <= 1 { // published, they would be phantoms
		if undo == 0 {
			_, err = tx.Exec(ctx, "SAVEPOINT s")
		}
		if err == nil {
			w.rolledBack++
			err = w.insert(ctx, tx, []event{{Key: w.key(0) + "-rolled-back", Number: w.rolledBack}})
		}
		if err == nil && undo == 0 {
			_, err = tx.Exec(ctx, "ROLLBACK TO SAVEPOINT s")
		}
		if err != nil {
			return err
		}
		if undo == 1 {
			return tx.Rollback(ctx)
		}
	}
	events := make([]event, 1+w.rand.IntN(maxEvents))
	next := map[string]uint64{}
	for i := range events {
		key := w.key(w.rand.IntN(keysPerWriter))
		next[key] = max(next[key], w.numbers[key]) + 1
		events[i] = event{Key: key, Number: next[key], Pad: strings.Repeat("x", w.rand.IntN(300))}
	}
	if err := w.insert(ctx, tx, events); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	for key, number := range next {
		w.wrote(key, number)
	}
	return nil
}

func (w *writer) insert(ctx context.Context, tx pgx.Tx, events []event) error {
	keys, numbers, payloads := make([]string, len(events)), make([]int64, len(events)), make([]string, len(events))
	for i, e := range events {
		document, err := json.Marshal(e)
		if err != nil {
			return err
		}
		keys[i], numbers[i], payloads[i] = e.Key, int64(e.Number), string(document)
	}
	_, err := tx.Exec(ctx, insertEvents, w.load.rig.topic, keys, numbers, payloads)
	return err
}

// wrote reports the events of a key up to number.
func (w *writer) wrote(key string, number uint64) {
	for n := w.numbers[key] + 1; n <= number; n++ {
		w.load.rig.tally.Wrote(key, n)
		w.load.committed.Add(1)
	}
	w.numbers[key] = max(w.numbers[key], number)
}

// resolve finds out what became of the transaction that the connection was lost in: it reads the table, once the session is gone.
func (w *writer) resolve(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	for !w.connect(ctx) {
		if ctx.Err() != nil {
			return fmt.Errorf("find out what became of a transaction: %w", ctx.Err())
		}
	}
	for n := range keysPerWriter {
		var number int64
		if err := w.conn.QueryRow(ctx, "SELECT coalesce(max(number), 0) FROM outbox WHERE aggregate_id = $1", w.key(n)).Scan(&number); err != nil {
			if w.conn.IsClosed() {
				w.conn = nil
				return w.resolve(ctx)
			}
			return err
		}
		w.wrote(w.key(n), uint64(number))
	}
	return nil
}
