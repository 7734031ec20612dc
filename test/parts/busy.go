package parts

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Busy runs begin, which begins a transaction with an xid, and leaves it in the middle of a
// statement, where it looks like one that is committing, until end commits it or the test ends.
func Busy(t testing.TB, dsn, begin string) (pid uint32, end func()) {
	t.Helper()
	ctx := t.Context()
	gate, conn := Connect(t, dsn), Connect(t, dsn)
	pid = conn.PgConn().PID()
	_, err := gate.Exec(ctx, `SELECT pg_advisory_lock($1)`, pid)
	require.NoError(t, err)
	_, err = conn.Exec(ctx, begin)
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { // ends with end, or with the test
		_, err := conn.Exec(ctx, `SELECT pg_advisory_lock($1)`, pid)
		done <- err
		close(done)
	}()
	t.Cleanup(func() { t.Log(<-done) }) // before the connection is closed
	require.Eventually(t, func() bool {
		var waits bool
		require.NoError(t,
			gate.QueryRow(ctx,
				`SELECT wait_event IS NOT DISTINCT FROM 'advisory'
			FROM pg_stat_activity WHERE pid = $1`, pid).Scan(&waits))
		return waits
	}, time.Minute, time.Millisecond)
	return pid, func() {
		t.Helper()
		_, err := gate.Exec(ctx, `SELECT pg_advisory_unlock($1)`, pid)
		require.NoError(t, err)
		require.NoError(t, <-done)
		_, err = conn.Exec(ctx, `COMMIT`)
		require.NoError(t, err)
	}
}
