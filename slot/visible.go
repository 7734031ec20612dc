package slot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
)

// visibleInterval is how often the waits of this file look.
const visibleInterval = 20 * time.Millisecond

// finishTimeout bounds the wait for a transaction that has written its commit and is not visible.
const finishTimeout = 10 * time.Second

// selectFinishing returns the snapshot of its transaction, and the other running transactions. One
// that waits for a synchronous standby is left out: pg_xact has its commit already.
const selectFinishing = `
SELECT pg_catalog.pg_current_snapshot()::text, ARRAY(
  SELECT l.transactionid::text FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_stat_activity a
  ON a.pid = l.pid
  WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted AND
  COALESCE(a.wait_event, '') <> 'SyncRep')`

// committing are the transactions of this database that may be. A session that waits for its
// client between two statements commits nothing, where the role may see its state.
const committing = `
  AND coalesce(a.datname, p.database, pg_catalog.current_database()) =
  pg_catalog.current_database()
  AND coalesce(a.state, '') NOT IN ('idle in transaction', 'idle in transaction (aborted)')
ORDER BY a.backend_start`

// OpenTransactions names those of this database that may have committed and are not visible yet.
// To an ordinary snapshot they are as good as running.
func OpenTransactions(ctx context.Context, conn *pgx.Conn) ([]string, error) {
	open, err := findBlockers(ctx, conn, committing)
	return namesOf(open), postgres.Wrap(err, "look for open transactions")
}

// NextXID assigns an xid in a transaction of its own, rolls that back, and returns the xid,
// without its epoch. Every other transaction that has an xid now has a lower one. It is for
// AwaitCommitted, where the snapshot of the slot is not known. The xmax of a snapshot would not
// do: transactions that have committed and are not visible yet can have higher xids.
func NextXID(ctx context.Context, conn *pgx.Conn) (xid uint32, err error) {
	tx, err := conn.Begin(ctx)
	if err == nil {
		err = tx.QueryRow(ctx, `SELECT pg_catalog.pg_current_xact_id()::pg_catalog.xid`).Scan(&xid)
		err = errors.Join(err, tx.Rollback(ctx)) // a commit might wait for the synchronous standby
	}
	return xid, postgres.Wrap(err, "find the next transaction")
}

// AwaitCommitted blocks, for ten seconds at most, until a new snapshot sees every transaction that
// had committed when the slot began. The slot does not send these, and while they wait for a
// synchronous standby they are not visible. Their xids are below xmax and not in running. Pass
// xmax and running of the exported snapshot, or the result of NextXID and nil. ErrBlocked names
// the transactions that are left; repeat the call with the same xmax, or the wait may never end.
func AwaitCommitted(ctx context.Context, conn *pgx.Conn, xmax uint32, running []uint32) error {
	before := &Snapshot{xmax, running}
	var left []blocker // of those that were running at first
	visible, err := postgres.Poll(ctx, visibleInterval, finishTimeout, func() (bool, error) {
		now, err := findBlockers(ctx, conn, committing)
		left = slices.DeleteFunc(now, func(b blocker) bool {
			if left == nil {
				xid, err := strconv.ParseUint(b.XID, 10, 32)
				return err == nil && !before.Sees(uint32(xid))
			}
			return !slices.ContainsFunc(left, func(was blocker) bool { return was.XID == b.XID })
		})
		return len(left) == 0, err
	})
	switch {
	case err != nil:
		return fmt.Errorf("look whether the transactions before the slot have finished: %w", err)
	case !visible:
		return unseen(left)
	}
	return nil
}

// unseen names transactions that keep a table from being read.
func unseen(left []blocker) error {
	fix := "wait for them to end"
	if slices.ContainsFunc(left, func(b blocker) bool { return b.PID != nil }) {
		fix += ", or bring back the synchronous standby that they wait for; if " +
			"synchronous_standby_names means this relay, take it out:\n" +
			"SELECT pid, wait_event, state, query FROM pg_stat_activity WHERE pid IN (SELECT pid FROM " +
			"pg_locks WHERE locktype = 'transactionid');"
	}
	return &Error{
		Err: diagnosed("rows that were committed before the slot began may not be visible yet, "+
			"since transactions are open: "+strings.Join(namesOf(left), ", "), ErrBlocked),
		WAL: keptMeanwhile,
		Fix: fix + endPrepared(left),
	}
}

// keptMeanwhile is what it means for the WAL that the tables cannot be read yet.
const keptMeanwhile = "none is lost: the slot keeps what comes after its boundary, more with " +
	"every write, until the tables were read"

// AwaitFinished blocks, for ten seconds at most, until pg_xact has the commit of every transaction
// that the snapshot of conn's transaction sees, and returns that snapshot. Call it before the
// first row is read. The snapshot of a new slot is built from the WAL, which has a commit earlier
// than pg_xact. A row read in between counts as aborted, and its hint bit makes that permanent:
// the reader of the snapshot never sees the row, and the slot never sends it.
func AwaitFinished(ctx context.Context, conn *pgx.Conn) (*Snapshot, error) {
	var seen *Snapshot
	var finishing string // xid
	finished, err := postgres.Poll(ctx, visibleInterval, finishTimeout, func() (bool, error) {
		var text string
		var running []string
		err := conn.QueryRow(ctx, selectFinishing).Scan(&text, &running)
		if err != nil {
			return false, postgres.Error(err)
		}
		if seen, err = ParseSnapshot(text); err != nil {
			return false, err
		}
		i := slices.IndexFunc(running, func(xid string) bool {
			n, err := strconv.ParseUint(xid, 10, 32)
			return err == nil && seen.Sees(uint32(n))
		})
		if i >= 0 {
			finishing = running[i]
		}
		return i < 0, nil
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("look whether the transactions before the slot have finished: %w", err)
	case !finished:
		return nil, &Error{
			Err: diagnosed("transaction "+finishing+" has written its commit and does not finish, so "+
				"its rows cannot be read yet", ErrBlocked),
			WAL: keptMeanwhile,
			Fix: "if it waits for a synchronous standby, let the relay see that:\n" +
				"GRANT pg_read_all_stats TO " + postgres.QuoteName(conn.Config().User) + ";",
		}
	}
	return seen, nil
}

// Snapshot is which transactions a statement saw.
type Snapshot struct {
	Xmax    uint32 // it saw none from this one on
	Running []uint32
}

// ParseSnapshot reads a pg_snapshot, "xmin:xmax:xid,...".
func ParseSnapshot(text string) (*Snapshot, error) {
	var xids []uint32
	_, behind, _ := strings.Cut(text, ":")
	separator := func(r rune) bool { return r == ':' || r == ',' }
	for one := range strings.FieldsFuncSeq(behind, separator) {
		n, err := strconv.ParseUint(one, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%q is no snapshot: %w", text, err)
		}
		xids = append(xids, uint32(n)) //nolint:gosec // without its epoch, as the stream has it
	}
	if len(xids) == 0 || strings.Count(text, ":") != 2 {
		return nil, fmt.Errorf("%q is no snapshot", text)
	}
	return &Snapshot{xids[0], xids[1:]}, nil
}

// Sees reports whether the snapshot saw a transaction that has committed by now: its xid is before
// Xmax, modulo 2^32, and not in Running. Zero is a transaction of long ago. A nil Snapshot saw
// all.
func (s *Snapshot) Sees(xid uint32) bool {
	return s == nil || xid == 0 || int32(xid-s.Xmax) < 0 && !slices.Contains(s.Running,
		xid) //nolint:gosec // as PostgreSQL compares them
}
