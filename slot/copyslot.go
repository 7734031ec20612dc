package slot

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
)

// CopySlot makes the slot of cfg at the position of another one, which stays. It waits for no transaction, and keeps the WAL that the other keeps. pg is
// for the replication connection that a failover slot takes from PostgreSQL 17 on.
func CopySlot(ctx context.Context, pg postgres.Config, conn *pgx.Conn, from string, cfg Config) error {
	if err := errors.Join(cfg.Validate(), canFailover(conn, cfg)); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, `SELECT pg_catalog.pg_copy_logical_replication_slot($1, $2)`, from, cfg.Name); err != nil {
		return fmt.Errorf("copy slot %q: %w", from, createError(ctx, conn, cfg.Name, err))
	}
	if !cfg.Failover { // which is not copied
		return nil
	}
	replication, err := postgres.ConnectReplication(ctx, pg)
	if err != nil {
		return err
	}
	defer func() {
		closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = replication.Close(closeCtx)
	}()
	if _, err := replication.Exec(ctx, "ALTER_REPLICATION_SLOT "+postgres.QuoteName(cfg.Name)+" (FAILOVER true)").ReadAll(); err != nil {
		return fmt.Errorf("let standbys keep a copy of slot %q: %w", cfg.Name, commandError(ctx, conn, err, cfg.Name))
	}
	return nil
}
