package slot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/replication"
)

// Lock is the right to publish the rows of the tables for a slot, which one process has at a time:
// a temporary physical slot that keeps no WAL. Making one takes REPLICATION, while any role can
// take an advisory lock. It ends with its session, which has no other use: the server drops
// temporary slots at any error of a statement.
type Lock struct{ conn *pgx.Conn }

// TryLock takes the lock of a slot. An error wraps replication.ErrSlotInUse if another process has
// it, ErrNoFreeSlot if all slots of the server are taken, and postgres.ErrPermission without
// REPLICATION.
func TryLock(ctx context.Context, pg postgres.Config, slot string) (*Lock, error) {
	conn, err := postgres.Connect(ctx, pg)
	if err != nil {
		return nil, err
	}
	l := &Lock{conn: conn}
	if err := l.take(ctx, slot); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func (l *Lock) take(ctx context.Context, slot string) error {
	if _, err := l.conn.Exec(ctx, `SELECT pg_catalog.set_config('idle_session_timeout', '0',
		false)`); err != nil {
		return postgres.Error(err)
	}
	_, err := l.conn.Exec(ctx, `SELECT pg_catalog.pg_create_physical_replication_slot($1, false,
		true)`, lockName(slot))
	switch postgres.SQLState(err) {
	case "42710": // duplicate_object
		return &Error{
			Err: fmt.Errorf("another process publishes rows of the tables for slot %q: %w", slot,
				replication.ErrSlotInUse),
			WAL: "none is lost: the slot stays as it is",
			Fix: "wait for its end, or stop it: SELECT active_pid FROM pg_catalog.pg_replication_slots " +
				"WHERE slot_name = '" + lockName(slot) + "';",
		}
	case "53400": // configuration_limit_exceeded
		var limit int // stays zero if it cannot be read
		_ = l.conn.QueryRow(ctx,
			`SELECT pg_catalog.current_setting('max_replication_slots')::int`).Scan(&limit)
		return &Error{
			Err: fmt.Errorf("lock the tables for slot %q: it takes a temporary slot: %w: %w", slot,
				ErrNoFreeSlot, err),
			Fix: FixSlotLimit(limit),
		}
	}
	if err != nil {
		return fmt.Errorf("lock the tables for slot %q: %w", slot, commandError(ctx, l.conn, err, slot))
	}
	return nil
}

// Close releases the lock and waits, for at most a second, until the server has released it too,
// so that the next process can take it at once.
func (l *Lock) Close() { postgres.CloseBoth(l.conn) }

// lockName is a valid name of a slot, whatever the length of the one that it is for.
func lockName(slot string) string {
	sum := sha256.Sum256([]byte(slot))
	return "postrider_lock_" + hex.EncodeToString(sum[:8])
}
