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

// visibleInterval is how often it is looked whether a transaction has become visible.
const visibleInterval = 20 * time.Millisecond

// AwaitVisible blocks until the effects of a transaction are visible that was decoded. That happens as soon as its commit is written: before anybody sees
// it, and long before where it waits for a synchronous standby. It gives up a second before the deadline of ctx, so that the connection outlives it.
// xid is without its epoch, as the stream has it; zero: none is waited for.
func AwaitVisible(ctx context.Context, conn *pgx.Conn, xid uint32) error {
	if xid == 0 {
		return nil
	}
	tick := time.NewTicker(visibleInterval)
	defer tick.Stop()
	for {
		var text string
		if err := conn.QueryRow(ctx, "SELECT pg_catalog.pg_current_snapshot()::pg_catalog.text").Scan(&text); err != nil {
			return fmt.Errorf("look whether transaction %d is visible: %w", xid, postgres.Error(err))
		}
		s, err := parseSnapshot(text)
		if err != nil || s.sees(xid) {
			return err
		}
		if end, bounded := ctx.Deadline(); bounded && time.Until(end) < time.Second {
			return fmt.Errorf("transaction %d has committed and is not visible yet: it may wait for a synchronous standby", xid)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// snapshot tells which transactions a statement saw. One that was running for it may have written its
// commit, and be decoded, long before: it becomes visible when synchronous standbys have answered.
type snapshot struct {
	xmax    uint32 // it saw none from this one on
	running []uint32
}

// parseSnapshot reads a pg_snapshot, "xmin:xmax:xid,...".
func parseSnapshot(text string) (*snapshot, error) {
	var s snapshot
	var err error
	parts := strings.Split(text, ":")
	if len(parts) != 3 {
		return nil, fmt.Errorf("%q is no snapshot", text)
	}
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

// startable bounds how many transactions may be running beyond a snapshot's xmax: the server has no more
// connections and prepared transactions (MAX_BACKENDS of PostgreSQL is 2^18).
const startable = 1 << 20

// sees reports whether it saw a transaction that has committed by now; zero stands for one of long ago, and nil for a snapshot that saw all.
func (s *snapshot) sees(xid uint32) bool {
	return s == nil || xid == 0 || xid-s.xmax >= startable && !slices.Contains(s.running, xid)
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
