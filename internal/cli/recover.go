package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/internal/backfill"
	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/daemon"
	"github.com/postrider/postrider/internal/exit"
)

// recovery is one call of recover.
type recovery struct {
	*app
	cfg       config.Config
	publish   bool
	gap       bool
	selection backfill.Selection
}

func newRecover(a *app) *cobra.Command {
	c := recovery{app: a}
	cmd := &cobra.Command{
		Use:   "recover",
		Short: "Publish the rows that a lost slot did not deliver, from the tables",
		Long: `recover compares the outbox tables with their topics, and says which rows are
missing there. It is a dry run: with --publish it publishes them, in the order of the tables, and
recreates the slot, so that 'postrider run' can start and nothing is missing or repeated.

The new slot is made before a row is read: what is committed meanwhile comes by it. The lost slot
stays until everything is published. A recovery that was interrupted is repeated with the same
command: what is in the topics is left out.

Rows that were deleted from the tables cannot be published, nor can logical messages: stop the
job that cleans up the outbox first.

Without --since, --until and --id it looks for all rows that the lost slot cannot have delivered,
as far as the slot still has its catalog_xmin, or for all rows of the tables if it was
dropped. With --until or --id a lost slot stays lost.

The login needs SELECT on the tables, and to read the topics.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd) },
	}
	f := cmd.Flags()
	f.BoolVar(&c.publish, "publish", false, "publish what is missing, and recreate the slot")
	a.yesFlag(cmd)
	f.BoolVar(&c.gap, "gap", false, "all rows of the gap: the default")
	timeFlag(cmd, &c.selection.Since, "since",
		"rows that were inserted from a `TIME` on: 2026-01-31T12:00:00Z, or a duration before now "+
			"(36h); older ones count as delivered, even if they were committed later")
	timeFlag(cmd, &c.selection.Until, "until", "rows from before a `TIME`")
	f.StringVar(&c.selection.TimeColumn, "time-column", "",
		"`COLUMN` with the time of the insert, for --since and --until (default "+
			"snapshot.order_by, else created_at or createdAt)")
	f.StringSliceVar(&c.selection.IDs, "id", nil, "rows with this `ID`; may be repeated")
	f.Uint32Var(&c.selection.FromXmin, "from-xmin", 0,
		"rows of transactions from this `XID` on: the catalog_xmin of a slot that was dropped, "+
			"as the relay reported")
	f.BoolVar(&c.selection.Partial, "partial-topics", false,
		"publish every row that is not in the topics, even if they have lost their older records")
	f.BoolVar(&c.selection.SkipRefused, "skip-refused", false,
		"leave out rows that cannot be routed, and those that may have a dead letter under an earlier "+
			"name of their table")
	a.jsonFlag(cmd, "")
	return cmd
}

func (c *recovery) run(cmd *cobra.Command) error {
	if c.gap && (cmd.Flags().Changed("until") || len(c.selection.IDs) > 0) {
		return exit.Usagef("--gap is all rows: not with --until or --id")
	}
	l, err := c.load(cmd)
	if err != nil {
		return err
	}
	c.warn(l.Warnings)
	c.cfg = l.Config
	switch name := c.cfg.Slot.Name; {
	case c.cfg.Sink.Kind != config.SinkKafka:
		return exit.Usagef("recover reads topics back: sink.kind has to be kafka")
	case len(c.cfg.Replication.Tables) == 0:
		return exit.Usagef("replication.tables is empty: logical messages are in no table")
	case c.publish:
		if err := c.confirm(name, fmt.Sprintf("publishes rows of the tables that are not in "+
			"their topics, and recreates slot %s if it is lost", name)); err != nil {
			return err
		}
	}
	report, err := daemon.Recover(cmd.Context(), c.environment(), c.cfg, c.selection, c.publish,
		c.progress, c.newLogger(c.cfg.Log))
	if err != nil {
		return err
	}
	return c.print(report, func(w io.Writer) error { return c.write(w, report) })
}

// mostNamed bounds the list of open transactions.
const mostNamed = 10

// write writes what was found and done, and what to type next.
func (c *recovery) write(w io.Writer, r *backfill.Report) error {
	fmt.Fprintf(w, "slot %s was %s", r.Slot, r.State)
	if r.Reason != "" {
		fmt.Fprintf(w, " (%s)", r.Reason)
	}
	if r.ConfirmedFlushLSN != 0 {
		fmt.Fprintf(w, ", confirmed up to %s", r.ConfirmedFlushLSN)
	}
	fmt.Fprintln(w)
	if r.BySlot > 0 {
		fmt.Fprintf(w, "%s left to the slot, by which they come\n", quantity(r.BySlot, "row"))
	}
	if n := len(r.OpenTransactions); n > 0 {
		more := ""
		if n > mostNamed {
			more = fmt.Sprintf(" and %d more", n-mostNamed)
		}
		fmt.Fprintf(w, "rows of %s may not be counted yet: %s%s\n",
			quantity(n, "open transaction"),
			strings.Join(r.OpenTransactions[:min(n, mostNamed)], ", "), more)
	}
	for _, t := range r.Tables {
		if t.TimeColumn != "" {
			fmt.Fprintf(w, "rows of %s %s by %s\n", t.Table, insertedText(c.selection),
				t.TimeColumn)
		}
	}
	verb := "TO PUBLISH"
	if c.publish {
		verb = "PUBLISHED"
	}
	lines := [][]string{{"TABLE", "ROWS COMPARED", "IN TOPICS", "DEAD LETTERS", "NO MESSAGE",
		"REFUSED", verb, "FIRST", "LAST"}}
	for _, t := range r.Tables {
		line := []string{t.Table}
		for _, n := range []int64{t.Rows, t.Delivered, t.DeadLetters, t.NoMessage, t.Refused,
			t.Undelivered} {
			line = append(line, fmt.Sprint(n))
		}
		lines = append(lines, append(line, placeText(t.First), placeText(t.Last)))
	}
	lines = append(lines, nil, []string{"TOPIC", "RECORDS READ", verb})
	for _, t := range r.Topics {
		published := fmt.Sprint(t.Undelivered)
		if !t.Whole {
			published += "   (older records are gone)"
		}
		lines = append(lines, []string{t.Topic, fmt.Sprint(t.Records), published})
	}
	if err := writeTable(w, lines...); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s\n", c.typed(c.outcome(r)))
	return err
}

// insertedText is a selection by time.
func insertedText(s backfill.Selection) string {
	text := "inserted"
	if !s.Since.IsZero() {
		text += " since " + s.Since.UTC().Format(time.RFC3339)
	}
	if !s.Until.IsZero() {
		text += " before " + s.Until.UTC().Format(time.RFC3339)
	}
	return text
}

func placeText(p *backfill.Place) string {
	switch {
	case p == nil:
		return "-"
	case p.Time == "":
		return p.ID
	}
	return p.ID + " (" + p.Time + ")"
}

// outcome returns the last line of the report.
func (c *recovery) outcome(r *backfill.Report) string {
	rows := quantity(r.Undelivered(), "row")
	switch {
	case r.Refusal != nil:
		return fmt.Sprintf("--publish would refuse: %v\nnext: %s", r.Refusal,
			exit.Explain(r.Refusal).Next)
	case !c.publish:
		these, slot := "these "+rows+" are", ", and the slot is recreated."
		if r.Undelivered() == 1 {
			these = "this 1 row is"
		}
		if r.State == "usable" {
			slot = "; the slot stays as it is."
		}
		return "Nothing was changed. With --publish " + these + " published" + slot
	case r.Recreated:
		return fmt.Sprintf("%s published. Slot %s is recreated: what was committed after %s "+
			"comes by it. Start the relay: postrider run", rows, r.Slot, r.ConsistentPoint)
	case r.State == "usable":
		return rows + " published. The relay can start: postrider run"
	}
	return fmt.Sprintf("%s published. Slot %s is %s as before: postrider recover, without --id "+
		"and --until, recreates it", rows, r.Slot, r.State)
}
