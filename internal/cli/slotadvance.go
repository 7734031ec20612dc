package cli

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/spf13/cobra"

	"github.com/postrider/postrider/internal/daemon"
	"github.com/postrider/postrider/internal/debezium"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/internal/terminal"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/slot"
)

// advance is one call of slot advance.
type advance struct {
	dryRun  bool
	to      string
	offsets string // file with a Debezium offset, or -
	past    string // commit LSN of a transaction
}

// streamSections are those that reading the slot as run does needs.
var streamSections = []string{"replication", "router", "format"}

func newSlotAdvance(a *app) *cobra.Command {
	c := advance{}
	cmd := &cobra.Command{
		Use:               "advance NAME (--to LSN | --past LSN | --debezium-offsets FILE)",
		ValidArgsFunction: a.slotArgument,
		Short:             "Move a slot forward: what lies between is never published",
		Long: `advance moves the confirmed position of a slot that is not in use.

--past steps over one transaction that holds up the slot, because the server cannot send a row of
it or the relay cannot take one. LSN is where the transaction commits, as the relay's error says.
The slot is read, without moving it, up to that transaction; the command says what would not be
published, then moves the slot behind it. Run it with --dry-run first.

--debezium-offsets is for taking over the slot of a Debezium connector, whose position always
lags behind what the connector has published. FILE, or - for standard input, is what Kafka
Connect answers to GET /connectors/NAME/offsets after the connector was stopped, one offset as a
JSON object, or the offset file of Debezium Server or of a standalone worker. The slot is read,
without moving it, to find the transaction of the last event published. It then moves behind that
transaction, or, if not all of its rows were published, behind the one before; and the command
says how many rows are published again.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if c.offsets != "" {
				return c.behindDebezium(a, cmd, args)
			}
			if c.past != "" {
				return c.pastTransaction(a, cmd, args)
			}
			var target pglogrepl.LSN // zero: the server's own position
			if c.to != "current" {
				lsn, err := postgres.ParseLSN(c.to)
				if err != nil || lsn == 0 {
					return exit.Usagef("--to %s: not an LSN as 16/B374D848, and not current", c.to)
				}
				target = lsn
			}
			return a.connected(func(s *session) error { return c.moveTo(s, target) })(cmd, args)
		},
	}
	cmd.Flags().StringVar(&c.to, "to", "", "position to move to, as `LSN` or \"current\"")
	cmd.Flags().StringVar(&c.past, "past", "", "step over the transaction that commits at `LSN`")
	cmd.Flags().StringVar(&c.offsets, "debezium-offsets", "",
		"move behind what Debezium has published, as its stored offset in `FILE` says; - reads "+
			"standard input")
	cmd.Flags().BoolVar(&c.dryRun, "dry-run", false,
		"say where the slot would move, and change nothing")
	a.yesFlag(cmd)
	cmd.MarkFlagsMutuallyExclusive("to", "past", "debezium-offsets")
	cmd.MarkFlagsOneRequired("to", "past", "debezium-offsets")
	return cmd
}

func (c *advance) moveTo(s *session, target pglogrepl.LSN) error {
	found, err := s.slot()
	if err != nil {
		return err
	}
	target = cmp.Or(target, found.CurrentWALLSN)
	switch {
	case target > found.CurrentWALLSN:
		return exit.Usagef("--to %s: the server has written only up to %s", target,
			found.CurrentWALLSN)
	case target < found.ConfirmedFlushLSN:
		return exit.Usagef("--to %s: slot %s stands at %s already, and does not move back", target,
			found.Name, found.ConfirmedFlushLSN)
	}
	return c.move(s, found, target, "rows committed in between are never published")
}

// move moves the slot after a confirmation. why is what becomes of the rows in between.
func (c *advance) move(s *session, found slot.Status, target pglogrepl.LSN, why string) error {
	if target == found.ConfirmedFlushLSN {
		return s.printf("slot %s stands at %s\n", found.Name, target)
	}
	way := fmt.Sprintf("from %s to %s: %s", found.ConfirmedFlushLSN, target, why)
	if c.dryRun {
		return s.printf("slot %s would move %s\n", found.Name, way)
	}
	if err := s.confirm(found.Name, "moves slot "+found.Name+" "+way); err != nil {
		return err
	}
	end, err := slot.Advance(s.ctx, s.conn, found.Name, target)
	if err != nil {
		return err
	}
	return s.printf("slot %s stands at %s\n", found.Name, end)
}

// behindDebezium moves the slot behind what a stopped connector has published.
func (c *advance) behindDebezium(a *app, cmd *cobra.Command, args []string) error {
	if c.offsets == "-" && !a.yes && !c.dryRun {
		return exit.Usagef("--debezium-offsets - takes standard input, where the slot's name " +
			"would be typed: add --yes or --dry-run")
	}
	last, err := c.lastEvent(a)
	if err != nil {
		return err
	}
	handOver := func(s *session) error { return c.handOver(s, last) }
	return a.connected(handOver, streamSections...)(cmd, args)
}

const slotStays = "none is lost: the slot stays where it is"

// lastEvent reads the file of --debezium-offsets.
func (c *advance) lastEvent(a *app) (last replication.LastEvent, err error) {
	data, err := a.read(c.offsets)
	if err != nil {
		return last, exit.Usagef("--debezium-offsets %s: %v", c.offsets, err)
	}
	offset, err := debezium.ParseOffset(data)
	if err == nil {
		last, err = offset.LastEvent()
	}
	if err != nil {
		return last, uselessOffset(fmt.Errorf("--debezium-offsets %s: %w", c.offsets, err))
	}
	return last, nil
}

// uselessOffset returns the error for an offset that leads to no position of the slot.
func uselessOffset(err error) error {
	return &exit.Error{Code: exit.Config, Err: err, WAL: slotStays,
		Next: "take the offset of the connector that used this slot, after it was stopped. " +
			"Without one, postrider starts where the slot stands: nothing is lost, " +
			"and what Debezium published since then is published again"}
}

// handOver finds the position behind the last event, and moves the slot there.
func (c *advance) handOver(s *session, last replication.LastEvent) error {
	stands, err := s.usableSlot()
	if err != nil {
		return err
	}
	found, err := daemon.FindHandover(s.ctx, s.environment(), s.cfg, last)
	switch {
	case errors.Is(err, replication.ErrEventBehind):
		return s.printf("slot %s stands at %s, which covers what Debezium has stored: "+
			"nothing to move\n", stands.Name, stands.ConfirmedFlushLSN)
	case errors.Is(err, replication.ErrEventNotFound):
		return uselessOffset(err)
	case err != nil:
		return err
	}
	why := fmt.Sprintf("%d rows of %s in between were published by Debezium, and are not "+
		"published again", found.Published, strings.Join(s.cfg.Replication.Tables, ", "))
	if err := c.move(s, stands, found.LSN, why); err != nil {
		return err
	}
	again := "none of them is published again"
	if found.Again > 0 {
		again = fmt.Sprintf("the last %d are published again: "+
			"their transaction has more rows, which the offset does not cover", found.Again)
	}
	return s.printf("the offset covers %d rows published since %s; %s\n",
		found.Published+found.Again, found.Confirmed, again)
}

// pastTransaction steps over the transaction that commits at c.past.
func (c *advance) pastTransaction(a *app, cmd *cobra.Command, args []string) error {
	commit, err := postgres.ParseLSN(c.past)
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
			"published them: it has if it halted because of this transaction; if it was trying again, "+
			"let it run until they are confirmed", found.Earlier, found.EarlierTransactions)
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
		fmt.Fprintf(&text, "   %s   %s stored\n", terminal.Printable(row.ID), health.Bytes(row.Bytes))
	}
	if more := rows.Count - int64(len(rows.First)); more > 0 {
		fmt.Fprintf(&text, "   and %d more\n", more)
	}
	return s.printf("%s", &text)
}
