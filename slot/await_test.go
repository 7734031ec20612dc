package slot_test

import (
	"github.com/jackc/pgx/v5"

	"context"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/check/checktest"
	"github.com/postrider/postrider/test/parts/testdb"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/test/parts"
)

func TestAwaitFree_WaitsForTheReaderToLeave(t *testing.T) {
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		p := checktest.Shared(t, version)
		p.Outbox()
		_, err := slot.Create(t.Context(), p.Conn, p.Config())
		require.NoError(t, err)
		reader := p.Reads(p.Postgres, p.Name)

		waiting := parts.Connect(t, p.DSN)
		ended := make(chan error, 1)
		go func() { ended <- slot.AwaitFree(t.Context(), waiting, p.Name) }()
		var looked bool
		require.Eventually(t, func() bool {
			err := p.Conn.QueryRow(t.Context(), `SELECT query LIKE '%pg_replication_slots%' AND state = 'idle' FROM pg_stat_activity WHERE pid = $1`,
				waiting.PgConn().PID()).Scan(&looked)
			return err == nil && looked
		}, time.Minute, 10*time.Millisecond)
		require.Empty(t, ended, "did not wait")
		require.NoError(t, reader.Close(t.Context()))
		require.NoError(t, <-ended)

		require.NoError(t, slot.AwaitFree(t.Context(), parts.Connect(t, p.DSN), p.Name), "no session reads from it")
		require.NoError(t, slot.AwaitFree(t.Context(), parts.Connect(t, p.DSN), "none"))
	})
}

func TestAwaitFree_EndsWithItsContext(t *testing.T) {
	p := checktest.Shared(t, parts.AnyVersion)
	p.Outbox()
	_, err := slot.Create(t.Context(), p.Conn, p.Config())
	require.NoError(t, err)
	p.Reads(p.Postgres, p.Name)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, slot.AwaitFree(ctx, parts.Connect(t, p.DSN), p.Name), context.DeadlineExceeded)
}

// While another process copies the tables the slot is free, or not there, and its lock is held.
func TestAwaitUnlocked_WaitsForTheOneThatCopies(t *testing.T) {
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		p := checktest.Shared(t, version)
		copier, err := slot.TryLock(t.Context(), p.Postgres, p.Name)
		require.NoError(t, err)

		waiting := parts.Connect(t, p.DSN)
		require.NoError(t, slot.AwaitUnlocked(t.Context(), waiting, p.Name+"_2"), "the lock of another slot")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, slot.AwaitUnlocked(ctx, parts.Connect(t, p.DSN), p.Name), context.DeadlineExceeded)

		ended := make(chan error, 1)
		go func() { ended <- slot.AwaitUnlocked(t.Context(), waiting, p.Name) }()
		var looked bool
		require.Eventually(t, func() bool {
			err := p.Conn.QueryRow(t.Context(), `SELECT query LIKE '%pg_replication_slots%' AND state = 'idle' FROM pg_stat_activity WHERE pid = $1`,
				waiting.PgConn().PID()).Scan(&looked)
			return err == nil && looked
		}, time.Minute, 10*time.Millisecond)
		require.Empty(t, ended, "did not wait")
		copier.Close()
		require.NoError(t, <-ended)
	})
}

type countedQueries struct{ began chan time.Time }

func (q *countedQueries) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	q.began <- time.Now()
	return ctx
}

func (q *countedQueries) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// While somebody has the slot, or its lock, the server is asked so often and no oftener.
func TestTurns_WhoStandsByLooksNowAndThen(t *testing.T) {
	t.Parallel()
	p := checktest.Shared(t, parts.AnyVersion)
	p.Outbox()
	_, err := slot.Create(t.Context(), p.Conn, p.Config())
	require.NoError(t, err)
	p.Reads(p.Postgres, p.Name)
	lock, err := slot.TryLock(t.Context(), p.Postgres, p.Name)
	require.NoError(t, err)
	t.Cleanup(lock.Close)
	for name, wait := range map[string]struct {
		await func(context.Context, *pgx.Conn, string) error
		least time.Duration
	}{
		"slot": {slot.AwaitFree, slot.FreeInterval}, "lock": {slot.AwaitUnlocked, slot.UnlockedInterval},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, err := pgx.ParseConfig(p.DSN)
			require.NoError(t, err)
			q := &countedQueries{make(chan time.Time, 1000)}
			cfg.Tracer = q
			conn, err := pgx.ConnectConfig(t.Context(), cfg)
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- wait.await(ctx, conn, p.Name) }()
			looks := []time.Time{<-q.began, <-q.began, <-q.began, <-q.began}
			cancel()
			require.Error(t, <-ended)
			require.GreaterOrEqual(t, looks[3].Sub(looks[0]), 2*wait.least, "a ticker makes up for a late look")
		})
	}
}
