package slot

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"postrider/postgres"
)

const (
	// How often, and for how long, it is looked whether a change of tables has become visible.
	visibleInterval = 20 * time.Millisecond
	visibleTimeout  = 2 * time.Second
)

// selectChanging reports whether a transaction, the parameter, is still running for others and may have
// changed tables: whoever does holds a lock on them that is stronger than a writer's, until the change is
// visible. Everybody may read pg_locks.
const selectChanging = `
WITH l AS MATERIALIZED (SELECT k.locktype, k.transactionid, k.virtualtransaction, k.mode FROM pg_catalog.pg_locks k WHERE k.granted)
SELECT EXISTS (SELECT FROM l t JOIN l s ON s.virtualtransaction = t.virtualtransaction
  WHERE t.locktype = 'transactionid' AND t.transactionid = $1::pg_catalog.xid
  AND s.locktype = 'relation' AND s.mode NOT IN ('AccessShareLock', 'RowShareLock', 'RowExclusiveLock'))`

// AwaitChanges blocks until the catalogs show what a transaction that was decoded has done to tables, two
// seconds at most. A transaction is decoded as soon as its commit is written: before anybody sees it, and long
// before where it waits for a synchronous standby. One that only wrote rows is not waited for: the standby it
// waits for may be the caller. xid is without its epoch, as the stream has it; zero: none is waited for.
func AwaitChanges(ctx context.Context, conn *pgx.Conn, xid uint32) error {
	if xid == 0 {
		return nil
	}
	tick := time.NewTicker(visibleInterval)
	defer tick.Stop()
	for began := time.Now(); ; {
		var changing bool
		if err := conn.QueryRow(ctx, selectChanging, xid).Scan(&changing); err != nil {
			return fmt.Errorf("look whether transaction %d is visible: %w", xid, postgres.Error(err))
		}
		if !changing {
			return nil
		}
		if time.Since(began) > visibleTimeout {
			return fmt.Errorf("transaction %d has changed tables and committed, and is not visible yet: it may wait for a synchronous standby", xid)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// snapshot tells which transactions a statement saw.
type snapshot struct {
	xmax    uint32 // it saw none from this one on
	running []uint32
}

// parseSnapshot reads a pg_snapshot, "xmin:xmax:xid,...".
func parseSnapshot(text string) (*snapshot, error) {
	parts := strings.Split(text, ":")
	if len(parts) != 3 {
		return nil, fmt.Errorf("%q is no snapshot", text)
	}
	var s snapshot
	var err error
	xid := func(text string) uint32 {
		n, parseErr := strconv.ParseUint(text, 10, 64)
		if parseErr != nil {
			err = fmt.Errorf("%q is no snapshot: %w", text, parseErr)
		}
		return uint32(n) //nolint:gosec // without its epoch, as the stream has it
	}
	s.xmax = xid(parts[1])
	if parts[2] != "" {
		for _, one := range strings.Split(parts[2], ",") {
			s.running = append(s.running, xid(one))
		}
	}
	return &s, err
}

// sees reports whether it saw a transaction that has committed by now. One from xmax on is of the future, or of two thousand million transactions
// ago. Zero stands for one of long ago, and nil for a snapshot that saw all.
func (s *snapshot) sees(xid uint32) bool {
	return s == nil || xid == 0 || int32(xid-s.xmax) < 0 && !slices.Contains(s.running, xid) //nolint:gosec // as PostgreSQL compares them
}

// sight is how far something was seen: what commits up to a position, but for transactions that were
// invisible to the one who looked.
type sight struct {
	to       pglogrepl.LSN
	snapshot *snapshot
}

func (s sight) covers(row FirstRow) bool { return row.LSN <= s.to && s.snapshot.sees(row.XID) }

// further is the one of two that reaches further.
func (s sight) further(other sight) sight {
	if other.to >= s.to {
		return other
	}
	return s
}
