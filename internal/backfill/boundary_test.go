package backfill

import (
	"context"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/postrider/postrider/test/parts/testdb"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

// The commit of a transaction is in the WAL before it is in pg_xact, and a new slot's snapshot is made of the
// WAL. A backend is held between the two.
func TestCreateExported_ReadsARowWhoseCommitIsOnlyInTheWAL(t *testing.T) {
	t.Parallel()
	testdb.Versions(t, testdb.All, func(t *testing.T, version string) {
		p, _ := onOwn(t, version, map[string]string{"fsync": "on", "commit_delay": "100000", "commit_siblings": "0", "full_page_writes": "off"})
		ctx := t.Context()
		p.Outbox()
		p.Exec(`CREATE TABLE other (id int)`)
		table, err := p.describe("public.outbox", KeyColumns{ID: "id"})
		require.NoError(t, err)

		conn := p.Rows()
		creating, last := p.createsBeside()
		written, finish := p.commitOnlyInTheWAL()
		_, err = last.Exec(ctx, `COMMIT`)
		require.NoError(t, err)
		got, held := p.createdOrHeld(creating)
		if held {
			finish()
			got = <-creating
		}
		require.NoError(t, got.err)
		defer got.e.Close()

		began := make(chan error, 1)
		go func() { began <- got.e.begin(ctx, conn) }()
		if !held {
			p.looksAgain(conn, "pg_current_snapshot", began) // the snapshot is not given out while one of its transactions is in the WAL alone
			finish()
		}
		require.NoError(t, <-began)
		ids, _ := read(t, conn, table, nil, -1)
		require.Contains(t, ids, strconv.Itoa(written))

		now := p.Rows()
		end, err := beginNow(ctx, now)
		require.NoError(t, err)
		inserted, err := p.inserted(table, end)
		require.NoError(t, err)
		there, _ := read(t, now, table, nil, -1)
		require.Len(t, there, len(ids)+len(inserted))
	})
}

// created is what createExported returned.
type created struct {
	e   *exportedSlot
	err error
}

// createsBeside begins to make a slot, which is consistent when the transaction of last has ended: what
// commits before that belongs to its snapshot.
func (p *place) createsBeside() (creating <-chan created, last *pgx.Conn) {
	p.T.Helper()
	ctx := p.T.Context()
	first, last := p.Open(`INSERT INTO other VALUES (1)`), parts.Connect(p.T, p.DSN)
	asks, result := p.Rows(), make(chan created, 1)
	go func() { // ends with the transactions, or with the test
		e, err := createExported(ctx, p.Postgres, asks, p.Config())
		result <- created{e, err}
	}()
	waits := `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted AND transactionid::text = $1)`
	p.await(waits, xidOf(p.T, first))
	_, err := last.Exec(ctx, `SET synchronous_commit = local; BEGIN; INSERT INTO other VALUES (2)`)
	require.NoError(p.T, err)
	_, err = first.Exec(ctx, `COMMIT`)
	require.NoError(p.T, err)
	p.await(waits, xidOf(p.T, last))
	return result, last
}

// createdOrHeld awaits a slot whose last transaction has ended. held: there is none yet, since the server itself
// waits until what the slot leaves out can be read, as PostgreSQL 15.20 does. Earlier releases give it out.
func (p *place) createdOrHeld(creating <-chan created) (got created, held bool) {
	p.T.Helper()
	parts.Await(p.T, "a slot, or a server that waits", func() (bool, error) {
		select {
		case got = <-creating:
			return true, nil
		default:
		}
		err := p.Conn.QueryRow(p.T.Context(), `SELECT EXISTS (SELECT FROM pg_locks w JOIN pg_locks h USING (transactionid)
			WHERE w.locktype = 'transactionid' AND NOT w.granted AND h.granted)`).Scan(&held)
		return held, err
	})
	return got, held
}

// commitOnlyInTheWAL inserts a row into the outbox and stops the backend while another one flushes its commit
// for it. It returns the row, and what lets the backend go on.
func (p *place) commitOnlyInTheWAL() (written int, finish func()) {
	p.T.Helper()
	ctx := p.T.Context()
	for id := 1; ; id++ {
		flusher, writer := parts.Connect(p.T, p.DSN), parts.Connect(p.T, p.DSN)
		pid := int(writer.PgConn().PID())
		flushed, done := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := flusher.Exec(ctx, `INSERT INTO other VALUES (3)`)
			flushed <- err
			close(flushed)
		}()
		go func() {
			_, err := writer.Exec(context.WithoutCancel(ctx), `INSERT INTO outbox VALUES ($1)`, id)
			done <- err
		}()
		for ended := false; !ended; {
			var waits bool
			require.NoError(p.T, p.Conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_stat_activity
				WHERE pid = $1 AND wait_event_type = 'LWLock' AND wait_event LIKE 'WALWrite%')`, pid).Scan(&waits))
			if waits {
				require.NoError(p.T, syscall.Kill(pid, syscall.SIGSTOP))
				p.T.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
				require.NoError(p.T, <-flushed)
				var running bool
				require.NoError(p.T, p.Conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_locks
					WHERE pid = $1 AND locktype = 'transactionid')`, pid).Scan(&running))
				if running {
					return id, func() {
						require.NoError(p.T, syscall.Kill(pid, syscall.SIGCONT))
						require.NoError(p.T, <-done)
					}
				}
				require.NoError(p.T, syscall.Kill(pid, syscall.SIGCONT))
			}
			select {
			case err := <-done: // not caught
				require.NoError(p.T, err)
				require.NoError(p.T, <-flushed) // or that it was nil before
				ended = true
			default:
			}
		}
	}
}

func xidOf(t *testing.T, conn *pgx.Conn) (xid string) {
	t.Helper()
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT pg_current_xact_id()::xid::text`).Scan(&xid))
	return xid
}

// await asks until the answer is true.
func (p *place) await(sql string, args ...any) {
	p.T.Helper()
	require.Eventually(p.T, func() bool {
		var yes bool
		require.NoError(p.T, p.Conn.QueryRow(p.T.Context(), sql, args...).Scan(&yes))
		return yes
	}, patience, time.Millisecond)
}
