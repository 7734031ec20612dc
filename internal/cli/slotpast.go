package cli

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
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
	stands, err := slot.AwaitRelease(s.ctx, s.conn, s.cfg.Slot.Name)
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

// describeRows lists the rows that a table still has of a transaction.
func (s *session) describeRows(table string, xid uint32) error {
	rows, err := slot.RowsOfTransaction(s.ctx, s.conn, table, xid)
	switch {
	case err != nil:
		return err
	case rows.Unreadable:
		return s.printf("%s: its rows cannot be listed without the right to read it\n", table)
	case rows.Count == 0:
		return s.printf("%s has none of its rows any more, or only such as were inserted under "+
			"a savepoint\n", table)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s still has %d of its rows:\n", table, rows.Count)
	for _, row := range rows.First {
		fmt.Fprintf(&text, "   %s   %s stored\n", row.ID, health.Bytes(row.Bytes))
	}
	if more := rows.Count - int64(len(rows.First)); more > 0 {
		fmt.Fprintf(&text, "   and %d more\n", more)
	}
	return s.printf("%s", &text)
}
