package slot

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/postgres"
)

const (
	// Consumers wait for a takeover. A look is one row of shared memory: no table, no transaction id.
	freeInterval = 200 * time.Millisecond
	// A server that does not answer for that long is another matter.
	freeTimeout = 10 * time.Second
)

// AwaitFree waits until nobody reads from the slot, or there is none of this name, or ctx ends. Who has waited still has to be the first to take it.
func AwaitFree(ctx context.Context, conn *pgx.Conn, name string) error {
	tick := time.NewTicker(freeInterval)
	defer tick.Stop()
	for {
		taken, err := taken(ctx, conn, name)
		if err != nil {
			return fmt.Errorf("wait for slot %q: %w", name, err)
		}
		if !taken {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for slot %q: %w", name, context.Cause(ctx))
		}
	}
}

// taken counts a slot whose creation is not finished: its maker holds it, and disappears with it.
func taken(ctx context.Context, conn *pgx.Conn, name string) (yes bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, freeTimeout)
	defer cancel()
	err = conn.QueryRow(ctx, `SELECT active OR confirmed_flush_lsn IS NULL FROM pg_catalog.pg_replication_slots WHERE slot_name = $1`, name).Scan(&yes)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return yes, postgres.Error(err)
}
