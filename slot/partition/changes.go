package partition

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
)

const (
	// The wait for a change of tables to become visible.
	changesInterval = 20 * time.Millisecond
	changesTimeout  = 2 * time.Second
)

// selectChanging reports whether a transaction, $1, is running for others and may have changed
// tables: until its changes are visible it has a lock stronger than a writer's.
const selectChanging = `
WITH l AS MATERIALIZED (SELECT k.locktype, k.transactionid, k.virtualtransaction, k.mode FROM
  pg_catalog.pg_locks k WHERE k.granted)
SELECT EXISTS (SELECT FROM l t JOIN l s ON s.virtualtransaction = t.virtualtransaction
  WHERE t.locktype = 'transactionid' AND t.transactionid = $1::pg_catalog.xid
  AND s.locktype = 'relation' AND s.mode NOT IN ('AccessShareLock', 'RowShareLock',
  'RowExclusiveLock'))`

// AwaitChanges blocks until the catalogs show what a decoded transaction has done to tables, two
// seconds at most. It is decoded as soon as its commit is written, and may be invisible for long
// while it waits for a synchronous standby. One that only wrote rows is not waited for: the
// standby may be the caller. xid is without its epoch, as the stream has it; zero: nothing is
// waited for.
func AwaitChanges(ctx context.Context, conn *pgx.Conn, xid uint32) error {
	if xid == 0 {
		return nil
	}
	visible, err := postgres.Poll(ctx, changesInterval, changesTimeout, func() (bool, error) {
		changing, err := postgres.One[bool](ctx, conn, selectChanging, xid)
		return !changing, err
	})
	switch {
	case err != nil:
		return fmt.Errorf("look whether transaction %d is visible: %w", xid, err)
	case !visible:
		return fmt.Errorf("transaction %d has changed tables and committed, and is not visible yet: "+
			"it may wait for a synchronous standby", xid)
	}
	return nil
}
