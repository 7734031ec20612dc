package prune

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/slot"
)

const (
	lockInterval  = 50 * time.Millisecond
	unlockTimeout = 2 * time.Second // of a stop: the server may be out of reach
)

// lock takes the advisory lock of a slot, which one pruner at a time has, until unlock is called
// or the connection ends. It tries for as long as wait, then it returns ErrBusy. Any role can take
// the lock, as advisory locks have no rights: the error names the session that has it.
func lock(ctx context.Context, conn *pgx.Conn, slotName string,
	wait time.Duration) (unlock func(), err error) {
	sum := sha256.Sum256([]byte("postrider prune " + slotName))
	key := int64(binary.BigEndian.Uint64(sum[:])) //nolint:gosec // any number will do
	began, taken := time.Now(), false
	_, err = postgres.Poll(ctx, lockInterval, 0, func() (bool, error) {
		taken, err = postgres.One[bool](ctx, conn, `SELECT pg_catalog.pg_try_advisory_lock($1)`, key)
		return taken || time.Since(began) >= wait, err
	})
	if err != nil {
		return nil, fmt.Errorf("lock the pruning of slot %q: %w", slotName, err)
	}
	if !taken {
		return nil, busy(ctx, conn, key)
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unlockTimeout)
		defer cancel()
		// after an error the connection is closed, which releases it too
		_, _ = conn.Exec(ctx, `SELECT pg_catalog.pg_advisory_unlock($1)`, key)
	}, nil
}

// busy returns ErrBusy with the session that has the lock, and what to do about it.
func busy(ctx context.Context, conn *pgx.Conn, key int64) error {
	var pid int     // zero: a prepared transaction has the lock
	var role string // empty: it has been dropped
	err := conn.QueryRow(ctx, `SELECT coalesce(l.pid, 0), coalesce(a.usename, '') FROM pg_catalog.pg_locks l
		LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
		WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
			AND l.database = (SELECT oid FROM pg_catalog.pg_database
				WHERE datname = pg_catalog.current_database())
			AND (l.classid::bigint << 32) | l.objid::bigint = $1`, key).Scan(&pid, &role)
	switch {
	case errors.Is(err, pgx.ErrNoRows): // it has ended
		return &slot.Error{Err: ErrBusy, WAL: nothingRemoved, Fix: "try again"}
	case err != nil:
		return fmt.Errorf("read which session has the lock: %w", postgres.Error(err))
	case pid == 0:
		return &slot.Error{
			Err: fmt.Errorf("%w: that of a prepared transaction", ErrBusy), WAL: nothingRemoved,
			Fix: "SELECT gid, owner, prepared FROM pg_prepared_xacts;   -- then ROLLBACK PREPARED",
		}
	}
	return &slot.Error{
		Err: fmt.Errorf("%w: that of pid %d, role %q", ErrBusy, pid, role),
		WAL: nothingRemoved,
		Fix: fmt.Sprintf("try again when it has ended, or if it is not of postrider:\n"+
			"SELECT pg_terminate_backend(%d);", pid),
	}
}

// markSlot gives the counters of a slot a date of reset, once: it goes with the slot, so the slot
// is recognised by it after a restart of relay and server. It takes a right that sql/prune.sql
// grants.
func markSlot(ctx context.Context, conn *pgx.Conn, s *stream) error {
	if postgres.Major(conn) < 15 || !s.resetAt.IsZero() {
		return nil
	}
	may, err := postgres.One[bool](ctx, conn, `SELECT pg_catalog.has_function_privilege(
		'pg_catalog.pg_stat_reset_replication_slot(text)', 'EXECUTE')`)
	if err == nil && may {
		_, err = conn.Exec(ctx, `SELECT pg_catalog.pg_stat_reset_replication_slot($1::text)`, s.Name)
	}
	return postgres.Wrap(err, "reset the counters of slot %q", s.Name)
}
