package slot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/replication"
)

// Lock is the right of one process to publish the rows of the tables for a slot. It is a temporary
// physical slot that retains no WAL. Unlike an advisory lock, it requires REPLICATION. Its session
// executes nothing else that can fail: PostgreSQL drops temporary slots at any error of their
// session.
type Lock struct{ conn *pgx.Conn }

// TryLock takes the lock of a slot. Errors: replication.ErrSlotInUse if another process has it,
// ErrNoFreeSlot, and postgres.ErrPermission without REPLICATION.
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
	_, err := l.conn.Exec(ctx, `SELECT pg_catalog.set_config('idle_session_timeout', '0', false)`)
	if err != nil {
		return postgres.Error(err)
	}
	_, err = l.conn.Exec(ctx, `SELECT pg_catalog.pg_create_physical_replication_slot($1, false,
		true)`, LockName(slot))
	switch postgres.SQLState(err) {
	case "42710": // duplicate_object
		return &Error{
			Err: fmt.Errorf("another process publishes rows of the tables for slot %q: %w", slot,
				replication.ErrSlotInUse),
			WAL: "none is lost: the slot stays as it is",
			Fix: "wait for its end, or stop it: SELECT active_pid FROM pg_catalog.pg_replication_slots " +
				"WHERE slot_name = '" + LockName(slot) + "';",
		}
	case "53400": // configuration_limit_exceeded
		return &Error{
			Err: fmt.Errorf("lock the tables for slot %q: it takes a temporary slot: %w: %w", slot,
				ErrNoFreeSlot, err),
			Fix: fixFull(ctx, l.conn),
		}
	}
	return postgres.Wrap(commandError(ctx, l.conn, err, slot), "lock the tables for slot %q", slot)
}

// Check returns an error if the process has lost the lock, with the session that has it, or if
// that session does not answer.
func (l *Lock) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, freeTimeout)
	defer cancel()
	return postgres.Wrap(l.conn.Ping(ctx), "the lock of the tables is lost")
}

// Close releases the lock and waits, for at most a second, until the server has released it too,
// so that the next process can take it at once.
func (l *Lock) Close() { postgres.CloseBoth(l.conn) }

// LockName is the name of the temporary slot that a process has while it publishes rows of the
// tables for a slot. It is valid whatever the length of the one that it is for.
func LockName(slot string) string {
	sum := sha256.Sum256([]byte(slot))
	return "postrider_lock_" + hex.EncodeToString(sum[:8])
}

const (
	// Consumers wait for a takeover. A look is one row of shared memory: no table, no transaction id.
	freeInterval = 200 * time.Millisecond
	// The same for the lock of a snapshot, which is held for as long as the tables are large.
	unlockedInterval = time.Second
	// freeTimeout bounds one query of await.
	freeTimeout = 10 * time.Second

	// A server releases a slot a moment after the end of the connection.
	releaseInterval = 50 * time.Millisecond
	releaseTimeout  = 5 * time.Second
)

// AwaitRelease returns the slot as soon as no session has it, or else as it is after five seconds:
// for a slot that a connection of this process had until now.
func AwaitRelease(ctx context.Context, conn *pgx.Conn, name string) (found Status, err error) {
	_, err = postgres.Poll(ctx, releaseInterval, releaseTimeout, func() (bool, error) {
		found, err = Get(ctx, conn, name)
		return !found.Active, err
	})
	return found, err
}

// AwaitFree waits until no session has the slot, or there is none of this name, or ctx ends.
// Another process may still take it first. The session that creates a slot has it until that is
// finished.
func AwaitFree(ctx context.Context, conn *pgx.Conn, name string) error {
	return await(ctx, conn, fmt.Sprintf("slot %q", name), freeInterval,
		`SELECT active OR confirmed_flush_lsn IS NULL
		FROM pg_catalog.pg_replication_slots WHERE slot_name = $1`, name)
}

// AwaitUnlocked waits until no process has what TryLock takes, or ctx ends. The slot itself is
// free, or absent, while a process copies the tables.
func AwaitUnlocked(ctx context.Context, conn *pgx.Conn, name string) error {
	return await(ctx, conn, fmt.Sprintf("the snapshot of slot %q", name), unlockedInterval,
		`SELECT EXISTS (SELECT FROM pg_catalog.pg_replication_slots WHERE slot_name = $1::name)`,
		LockName(name))
}

// await polls until the answer is false, or there is none.
func await(ctx context.Context, conn *pgx.Conn, what string, interval time.Duration,
	sql, name string) error {
	_, err := postgres.Poll(ctx, interval, 0, func() (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, freeTimeout)
		defer cancel()
		taken, err := postgres.One[bool](ctx, conn, sql, name)
		if errors.Is(err, pgx.ErrNoRows) {
			return true, nil
		}
		return !taken && err == nil, err
	})
	if err != nil {
		return fmt.Errorf("wait for %s: %w", what, err) // or the cause for which ctx has ended
	}
	return nil
}
