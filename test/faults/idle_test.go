package faults

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

// busy writes into a table of its own that nobody publishes, in a database, until the returned function is called.
func busy(t testing.TB, dsn string) (end func()) {
	t.Helper()
	execute(t, dsn, "CREATE TABLE busy (n bigint, pad text)")
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var failed error
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	wg.Go(func() {
		defer conn.Close(context.Background())
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil && failed == nil {
			_, failed = conn.Exec(context.Background(), "INSERT INTO busy SELECT n, repeat('x', 500) FROM generate_series(1, 200) n")
			<-tick.C
		}
	})
	end = sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(func() { end(); require.NoError(t, failed) })
	return end
}

func TestFault24_IdleOutboxReleasesWAL(t *testing.T) {
	onOldestAndNewest(t, func(t *testing.T, version string) {
		r := newRig(t, server(t, version), parts.RealKafka(t))
		p := r.started(t)
		l := r.load(t, 50)
		l.more(t, 50)
		l.end(t)
		r.drained(t, time.Minute)

		began := currentLSN(t, r.dsn)
		endHere, endThere := busy(t, r.dsn), busy(t, parts.NewDatabase(t, r.dsn).DSN())
		conn := parts.Connect(t, r.dsn)
		var lag, highest, written int64
		look := func() {
			require.NoError(t, conn.QueryRow(t.Context(), `SELECT pg_current_wal_lsn() - confirmed_flush_lsn, pg_current_wal_lsn() - $1::pg_lsn
				FROM pg_replication_slots WHERE slot_name = $2`, began.String(), r.slot).Scan(&lag, &written))
			highest = max(highest, lag)
		}
		during(fullFor(t, 6*time.Second, 10*time.Minute), look)
		endHere()
		endThere()
		ended := currentLSN(t, r.dsn)
		r.drained(t, 30*time.Second)
		matrix(t, 24, "", fmt.Sprintf("%.1f MiB of foreign WAL, confirmed lag at most %.1f MiB", float64(written)/(1<<20), float64(highest)/(1<<20)))

		// The server moves restart_lsn when it logs which transactions run, as with each checkpoint.
		var moved bool
		eventually(t, time.Minute, "WAL released", func() bool {
			execute(t, r.dsn, "CHECKPOINT")
			require.NoError(t, conn.QueryRow(t.Context(), "SELECT restart_lsn >= $1::pg_lsn FROM pg_replication_slots WHERE slot_name = $2",
				ended.String(), r.slot).Scan(&moved))
			return moved
		})
		require.Equal(t, int64(2), query[int64](t, r.dsn, "SELECT count(*) FROM pg_stat_user_tables"), "tables: outbox, busy and no heartbeat")
		p.stop(t)
		requireExact(t, r.judge(t))
	})
}
