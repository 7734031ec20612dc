package prune

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/test/parts"
)

// cutter closes a connection before or after its n-th statement, as the end of the process does.
type cutter struct {
	at    int // zero: never
	after bool
	count int

	before string // a statement with this text calls do first
	do     func()
}

func (c *cutter) TraceQueryStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if c.before != "" && strings.Contains(data.SQL, c.before) {
		c.do()
	}
	if c.count++; c.count == c.at && !c.after {
		_ = conn.PgConn().Conn().Close()
	}
	return ctx
}

func (c *cutter) TraceQueryEnd(_ context.Context, conn *pgx.Conn, _ pgx.TraceQueryEndData) {
	if c.count == c.at && c.after {
		_ = conn.PgConn().Conn().Close()
	}
}

// TestPartition_NextRunFinishesAfterAKillAtAnyStatement kills a run before and after each of its statements.
func TestPartition_NextRunFinishesAfterAKillAtAnyStatement(t *testing.T) {
	for _, withDefault := range []bool{false, true} {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("default=%v/after=%v", withDefault, after), func(t *testing.T) {
				t.Parallel()
				r := newPartitionRig(t, parts.AnyVersion, withDefault)
				states := map[string]int{}
				for at, done := 1, false; !done; at++ {
					r.exec(t, "CREATE TABLE IF NOT EXISTS outbox_1 PARTITION OF outbox FOR VALUES FROM ('2026-01-01 00:00+00') TO ('2026-01-02 00:00+00')")
					r.look(t)
					r.insert(t, "2026-01-01 12:00", 5)
					done = r.killedAt(t, at, after)
					state := r.left(t)
					if done && state != "gone" { // it gave way to another session, such as autovacuum's
						done = false
						at--
					}
					states[state]++
					require.NotContains(t, state, "gone with a seal")
					parts.Await(t, fmt.Sprintf("the next run to remove what one that was killed at statement %d left: %s", at, state), func() (bool, error) {
						r.prune(t)
						return r.left(t) == "gone", nil
					})
				}
				t.Logf("killed runs left: %v", states)
				require.Positive(t, states["attached, sealed"])
				if !withDefault {
					require.Positive(t, states["detached, sealed"])
				}
			})
		}
	}
}

// killedAt is a run whose connection is closed at a statement; it reports whether it had fewer.
func (r *partitionRig) killedAt(t *testing.T, at int, after bool) (done bool) {
	t.Helper()
	conn, cut := r.tracedConn(t)
	run, prover := r.runOn(t, conn)
	require.NoError(t, run.looked(t.Context(), prover, "created_at", "timestamp with time zone"))
	pid := conn.PgConn().PID()
	cut.count, cut.at, cut.after = 0, at, after
	err := run.whole(t.Context(), 0)
	done = cut.count < at
	if done {
		require.NoError(t, err)
		require.NoError(t, conn.Close(t.Context()))
	}
	parts.Await(t, "the end of the session", func() (bool, error) {
		var there bool
		err := r.conn.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)", pid).Scan(&there)
		return !there, err
	})
	return done
}

// tracedConn is a connection as the pruner has it, with a cutter.
func (r *partitionRig) tracedConn(t *testing.T) (*pgx.Conn, *cutter) {
	t.Helper()
	conn, err := postgres.ConnectRows(t.Context(), r.cfg)
	require.NoError(t, err)
	cfg := conn.Config()
	postgres.Close(conn)
	cut := &cutter{}
	cfg.Tracer = cut
	conn, err = pgx.ConnectConfig(t.Context(), cfg)
	require.NoError(t, err)
	return conn, cut
}

// left says what there is of outbox_1.
func (r *partitionRig) left(t *testing.T) string {
	t.Helper()
	return query[string](t, r.conn, `SELECT CASE WHEN to_regclass('outbox_1') IS NULL THEN 'gone'
		WHEN EXISTS (SELECT FROM pg_inherits WHERE inhrelid = to_regclass('outbox_1') AND inhdetachpending) THEN 'pending'
		WHEN EXISTS (SELECT FROM pg_inherits WHERE inhrelid = to_regclass('outbox_1')) THEN 'attached' ELSE 'detached' END
		|| CASE WHEN EXISTS (SELECT FROM pg_constraint WHERE conname = 'postrider_pruned') THEN ', sealed' ELSE '' END`)
}

// TestPartition_NextRunFinalizesAPendingDetachment, which waited in vain for a transaction that uses the table. That one
// cannot insert into the partition any more.
func TestPartition_NextRunFinalizesAPendingDetachment(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			r := newPartitionRig(t, version, false)
			r.exec(t, "DROP TABLE outbox_2")
			r.look(t)
			r.insert(t, "2026-01-01 12:00", 5)
			reader := connect(t, r.cfg)
			_, err := reader.Exec(t.Context(), "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM ONLY outbox")
			require.NoError(t, err)
			parts.Await(t, "a pending detachment", func() (bool, error) {
				require.Empty(t, r.prune(t).Removed)
				return r.left(t) == "pending, sealed", nil
			})
			require.Empty(t, r.prune(t).Removed)
			_, err = reader.Exec(t.Context(), "INSERT INTO outbox (created_at) VALUES ('2026-01-01 13:00+00')")
			require.Equal(t, "23514", postgres.SQLState(err), "%v", err)
			_, err = reader.Exec(t.Context(), "ROLLBACK")
			require.NoError(t, err)
			require.Equal(t, []string{`"public"."outbox_1"`}, r.pruneUntil(t, 1).Removed)
			require.Zero(t, r.seals(t))
		})
	}
}

// TestPartition_SeesWhatComesBetweenTheLookAndTheSeal, and lets nothing in after that: rows are inserted right before the
// seal and right before the detachment.
func TestPartition_SeesWhatComesBetweenTheLookAndTheSeal(t *testing.T) {
	for _, withDefault := range []bool{false, true} {
		t.Run(fmt.Sprintf("default=%v", withDefault), func(t *testing.T) {
			t.Parallel()
			r := newPartitionRig(t, parts.AnyVersion, withDefault)
			r.exec(t, "DROP TABLE outbox_2")
			r.look(t)
			r.insert(t, "2026-01-01 12:00", 5)
			hooked := func(before string, do func()) *PartitionReport {
				conn, cut := r.tracedConn(t)
				defer postgres.Close(conn)
				run, prover := r.runOn(t, conn)
				require.NoError(t, run.looked(t.Context(), prover, "created_at", "timestamp with time zone"))
				cut.before, cut.do = before, do
				require.NoError(t, run.whole(t.Context(), 0))
				return run.result
			}
			inserted := 0
			parts.Await(t, "a run that comes as far as the seal", func() (bool, error) {
				require.Empty(t, hooked("ADD CONSTRAINT", func() { r.insert(t, "2026-01-01 13:00", 1); inserted++ }).Removed)
				return inserted > 0, nil
			})
			require.Equal(t, 6, count(t, r.conn, "SELECT count(*) FROM outbox_1"))
			require.Zero(t, r.seals(t))
			refused := 0
			parts.Await(t, "a run that comes as far as the detachment", func() (bool, error) {
				result := hooked("DETACH PARTITION", func() {
					_, err := r.conn.Exec(t.Context(), "INSERT INTO outbox (created_at) VALUES ('2026-01-01 14:00+00')")
					require.Equal(t, "23514", postgres.SQLState(err), "%v", err)
					refused++
				})
				return len(result.Removed) == 1, nil
			})
			require.Positive(t, refused)
		})
	}
}
