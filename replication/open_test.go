package replication_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/test/parts"
)

// spilled drains a transaction of a megabyte and reports whether the server wrote it to its disk.
func spilled(t *testing.T, workMem int64, server string) bool {
	x := newTableIn(t, parts.Postgres(t, "17"))
	x.exec(`ALTER DATABASE ` + x.conn.Config().Database + ` SET logical_decoding_work_mem = '` + server + `'`)
	x.cfg.LogicalDecodingWorkMem = workMem
	x.exec(`INSERT INTO outbox SELECT n, repeat('x', 1000) FROM generate_series(1, 1000) n`)
	r := x.read(nil)
	r.rows(1000)
	r.finish()

	var total, spills int64
	require.Eventually(t, func() bool { // at the latest when the walsender ends
		err := x.conn.QueryRow(t.Context(), `SELECT total_txns, spill_txns FROM pg_stat_replication_slots WHERE slot_name = $1`, x.slot).Scan(&total, &spills)
		require.NoError(t, err)
		return total > 0
	}, parts.Patience, 20*time.Millisecond)
	return spills > 0
}

func TestStream_RaisesLogicalDecodingWorkMem(t *testing.T) {
	t.Parallel()
	require.True(t, spilled(t, 0, "64kB"), "as the server has it")
	require.False(t, spilled(t, 64<<20, "64kB"))
	require.False(t, spilled(t, 64<<10, "64MB"), "it is not lowered")
}

// From 17 on the server ends a session whose transaction takes longer, and a transaction that is sent takes as long as its rows wait.
func TestStream_ATransactionMayTakeLongerThanTheTransactionTimeout(t *testing.T) {
	each(t, []string{"17", "18"}, func(t *testing.T, version string) {
		x := newTableIn(t, parts.Postgres(t, version))
		x.exec(`ALTER DATABASE ` + x.conn.Config().Database + ` SET transaction_timeout = '100ms'`)
		const rows = 40_000 // more than sockets and buffers hold
		x.exec(`INSERT INTO outbox SELECT n, repeat('x', 1000) FROM generate_series(1, $1::int) n`, rows)
		r := x.read(nil)
		var since time.Time // the server waits in the transaction
		waited, err := postgres.Poll(t.Context(), 20*time.Millisecond, parts.Patience, func() (bool, error) {
			var waits bool
			var now time.Time
			err := x.conn.QueryRow(t.Context(), `SELECT coalesce(a.wait_event, '') = 'WalSenderWriteData', clock_timestamp() FROM pg_replication_slots s
				JOIN pg_stat_activity a ON a.pid = s.active_pid WHERE s.slot_name = $1`, x.slot).Scan(&waits, &now)
			if !waits || since.IsZero() {
				since = now
			}
			return now.Sub(since) > 300*time.Millisecond, err
		})
		require.NoError(t, err, "the session was ended")
		require.True(t, waited)
		r.rows(rows)
		r.finish()
	})
}
