package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/audit"
)

const (
	writers       = 4
	keysPerWriter = 6
	maxEvents     = 8     // of a transaction
	meanEvents    = 4.5   // of a transaction
	peak          = 150.0 // events a second at noon
	trough        = 0.1   // of it at midnight
)

// event is the payload of a row. The numbers of a key are 1, 2, 3, ... in the order of commits.
type event struct {
	Key    string    `json:"key"`
	Number uint64    `json:"number"`
	At     time.Time `json:"at"` // before its transaction has committed
	Pad    string    `json:"pad,omitempty"`
}

// load commits events until it is ended, through whatever happens to the server.
type load struct {
	*servers
	tallies   []*audit.Tally // of each topic
	began     time.Time
	day       time.Duration
	stop      context.CancelFunc
	wg        sync.WaitGroup
	committed atomic.Int64 // events

	mu   sync.Mutex // guards what follows
	errs []error
}

func (s *servers) load(day time.Duration, tallies ...*audit.Tally) *load {
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{servers: s, tallies: tallies, began: time.Now(), day: day, stop: cancel}
	for i := range writers {
		w := &writer{load: l, index: i, rand: random(uint64(1 + i)), numbers: map[string]uint64{}}
		s.execute(fmt.Sprintf("INSERT INTO done VALUES (%d, 0)", i))
		l.wg.Go(func() { // ends with ctx, once it is known what became of the last transaction
			if err := w.run(ctx); err != nil {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.errs = append(l.errs, err)
			}
		})
	}
	s.t.Cleanup(func() { cancel(); l.wg.Wait() })
	return l
}

// rate is the daily curve, in events a second.
func rate(since, day time.Duration) float64 {
	hour := 2 * math.Pi * float64(since%day) / float64(day)
	return peak * (trough + (1-trough)*(1-math.Cos(hour))/2)
}

// end stops the writers.
func (l *load) end() {
	l.t.Helper()
	l.stop()
	l.wg.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	require.NoError(l.t, errors.Join(l.errs...))
}

// writer owns its keys, so that the numbers of a key are in the order of commits.
type writer struct {
	*load
	index       int
	rand        *rand.Rand
	conn        *pgx.Conn
	numbers     map[string]uint64 // last committed of each key
	transaction int64             // last that was tried
	rolledBack  uint64
}

func (w *writer) run(ctx context.Context) error {
	defer w.close()
	for ctx.Err() == nil {
		if w.conn == nil && !w.connect(ctx) {
			continue
		}
		next := map[string]uint64{}
		committed, err := w.commit(next)
		if err != nil {
			if !w.conn.IsClosed() {
				return err // no fault of the schedule: the statement is wrong
			}
			if committed, err = w.resolve(); err != nil {
				return err
			}
		}
		if committed {
			w.count(next)
		}
		pause := writers * meanEvents / rate(time.Since(w.began), w.day)
		wait(ctx, time.Duration(pause*float64(time.Second)))
	}
	return nil
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (w *writer) close() {
	if w.conn != nil {
		_ = w.conn.Close(context.Background())
	}
	w.conn = nil
}

// connect tries once. One session at a time has the lock: when it is granted, the session before
// has ended, and its transaction with it.
func (w *writer) connect(ctx context.Context) bool {
	timed, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(timed, w.dsn)
	if err == nil {
		if _, err = conn.Exec(timed, "SELECT pg_advisory_lock($1)", w.index); err == nil {
			w.conn = conn
			return true
		}
		_ = conn.Close(timed)
	}
	wait(ctx, 50*time.Millisecond)
	return false
}

const (
	insertEvents = `INSERT INTO outbox (aggregate_type, aggregate_id, payload)
		SELECT $1, p::jsonb ->> 'key', p::jsonb FROM unnest($2::text[]) WITH ORDINALITY AS e(p, n)
		ORDER BY n`
	updateDone = `UPDATE done SET transaction = $1 WHERE writer = $2`
)

// commit commits some events, with now and then a savepoint or the whole of it rolled back. It
// sets next to the last number of each key. An error with the connection closed leaves open
// whether it has committed.
func (w *writer) commit(next map[string]uint64) (committed bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	w.transaction++
	tx, err := w.conn.Begin(ctx)
	if err != nil {
		return false, err
	}
	switch w.rand.IntN(20) {
	case 0:
		sub, err := tx.Begin(ctx) // a savepoint
		if err == nil {
			err = w.insertPhantom(ctx, sub)
		}
		if err == nil {
			err = sub.Rollback(ctx)
		}
		if err != nil {
			return false, err
		}
	case 1:
		if err := w.insertPhantom(ctx, tx); err != nil {
			return false, err
		}
		return false, tx.Rollback(ctx)
	}
	events := make([]event, 1+w.rand.IntN(maxEvents))
	for i := range events {
		key := fmt.Sprintf("%d-%d", w.index, w.rand.IntN(keysPerWriter))
		next[key] = max(next[key], w.numbers[key]) + 1
		events[i] = event{Key: key, Number: next[key], Pad: strings.Repeat("x", w.rand.IntN(200))}
	}
	if err := w.insert(ctx, tx, events...); err != nil {
		return false, err
	}
	if _, err := tx.Exec(ctx, updateDone, w.transaction, w.index); err != nil {
		return false, err
	}
	return true, tx.Commit(ctx)
}

// insertPhantom inserts an event for a rollback: published, it would be a phantom.
func (w *writer) insertPhantom(ctx context.Context, tx pgx.Tx) error {
	w.rolledBack++
	return w.insert(ctx, tx, event{Key: fmt.Sprintf("%d-rolled-back", w.index), Number: w.rolledBack})
}

func (w *writer) insert(ctx context.Context, tx pgx.Tx, events ...event) error {
	payloads := make([]string, len(events))
	for i, e := range events {
		e.At = time.Now()
		document, err := json.Marshal(e)
		if err != nil {
			return err
		}
		payloads[i] = string(document)
	}
	_, err := tx.Exec(ctx, insertEvents, w.aggregate, payloads)
	return err
}

// resolve finds out what became of the transaction in which the connection was lost.
func (w *writer) resolve() (committed bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	for {
		w.close()
		for !w.connect(ctx) {
			if ctx.Err() != nil {
				return false, fmt.Errorf("find out what became of a transaction: %w", ctx.Err())
			}
		}
		var last int64
		err := w.conn.QueryRow(ctx, "SELECT transaction FROM done WHERE writer = $1", w.index).
			Scan(&last)
		if err == nil || !w.conn.IsClosed() {
			return last == w.transaction, err
		}
	}
}

// count reports the events of a transaction that has committed.
func (w *writer) count(next map[string]uint64) {
	for key, last := range next {
		for n := w.numbers[key] + 1; n <= last; n++ {
			for _, tally := range w.tallies {
				tally.Wrote(key, n)
			}
			w.committed.Add(1)
		}
		w.numbers[key] = last
	}
}
