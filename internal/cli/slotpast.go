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

	"github.com/postrider/postrider/internal/daemon"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/slot"
)

// pastTransaction steps over the transaction that commits at c.past.
func (c *advance) pastTransaction(a *app, cmd *cobra.Command, args []string) error {
	commit, err := pglogrepl.ParseLSN(c.past)
	if err != nil || commit == 0 {
		return exit.Usagef("--past %s: not an LSN as 16/B374D848", c.past)
	}
	return a.connected(func(s *session) error {
		err := c.stepOver(s, commit)
		if f := (*exit.Error)(nil); err == nil || errors.As(err, &f) {
			return err
		}
		f := exit.Explain(err)
		if errors.Is(err, replication.ErrTransactionNotFound) {
			f.Code = exit.Config
			f.Next = "take the LSN of \"the transaction that commits at\" from the relay's " +
				"error; if the slot stands behind it already, there is nothing to do"
		}
		f.WAL = slotStays
		return f
	}, streamSections...)(cmd, args)
}

func (c *advance) stepOver(s *session, commit pglogrepl.LSN) error {
	if _, err := s.usableSlot(); err != nil {
		return err
	}
	found, err := daemon.FindTransaction(s.ctx, s.environment(), s.cfg, commit)
	if err != nil {
		return err
	}
	if err := s.describeTransaction(found); err != nil {
		return err
	}
	stands, err := s.releasedSlot()
	if err != nil {
		return err
	}
	why := fmt.Sprintf("transaction %d, which commits at %s, is never published, unless you do "+
		"it by hand", found.XID, found.CommitLSN)
	if found.Earlier > 0 {
		why += fmt.Sprintf("; nor are %d rows of %d transactions before it, unless the relay has "+
			"published them: it has if it halted because of this transaction", found.Earlier,
			found.EarlierTransactions)
	}
	if err := c.move(s, stands, found.Behind, why); err != nil || c.dryRun {
		return err
	}
	log := s.newLogger(s.cfg.Log)
	log.Warn().Str("slot", stands.Name).Uint32("xid", found.XID).
		Stringer("lsn", found.CommitLSN).Time("commit_time", found.CommitTime).
		Stringer("from", stands.ConfirmedFlushLSN).Stringer("to", found.Behind).
		Interface("rows", found.Events).AnErr("reason", found.Unsent).
		Str("role", s.conn.Config().User).
		Msg("slot was moved past a transaction, which is not published")
	return nil
}

// releasedSlot waits until the server has released the slot, a moment after the end of the
// connection.
func (s *session) releasedSlot() (slot.Status, error) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(5 * time.Second); ; {
		found, err := s.slot()
		if err != nil || !found.Active || time.Now().After(end) {
			return found, err // the server refuses to move one in use
		}
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			return found, context.Cause(s.ctx)
		}
	}
}

// describeTransaction prints the transaction, and which of its rows the tables still have.
func (s *session) describeTransaction(t replication.Transaction) error {
	rows := "no row of the outbox"
	if len(t.Events) > 0 {
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(t.Events)) {
			parts = append(parts, fmt.Sprintf("%d of %s", t.Events[name], name))
		}
		rows = "rows of the outbox: " + strings.Join(parts, ", ")
	}
	if t.Unsent != nil {
		rows = fmt.Sprintf("the server cannot send all of it: %v\nbefore that came %s", t.Unsent,
			rows)
	}
	err := s.printf("transaction %d commits at %s, on %s\n%s\n", t.XID, t.CommitLSN,
		t.CommitTime.UTC().Format(time.RFC3339), rows)
	for _, table := range s.cfg.Replication.Tables {
		if err == nil {
			err = s.describeRows(table, t.XID)
		}
	}
	return err
}

// rowsShown bounds the list of a transaction's rows.
const rowsShown = 20

// describeRows lists the rows that the table still has of a transaction. It reads the whole table,
// which takes the right to. It does not find rows inserted under a savepoint: their xmin is
// another.
func (s *session) describeRows(table string, xid uint32) error {
	schema, name, _ := strings.Cut(table, ".")
	quoted := pgx.Identifier{schema, name}.Sanitize()
	var key, size string
	err := s.conn.QueryRow(s.ctx, `SELECT coalesce((SELECT pg_catalog.format('pg_catalog.concat_ws('', '', %s)', pg_catalog.string_agg(pg_catalog.quote_ident(k.attname::text), ', ' ORDER BY k.attnum))
			FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute k ON k.attrelid = i.indrelid AND k.attnum = ANY (i.indkey)
			WHERE i.indrelid = c.oid AND i.indisprimary HAVING pg_catalog.count(*) > 0), 'ctid::text'),
			(SELECT pg_catalog.string_agg(pg_catalog.format('coalesce(pg_catalog.pg_column_size(%I), 0)::bigint', a.attname), ' + ')
			FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)
		FROM pg_catalog.pg_class c WHERE c.oid = pg_catalog.to_regclass($1)::oid AND pg_catalog.has_table_privilege(c.oid, 'SELECT')`,
		quoted).Scan(&key, &size)
	if errors.Is(err, pgx.ErrNoRows) {
		return s.printf("%s: its rows cannot be listed without the right to read it\n", table)
	}
	if err != nil {
		return fmt.Errorf("look at the columns of %s: %w", table, err)
	}
	rows, err := s.conn.Query(s.ctx, fmt.Sprintf("SELECT %s, %s, pg_catalog.count(*) OVER () "+
		"FROM %s WHERE xmin::text = $1 LIMIT %d", key, size, quoted, rowsShown), fmt.Sprint(xid))
	if err != nil {
		return fmt.Errorf("look for the transaction's rows in %s: %w", table, err)
	}
	var id string
	var stored, count, n int64
	_, err = pgx.ForEachRow(rows, []any{&id, &stored, &count}, func() error {
		if n++; n == 1 {
			fmt.Fprintf(s.Stdout, "%s still has %d of its rows:\n", table, count)
		}
		return s.printf("   %s   %s stored\n", id, health.Bytes(stored))
	})
	switch {
	case err != nil:
		return fmt.Errorf("look for the transaction's rows in %s: %w", table, err)
	case n == 0:
		return s.printf("%s has none of its rows any more, or only such as were inserted under "+
			"a savepoint\n", table)
	case n < count:
		return s.printf("   and %d more\n", count-n)
	}
	return nil
}
