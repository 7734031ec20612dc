package slot

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
)

const (
	// Consumers wait for a takeover. A look is one row of shared memory: no table, no transaction id.
	freeInterval = 200 * time.Millisecond
	// The same for the lock of a snapshot, which is held for as long as the tables are large.
	unlockedInterval = time.Second
	// A server that does not answer for that long is another matter.
	freeTimeout = 10 * time.Second
)

// await polls until the answer is no.
func await(ctx context.Context, conn *pgx.Conn, name string, interval time.Duration,
	ask func(context.Context, *pgx.Conn, string) (bool, error)) error {
	_, err := postgres.Poll(ctx, interval, 0, func() (bool, error) {
		yes, err := ask(ctx, conn, name)
		return !yes && err == nil, err
	})
	return err
}

// AwaitFree waits until no session reads from the slot, or there is none of this name, or ctx
// ends. Who has waited still has to be the first to take it.
func AwaitFree(ctx context.Context, conn *pgx.Conn, name string) error {
	if err := await(ctx, conn, name, freeInterval, taken); err != nil {
		return fmt.Errorf("wait for slot %q: %w", name, err)
	}
	return nil
}

// AwaitUnlocked waits until no process has what TryLock takes, or ctx ends. The slot itself is
// free, or absent, while a process copies the tables.
func AwaitUnlocked(ctx context.Context, conn *pgx.Conn, name string) error {
	if err := await(ctx, conn, name, unlockedInterval, locked); err != nil {
		return fmt.Errorf("wait for the snapshot of slot %q: %w", name, err)
	}
	return nil
}

// taken counts a slot whose creation is not finished: its maker holds it, and disappears with it.
func taken(ctx context.Context, conn *pgx.Conn, name string) (yes bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, freeTimeout)
	defer cancel()
	err = conn.QueryRow(ctx, `SELECT active OR confirmed_flush_lsn IS NULL FROM
		pg_catalog.pg_replication_slots WHERE slot_name = $1`, name).Scan(&yes)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return yes, postgres.Error(err)
}

// locked reports whether a process has the lock of the slot.
func locked(ctx context.Context, conn *pgx.Conn, name string) (yes bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, freeTimeout)
	defer cancel()
	err = conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_catalog.pg_replication_slots WHERE
		slot_name = $1::name)`, lockName(name)).Scan(&yes)
	return yes, postgres.Error(err)
}
