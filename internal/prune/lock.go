package prune

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
)

const (
	lockInterval  = 50 * time.Millisecond
	unlockTimeout = 2 * time.Second // of a stop: the server may be out of reach
)

// lock takes the advisory lock of a slot, which one pruner at a time has, until unlock is called
// or the connection ends. It tries for as long as wait. held: another one has it.
func lock(ctx context.Context, conn *pgx.Conn, slotName string,
	wait time.Duration) (unlock func(), held bool, err error) {
	sum := sha256.Sum256([]byte("postrider prune " + slotName))
	key := int64(binary.BigEndian.Uint64(sum[:])) //nolint:gosec // any number will do
	began, taken := time.Now(), false
	_, err = postgres.Poll(ctx, lockInterval, 0, func() (bool, error) {
		taken, err = postgres.One[bool](ctx, conn, `SELECT pg_catalog.pg_try_advisory_lock($1)`, key)
		return taken || time.Since(began) >= wait, err
	})
	if err != nil {
		return nil, false, fmt.Errorf("lock the pruning of slot %q: %w", slotName, err)
	}
	if !taken {
		return func() {}, true, nil // to release another one's is a warning in the server's log
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unlockTimeout)
		defer cancel()
		// after an error the connection is closed, which releases it too
		_, _ = conn.Exec(ctx, `SELECT pg_catalog.pg_advisory_unlock($1)`, key)
	}, false, nil
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
