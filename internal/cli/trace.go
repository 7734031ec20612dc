package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/trace"
	"github.com/postrider/postrider/internal/units"
)

func newTrace(a *app) *cobra.Command {
	r := trace.Request{Consented: true}
	key, scan := "", false
	cmd := &cobra.Command{
		Use:   "trace [EVENT_ID]",
		Short: "Say where an event is: in the table, committed, published or why not",
		Long: `trace looks for an event by its id, or with --key for all events of a key: in the
tables of replication.tables, in the topics to which their rows are routed, and among the dead
letters. It says whether the event is published, where, and how long each step took; or why it is
not. It changes nothing.

A topic is read from the time of the row on, by a column or its id (UUIDv7), and otherwise from its
end backwards, up to --max-read. A table in which no index finds the row is read up to 64 MiB, or
as a whole with --scan.

If the row was deleted, or is a logical message, --topic looks in one topic alone and uses no
database: from --since on, an hour ago by default.

The login needs SELECT on the tables, and the ACLs Describe and Read on the topics.

Exit status: 0 published; 75 it waits for the relay, try again; 1 not published, not found or not
decided; otherwise as for run. docs/TRACE.md explains the rest.`,
		Example: `  postrider trace 5f0b0bd2-6a3e-4b49-8a0a-0a2b9f1f7c01
  postrider trace --key 17 --aggregate-type order
  postrider trace 5f0b0bd2-6a3e-4b49-8a0a-0a2b9f1f7c01 --topic outbox.event.order --since 24h`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f := cmd.Flags()
	f.StringVar(&key, "key", "", "all events with this `key`, in the order of their commits")
	f.StringVar(&r.AggregateType, "aggregate-type", "",
		"with --key: only rows with this `value` in the column that decides the topic")
	f.StringVar(&r.Topic, "topic", "", "look in this `topic` alone, and in no table")
	timeFlag(cmd, &r.Since, "since",
		"read topics from there: a `duration` (1h) or time (2026-01-31T12:00:00Z)")
	r.MaxRead = trace.DefaultMaxRead
	parsedFlag(cmd, "max-read", units.FormatSize(trace.DefaultMaxRead),
		"`size` of the records to read at most", func(text string) (err error) {
			if r.MaxRead, err = units.ParseSize(text); err != nil || r.MaxRead < 1 {
				return fmt.Errorf("expected a size such as 1GiB")
			}
			return nil
		})
	f.BoolVar(&scan, "scan", false, "read a table as a whole if no index finds the row")
	a.jsonFlag(cmd, "")
	completeNothing(cmd, "key", "aggregate-type", "topic", "since", "max-read")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			r.ID = args[0]
		}
		if cmd.Flags().Changed("key") {
			r.Key = &key
		}
		if r.MaxScan = trace.DefaultMaxScan; scan {
			r.MaxScan = math.MaxInt64
		}
		return a.trace(cmd, r)
	}
	return cmd
}

func (a *app) trace(cmd *cobra.Command, r trace.Request) error {
	if err := r.Validate(); err != nil {
		return err
	}
	sections := []string{"sink", "router", "deadletter", "log"}
	if r.Topic == "" {
		sections = append(sections, "postgres", "replication", "format")
	}
	l, err := a.load(cmd, sections...)
	if err != nil {
		return err
	}
	if r.Topic != "" {
		if err := requireKafka(l.Config, "look in", "postrider trace"); err != nil {
			return err
		}
	}
	found, err := trace.Run(cmd.Context(), l.Config, r, func(ctx context.Context) *trace.Relay {
		return trace.OfDaemon(ctx, l.Config)
	})
	if found == nil {
		return err
	}
	found.ChangeHints(a.typed)
	return cmp.Or(a.print(found, found.Print), withoutWAL(err), exit.Status(found.Code()))
}

// withoutWAL is an error of a command that leaves the slot alone.
func withoutWAL(err error) error {
	if explained := new(exit.Error); err == nil || errors.As(err, &explained) {
		return err
	}
	f := exit.Explain(err)
	f.WAL = ""
	return f
}
