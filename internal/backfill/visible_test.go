package backfill

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/test/parts"
)

func (x *snapshotPlace) busy(sql string) (end func()) {
	x.t.Helper()
	_, end = parts.Busy(x.t, x.conn.Config().ConnString(), `SET synchronous_commit = local; BEGIN; `+sql)
	return end
}

// await asks until the answer is true.
func (x *snapshotPlace) await(sql string, args ...any) {
	x.t.Helper()
	require.Eventually(x.t, func() bool {
		var yes bool
		require.NoError(x.t, x.conn.QueryRow(x.t.Context(), sql, args...).Scan(&yes))
		return yes
	}, patience, time.Millisecond)
}

// resumes runs a Copy until it waits for what it cannot see.
func (x *snapshotPlace) resumes(stop context.Context) (ended <-chan error) {
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
	x := newSnapshotPlace(t)
	x.insert(1, 5)
	x.store.save = func(r *record) error {
		if r.Phase == phaseCopying {
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

// One transaction has committed before the boundary and waits for a synchronous standby: the slot does not send its
// row, so that a Copy which goes on waits for it. Another one was running at the boundary: the slot sends it, and it
// may be the relay for which it waits.
func TestCopy_GoesOnOnceAllBeforeTheBoundaryIsVisible(t *testing.T) {
	pg := parts.ExclusivePostgres(t, embedded.PostgresConfig{Params: map[string]string{"synchronous_standby_names": "absent"}})
	x := snapshotPlaceIn(t, withoutStandby(pg.DSN()))
	ctx := t.Context()
	waits := `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted AND transactionid::text = $1)`
	first, firstXID := x.transaction()
	type begun struct {
		c   *Copy
		err error
	}
	begins := make(chan begun, 1)
	go func() { // ends when the two transactions have ended
		c, err := x.begin()
		begins <- begun{c, err}
	}()
	x.await(waits, firstXID)
	second, secondXID := x.transaction()
	first()
	x.await(waits, secondXID) // the slot is consistent when this one has ended
	end := x.busy(`INSERT INTO outbox VALUES (2, 'Order', 'k', '2')`)
	conn := parts.Connect(t, x.conn.Config().ConnString())
	committed := make(chan error, 1)
	go func() { // ends when it is cancelled, or the server ends
		_, err := conn.Exec(context.WithoutCancel(ctx), `SET synchronous_commit = on; INSERT INTO outbox VALUES (1, 'Order', 'k', '1')`)
		committed <- err
	}()
	x.await(`SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep')`)
	second()
	got := <-begins
	require.NoError(t, got.err)
	require.Len(t, x.store.record().Running, 1)
	x.busy(`SELECT pg_current_xact_id()`) // comes by the slot, too
	x.broker.Refuse(nil, func(*sink.Message) error { return errCut })
	require.ErrorIs(t, x.run(got.c, context.Background()), errCut)
	x.broker.Refuse(nil, nil)

	ended := x.resumes(context.Background())
	x.exec(`SELECT pg_cancel_backend($1)`, conn.PgConn().PID()) // which ends the wait
	require.NoError(t, <-committed)
	require.NoError(t, <-ended, "while those that come by the slot are open")
	require.Equal(t, numbers(1, 1), x.published())
	end()
}

// withoutStandby is a DSN whose sessions do not wait for a standby.
func withoutStandby(dsn string) string {
	u, err := url.Parse(dsn)
	if err != nil {
		panic(err)
	}
	query := u.Query()
	query.Set("synchronous_commit", "local")
	u.RawQuery = query.Encode()
	return u.String()
}

// transaction begins one that has an xid.
func (x *snapshotPlace) transaction() (commit func(), xid string) {
	x.t.Helper()
	conn := parts.Connect(x.t, x.conn.Config().ConnString())
	tx, err := conn.Begin(x.t.Context())
	require.NoError(x.t, err)
	require.NoError(x.t, tx.QueryRow(x.t.Context(), `SELECT pg_current_xact_id()::xid::text`).Scan(&xid))
	return func() { require.NoError(x.t, tx.Commit(x.t.Context())) }, xid
}
