package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/daemon"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/prune"
	"github.com/postrider/postrider/internal/terminal"
)

// pruning is one call of prune.
type pruning struct {
	*app
	cfg    config.Config
	dryRun bool
	accept bool
}

func newPrune(a *app) *cobra.Command {
	c := pruning{app: a}
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove delivered rows from the outbox tables",
		Long: `prune removes rows that were delivered and are older than prune.retention, once. It may
run from cron, also beside a relay that prunes by itself; 'postrider run' does that with
prune.enabled.

A row counts as delivered if the slot is confirmed beyond its commit, and if it is proven that the
slot sends it: slot and publication were there, without interruption, since before its transaction
began. The first run only begins that proof, and removes nothing. Rows that are not proven stay,
whatever their age. --dry-run counts them.

It waits for the relay to confirm what the tables show, so it takes a relay that streams.

--accept-gap makes every row that is in the tables now count as delivered. Use it after 'postrider
recover' has shown that no row is missing in the topics.

Of a partitioned table it creates the partitions ahead (prune.partitions_ahead) and removes whole
partitions. That takes the rights of the table's owner.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd) },
	}
	f := cmd.Flags()
	f.BoolVar(&c.dryRun, "dry-run", false, "count what would be removed, and change nothing")
	f.BoolVar(&c.accept, "accept-gap", false,
		"make all rows that are in the tables now count as delivered")
	cmd.MarkFlagsMutuallyExclusive("dry-run", "accept-gap")
	a.yesFlag(cmd)
	a.jsonFlag(cmd, "")
	return cmd
}

func (c *pruning) run(cmd *cobra.Command) error {
	l, err := c.load(cmd)
	if err != nil {
		return err
	}
	c.warn(l.Warnings)
	c.cfg = l.Config
	mode := prune.Save
	switch name := c.cfg.Slot.Name; {
	case c.cfg.Sink.Kind != config.SinkKafka:
		return exit.Usagef("rows that were printed were not delivered: sink.kind has to be kafka")
	case len(c.cfg.Replication.Tables) == 0:
		return exit.Usagef("replication.tables is empty: logical messages are in no table")
	case c.dryRun:
		mode = prune.DryRun
	case c.accept:
		mode = prune.Accept
		err := c.confirm(name, "makes every row that is in the tables now count as delivered by slot "+
			name+", so that it is removed when it is old enough")
		if err != nil {
			return err
		}
	}
	report, err := daemon.Prune(cmd.Context(), c.environment(), c.cfg, mode, c.newLogger(c.cfg.Log))
	if err != nil {
		return err
	}
	if err := c.print(report, func(w io.Writer) error { return c.write(w, report) }); err != nil {
		return err
	}
	return statusUnless(report.Refusal() == nil, exit.Config)
}

func (c *pruning) write(w io.Writer, r *prune.Report) error {
	lines := [][]string{{"TABLE", "REMOVED", "COVERED SINCE", "DEAD ROWS", "LAST AUTOVACUUM"}}
	if r.DryRun {
		lines[0] = []string{"TABLE", "ROWS", "TO REMOVE", "OLD, NOT PROVEN", "DEAD LETTERS",
			"COVERED SINCE"}
	}
	for _, t := range r.Tables {
		covered := sinceText(t.CoveredSince)
		switch {
		case t.Refused != "":
			lines = append(lines, []string{t.Table, "refused"})
		case t.Partitions != nil:
			lines = append(lines, []string{t.Table, "by partition"})
		case r.DryRun:
			lines = append(lines, []string{t.Table, fmt.Sprint(t.Rows), fmt.Sprint(t.Removed),
				fmt.Sprint(t.Unproven), fmt.Sprint(t.Held), covered})
		default:
			lines = append(lines, []string{t.Table, fmt.Sprint(t.Removed), covered,
				fmt.Sprint(t.DeadRows), sinceText(t.LastAutovacuum)})
		}
	}
	if err := writeTable(w, lines...); err != nil {
		return err
	}
	for _, t := range r.Tables {
		if t.Refused != "" {
			fmt.Fprintf(w, "\n%s\nnext: %s\n", t.Refused, c.typed(t.Fix))
		}
		writePartitions(w, r.DryRun, t.Partitions)
		for _, warning := range t.Warnings {
			fmt.Fprintf(w, "\nwarning: %s: %s\n", t.Table, warning)
		}
		for _, gap := range t.Gaps {
			from := "before"
			if !gap.From.IsZero() {
				from = "from " + sinceText(gap.From) + " to"
			}
			fmt.Fprintf(w, "\n%s: rows written, or rewritten by ALTER TABLE, %s %s are kept: it is not "+
				"proven that the slot sends them\n", t.Table, from, sinceText(gap.To))
		}
		if len(t.Gaps) > 0 {
			fmt.Fprintf(w, "next: %s\n", c.typed(prune.FixGap))
		}
	}
	return nil
}

func writePartitions(w io.Writer, dryRun bool, p *prune.PartitionReport) {
	if p == nil {
		return
	}
	would := ""
	if dryRun {
		would = "to be "
	}
	for _, name := range p.Created {
		fmt.Fprintf(w, "\npartition %s: %screated\n", terminal.Printable(name), would)
	}
	for _, name := range p.Removed {
		fmt.Fprintf(w, "\npartition %s: %sremoved\n", terminal.Printable(name), would)
	}
	for _, kept := range p.Kept {
		fmt.Fprintf(w, "\npartition %s: kept: %s\n", terminal.Printable(kept.Name),
			terminal.OneLine(kept.Why))
	}
}

func sinceText(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}
