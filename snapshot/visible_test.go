package snapshot

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/sink"
	"postrider/test/parts"
)

// busy begins a transaction that has an xid and is in the middle of a statement until end is called, or the test
// ends: nobody can tell it from one that is committing.
func (x *place) busy(sql string) (end func()) {
	x.t.Helper()
	ctx, dsn := x.t.Context(), x.conn.Config().ConnString()
	gate, conn := parts.Connect(x.t, dsn), parts.Connect(x.t, dsn)
	pid := conn.PgConn().PID()
	_, err := gate.Exec(ctx, `SELECT pg_advisory_lock($1)`, pid)
	require.NoError(x.t, err)
	_, err = conn.Exec(ctx, `SET synchronous_commit = local; BEGIN; `+sql)
	require.NoError(x.t, err)
	done := make(chan error, 1)
	go func() { // ends with end, or with the test
		_, err := conn.Exec(ctx, `SELECT pg_advisory_lock($1)`, pid)
		done <- err
		close(done)
	}()
	x.t.Cleanup(func() { <-done }) // before the connection is closed
	x.await(`SELECT wait_event IS NOT DISTINCT FROM 'advisory' FROM pg_stat_activity WHERE pid = $1`, pid)
	return func() {
		x.t.Helper()
		_, err := gate.Exec(ctx, `SELECT pg_advisory_unlock($1)`, pid)
		require.NoError(x.t, err)
		require.NoError(x.t, <-done)
		_, err = conn.Exec(ctx, `COMMIT`)
		require.NoError(x.t, err)
	}
}

// await asks until the answer is true.
func (x *place) await(sql string, args ...any) {
	x.t.Helper()
	require.Eventually(x.t, func() bool {
		var yes bool
		require.NoError(x.t, x.conn.QueryRow(x.t.Context(), sql, args...).Scan(&yes))
		return yes
	}, patience, time.Millisecond)
}

// cut has a Copy made and ended before anything is published.
func (x *place) cut() {
	x.t.Helper()
	x.broker.Refuse(nil, func(*sink.Message) error { return errCut })
	require.ErrorIs(x.t, x.run(x.begun(), context.Background()), errCut)
	x.broker.Refuse(nil, nil)
}

// resumes runs a Copy until it waits for what it cannot see.
func (x *place) resumes(stop context.Context) (ended <-chan error) {
	x.t.Helper()
	c, result := x.begun(), make(chan error, 1)
	pid := c.conn.PgConn().PID()
	go func() { result <- x.run(c, stop) }() // ends with stop, or when it can see all
	x.await(`SELECT query LIKE '%pg_prepared_xacts%' FROM pg_stat_activity WHERE pid = $1`, pid)
	return result
}

// A record of an earlier version, or of a process that died as it made the slot, does not say which transactions
// were there at the boundary. Those that are there now are waited for, at every attempt the same.
func TestCopy_GoesOnBesideLaterTransactions(t *testing.T) {
	x := newPlace(t)
	x.insert(1, 5)
	x.store.save = func(r *Record) error {
		if r.Phase == Copying {
			return errCut
		}
		return nil
	}
	_, err := x.begin()
	require.ErrorIs(t, err, errCut)
	x.store.save = nil
	require.Zero(t, x.store.record().Xmax)

	end := x.busy(`SELECT pg_current_xact_id()`)
	stop, cancel := context.WithCancel(t.Context())
	ended := x.resumes(stop)
	x.busy(`SELECT pg_current_xact_id()`)
	cancel()
	require.NoError(t, <-ended)
	require.Empty(t, x.published())
	require.NotZero(t, x.store.record().Xmax)
	end()
	require.NoError(t, x.run(x.begun(), context.Background()), "while the later one is open")
	require.Equal(t, numbers(1, 5), x.published())
}
