package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/daemon"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/slot"
)

// pastTransaction steps over the transaction that commits at c.past.
func (c *advance) pastTransaction(cmd *cobra.Command, args []string) error {
	commit, err := pglogrepl.ParseLSN(c.past)
	if err != nil || commit == 0 {
		return exit.Usagef("--past %s: not an LSN as 16/B374D848", c.past)
	}
	err = c.app.connected(cmd, args,
		func(ctx context.Context, conn *pgx.Conn, cfg config.Config) error {
			return c.stepOver(ctx, conn, cfg, commit)
		}, streamSections...)
	if f := (*exit.Error)(nil); err == nil || errors.As(err, &f) {
		return err
	}
	f := exit.Explain(err)
	if errors.Is(err, replication.ErrTransactionNotFound) {
		f.Code = exit.Config
		f.Next = "take the LSN of \"the transaction that commits at\" from the relay's error; " +
			"if the slot stands behind it already, there is nothing to do"
	}
	f.WAL = slotStays
	return f
}

func (c *advance) stepOver(ctx context.Context, conn *pgx.Conn, cfg config.Config,
	commit pglogrepl.LSN) error {
	s, err := slot.Get(ctx, conn, cfg.Slot.Name)
	if err != nil {
		return err
	}
	if err := slot.Verify(s.Slot, conn.Config().Database); err != nil {
		return err
	}
	found, err := daemon.FindTransaction(ctx, c.app.environment(), cfg, commit)
	if err != nil {
		return err
	}
	if err := c.describeTransaction(ctx, conn, cfg, found); err != nil {
		return err
	}
	if s, err = released(ctx, conn, s.Name); err != nil {
		return err
	}
	why := fmt.Sprintf("transaction %d, which commits at %s, is never published, unless you do "+
		"it by hand", found.XID, found.CommitLSN)
	if found.Earlier > 0 {
		why += fmt.Sprintf("; nor are %d rows of %d transactions before it, unless the relay "+
			"has published them: "+
			"it has if it halted because of this transaction", found.Earlier,
			found.EarlierTransactions)
	}
	if err := c.move(ctx, conn, s, found.Behind, why); err != nil || c.dryRun {
		return err
	}
	log := c.app.newLogger(cfg.Log)
	log.Warn().Str("slot", s.Name).Uint32("xid", found.XID).Stringer("lsn",
		found.CommitLSN).Time("commit_time", found.CommitTime).
		Stringer("from", s.ConfirmedFlushLSN).Stringer("to", found.Behind).Interface("rows",
		found.Events).AnErr("reason", found.Unsent).
		Str("role", conn.Config().User).Msg("slot was moved past a transaction, which is not " +
		"published")
	return nil
}

// released waits until the server has released the slot, a moment after the end of the connection.
func released(ctx context.Context, conn *pgx.Conn, name string) (slot.Status, error) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(5 * time.Second); ; {
		s, err := slot.Get(ctx, conn, name)
		if err != nil || !s.Active || time.Now().After(end) {
			return s, err // the server refuses to move one in use
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return s, context.Cause(ctx)
		}
	}
}

// describeTransaction prints the transaction, and which of its rows the tables still have.
func (c *advance) describeTransaction(ctx context.Context, conn *pgx.Conn, cfg config.Config,
	t replication.Transaction) error {
	out := c.app.Stdout
	fmt.Fprintf(out, "transaction %d commits at %s, on %s\n", t.XID, t.CommitLSN,
		t.CommitTime.UTC().Format(time.RFC3339))
	rows := "no row of the outbox"
	if len(t.Events) > 0 {
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(t.Events)) {
			parts = append(parts, fmt.Sprintf("%d of %s", t.Events[name], name))
		}
		rows = "rows of the outbox: " + strings.Join(parts, ", ")
	}
	if t.Unsent != nil {
		fmt.Fprintf(out, "the server cannot send all of it: %v\nbefore that came %s\n", t.Unsent,
			rows)
	} else {
		fmt.Fprintln(out, rows)
	}
	for _, table := range cfg.Replication.Tables {
		if err := c.describeRows(ctx, conn, table, t.XID); err != nil {
			return err
		}
	}
	return nil
}

// rowsShown bounds the list of a transaction's rows.
const rowsShown = 20

// describeRows lists the rows that the table still has of a transaction. It reads the whole table,
// which takes the right to. It does not find rows inserted under a savepoint: their xmin is
// another.
func (c *advance) describeRows(ctx context.Context, conn *pgx.Conn, table string,
	xid uint32) error {
	schema, name, _ := strings.Cut(table, ".")
	var key, size string
	err := conn.QueryRow(ctx, `SELECT coalesce((SELECT pg_catalog.format('pg_catalog.concat_ws('', '', %s)', pg_catalog.string_agg(pg_catalog.quote_ident(k.attname::text), ', ' ORDER BY k.attnum))
			FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute k ON k.attrelid = i.indrelid AND k.attnum = ANY (i.indkey)
			WHERE i.indrelid = c.oid AND i.indisprimary HAVING pg_catalog.count(*) > 0), 'ctid::text'),
			(SELECT pg_catalog.string_agg(pg_catalog.format('coalesce(pg_catalog.pg_column_size(%I), 0)::bigint', a.attname), ' + ')
			FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)
		FROM pg_catalog.pg_class c WHERE c.oid = pg_catalog.to_regclass($1)::oid AND pg_catalog.has_table_privilege(c.oid, 'SELECT')`,
		pgx.Identifier{schema, name}.Sanitize()).Scan(&key, &size)
	if errors.Is(err, pgx.ErrNoRows) {
		fmt.Fprintf(c.app.Stdout, "%s: its rows cannot be listed without the right to read it\n",
			table)
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at the columns of %s: %w", table, err)
	}
	rows, err := conn.Query(ctx,
		fmt.Sprintf("SELECT %s, %s, pg_catalog.count(*) OVER () FROM %s WHERE xmin::text = $1 "+
			"LIMIT %d",
			key, size, pgx.Identifier{schema, name}.Sanitize(), rowsShown), fmt.Sprint(xid))
	if err != nil {
		return fmt.Errorf("look for the transaction's rows in %s: %w", table, err)
	}
	var id string
	var stored, count int64
	n := int64(0)
	_, err = pgx.ForEachRow(rows, []any{&id, &stored, &count}, func() error {
		if n++; n == 1 {
			fmt.Fprintf(c.app.Stdout, "%s still has %d of its rows:\n", table, count)
		}
		_, err := fmt.Fprintf(c.app.Stdout, "   %s   %s stored\n", id, health.Bytes(stored))
		return err
	})
	switch {
	case err != nil:
		return fmt.Errorf("look for the transaction's rows in %s: %w", table, err)
	case n == 0:
		fmt.Fprintf(c.app.Stdout,
			"%s has none of its rows any more, or only such as were inserted under a savepoint\n",
			table)
	case n < count:
		fmt.Fprintf(c.app.Stdout, "   and %d more\n", count-n)
	}
	return nil
}
