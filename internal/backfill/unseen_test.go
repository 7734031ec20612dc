package backfill

import (
	"context"
	"testing"
	"time"

	"github.com/postrider/postrider/test/parts/testdb"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/test/parts"
)

// A transaction has committed before the slot's boundary, so that the slot does not send it, and waits for a
// synchronous standby that is away. The exported snapshot has its row. Who reads the table later, to go on with
// a snapshot that was interrupted, waits: an ordinary snapshot does not have it.
func TestAwaitCommitted_SeesWhatCommittedBeforeTheSlot(t *testing.T) {
	t.Parallel()
	testdb.Versions(t, testdb.All, func(t *testing.T, version string) {
		t.Parallel()
		p, _ := onOwn(t, version, nil)
		ctx := t.Context()
		p.Exec(`SET synchronous_commit = local`)
		p.Outbox()
		p.Exec(`CREATE TABLE other (id int)`)
		table, err := p.describe("public.outbox", KeyColumns{ID: "id"})
		require.NoError(t, err)
		creating, last := p.createsBeside()
		p.busy() // belongs to neither side yet: nobody waits for it
		committed := p.commitWithoutStandby(`INSERT INTO outbox VALUES (1)`)
		_, err = last.Exec(ctx, `ROLLBACK`)
		require.NoError(t, err)
		appear := func() {
			p.Exec(`ALTER SYSTEM RESET synchronous_standby_names`)
			p.Exec(`SELECT pg_reload_conf()`)
			require.NoError(t, <-committed)
		}
		got, held := p.createdOrHeld(creating)
		if held {
			appear()
			got = <-creating
		}
		require.NoError(t, got.err)
		first := p.Rows()
		require.NoError(t, got.e.begin(ctx, first), "it is in pg_xact, so it can be read")
		ids, _ := read(t, first, table, nil, -1)
		require.Equal(t, []string{"1"}, ids)
		got.e.Close()

		if held { // the server has waited: there is nothing left to wait for
			require.NoError(t, slot.AwaitCommitted(ctx, p.Rows(), got.e.Xmax, got.e.Running))
			return
		}
		p.waitsForCommits(got.e.Xmax, got.e.Running)
		p.waitsForCommits(p.NextXID(), nil) // nothing has ended since it committed: no snapshot tells its xid
		p.busy()                            // begun after the slot: nobody waits for it
		if version == "17" {                // it takes ten seconds
			lean, err := postgres.Connect(ctx, p.Lean()) // sees less, and waits as well
			require.NoError(t, err)
			err = slot.AwaitCommitted(ctx, lean, got.e.Xmax, got.e.Running)
			require.ErrorIs(t, err, slot.ErrBlocked)
			require.ErrorContains(t, err, "pid ")
			require.NoError(t, lean.Close(ctx))
		}

		appear()
		now := p.Rows()
		require.NoError(t, slot.AwaitCommitted(ctx, now, got.e.Xmax, got.e.Running))
		end, err := beginNow(ctx, now)
		require.NoError(t, err)
		inserted, err := p.inserted(table, end)
		require.NoError(t, err)
		require.Empty(t, inserted)
		ids, _ = read(t, now, table, nil, -1)
		require.Equal(t, []string{"1"}, ids)
	})
}

// On a server that is busy transactions overlap, so that one is always open.
func TestAwaitCommitted_WaitsForNoLaterTransaction(t *testing.T) {
	t.Parallel()
	p := onShared(t, "17")
	end := p.busy()
	xmax := p.NextXID()
	p.busy()
	p.waitsForCommits(xmax, nil)
	end()
	require.NoError(t, slot.AwaitCommitted(t.Context(), p.Conn, xmax, nil))
}

func (p *place) busy() (end func()) {
	p.T.Helper()
	_, end = parts.Busy(p.T, p.DSN, `BEGIN; SELECT pg_current_xact_id()`)
	return end
}

// waitsForCommits begins to read, sees it wait, and gives it up.
func (p *place) waitsForCommits(xmax uint32, running []uint32) {
	p.T.Helper()
	ctx, cancel := context.WithCancel(p.T.Context())
	conn := p.Rows()
	ended := make(chan error, 1)
	go func() { // ends with cancel
		ended <- slot.AwaitCommitted(ctx, conn, xmax, running)
	}()
	p.looksAgain(conn, "pg_prepared_xacts", ended)
	cancel()
	require.ErrorIs(p.T, <-ended, context.Canceled)
}

// looksAgain sees a session ask the same again and again, which it does because it waits. To prepare the question and to ask it for the first time
// are two requests.
func (p *place) looksAgain(conn *pgx.Conn, question string, ended <-chan error) {
	p.T.Helper()
	asked := time.NewTicker(time.Millisecond)
	defer asked.Stop()
	for answered := map[int64]bool{}; len(answered) < 4; {
		select {
		case err := <-ended:
			require.NoError(p.T, err)
			require.FailNow(p.T, "it did not wait")
		case <-asked.C:
			var at *time.Time
			require.NoError(p.T, p.Conn.QueryRow(p.T.Context(), `SELECT max(state_change) FROM pg_stat_activity WHERE pid = $1 AND state <> 'active' AND query LIKE $2`,
				conn.PgConn().PID(), "%"+question+"%").Scan(&at))
			if at != nil {
				answered[at.UnixMicro()] = true
			}
		}
	}
}

// commitWithoutStandby has a statement of a session of its own wait, after it has committed, for a standby that is not there.
func (p *place) commitWithoutStandby(sql string) (done <-chan error) {
	p.T.Helper()
	p.Exec(`ALTER SYSTEM SET synchronous_standby_names = 'absent'`)
	p.Exec(`SELECT pg_reload_conf()`)
	conn := parts.Connect(p.T, p.DSN)
	require.Eventually(p.T, func() bool {
		var names string
		require.NoError(p.T, conn.QueryRow(p.T.Context(), `SHOW synchronous_standby_names`).Scan(&names))
		return names == "absent"
	}, patience, time.Millisecond)
	p.Exec(`CHECKPOINT`) // it is the checkpointer that tells the others to wait, and it may hear of the setting later than a session
	result := make(chan error, 1)
	go func() { // ends when the setting is reset, or the server ends
		_, err := conn.Exec(context.WithoutCancel(p.T.Context()), sql)
		result <- err
	}()
	p.await(`SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep')`)
	return result
}
