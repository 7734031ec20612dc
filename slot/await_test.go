package slot_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/test/parts"
)

func TestAwaitFree_WaitsForTheReaderToLeave(t *testing.T) {
	versions(t, oldAndNew, func(t *testing.T, version string) {
		p := onShared(t, version)
		p.outbox()
		_, err := slot.Create(t.Context(), p.conn, p.config())
		require.NoError(t, err)
		reader := p.reads(p.cfg, p.name)

		waiting := parts.Connect(t, p.dsn)
		ended := make(chan error, 1)
		go func() { ended <- slot.AwaitFree(t.Context(), waiting, p.name) }()
		var looked bool
		require.Eventually(t, func() bool {
			err := p.conn.QueryRow(t.Context(), `SELECT query LIKE '%pg_replication_slots%' AND state = 'idle' FROM pg_stat_activity WHERE pid = $1`,
				waiting.PgConn().PID()).Scan(&looked)
			return err == nil && looked
		}, time.Minute, 10*time.Millisecond)
		require.Empty(t, ended, "did not wait")
		require.NoError(t, reader.Close(t.Context()))
		require.NoError(t, <-ended)

		require.NoError(t, slot.AwaitFree(t.Context(), parts.Connect(t, p.dsn), p.name), "nobody reads from it")
		require.NoError(t, slot.AwaitFree(t.Context(), parts.Connect(t, p.dsn), "none"))
	})
}

func TestAwaitFree_EndsWithItsContext(t *testing.T) {
	p := onShared(t, parts.AnyVersion)
	p.outbox()
	_, err := slot.Create(t.Context(), p.conn, p.config())
	require.NoError(t, err)
	p.reads(p.cfg, p.name)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, slot.AwaitFree(ctx, parts.Connect(t, p.dsn), p.name), context.DeadlineExceeded)
}

// While another process copies the tables the slot is free, or not there, and its lock is held.
func TestAwaitUnlocked_WaitsForTheOneThatCopies(t *testing.T) {
	versions(t, oldAndNew, func(t *testing.T, version string) {
		p := onShared(t, version)
		copier, err := slot.TryLock(t.Context(), p.cfg, p.name)
		require.NoError(t, err)

		waiting := parts.Connect(t, p.dsn)
		require.NoError(t, slot.AwaitUnlocked(t.Context(), waiting, p.name+"_2"), "the lock of another slot")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, slot.AwaitUnlocked(ctx, parts.Connect(t, p.dsn), p.name), context.DeadlineExceeded)

		ended := make(chan error, 1)
		go func() { ended <- slot.AwaitUnlocked(t.Context(), waiting, p.name) }()
		var looked bool
		require.Eventually(t, func() bool {
			err := p.conn.QueryRow(t.Context(), `SELECT query LIKE '%pg_replication_slots%' AND state = 'idle' FROM pg_stat_activity WHERE pid = $1`,
				waiting.PgConn().PID()).Scan(&looked)
			return err == nil && looked
		}, time.Minute, 10*time.Millisecond)
		require.Empty(t, ended, "did not wait")
		copier.Close()
		require.NoError(t, <-ended)
	})
}
