package cli

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/internal/audit"
	"github.com/postrider/postrider/internal/auditor"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/units"
)

func newAudit(a *app) *cobra.Command {
	o, plan := auditor.Options{}, auditor.Plan{Memory: 256 << 20}
	cmd := &cobra.Command{
		Use: "audit",
		Short: "Compare an outbox table with topics, whatever relay filled them: lost, " +
			"duplicated, out of order, unexpected",
		Long: `audit reads the outbox tables (or, with --log, a write log) and the topics, and
reports what is lost, duplicated, out of order, unexpected or partial. It works on what any relay
has published, as long as a record carries the id of its row. It writes nothing, and takes no slot
and no consumer group. The rows have to be in the table still.

The topics are read from their beginnings to their ends as they are at the start; then the
tables, in one snapshot. So a row that is not published yet counts as lost: beside a relay at
work, leave the newest out with --until 1m.

The rows of a key have to arrive in the order of their commits, which no column of theirs has:
writers fill created_at, and take numbers, before they commit. It is judged by the position
headers of the records (router.position_headers), by the WAL that a slot keeps (--slot), or by a
column of which you know that it has this order (--order-by). Without any of them it is not
judged, and the report says so.

Exit status: 0 nothing that was judged is wrong; 1 something is, or is not proven, or there was
nothing to audit; otherwise as for run. docs/AUDIT.md explains the rest.`,
		Args: knownSubcommand,
		Example: `  postrider audit
  postrider audit --until 1m --json
  postrider audit --table outbox --topic orders --topic payments --id value:/payload/id
  postrider audit --log written.jsonl --topic orders --set sink.kafka.brokers=kafka:9092`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := validateAudit(o, plan); err != nil {
				return err
			}
			plan.Committed = o.Isolation == "read_committed"
			sections := []string{"sink", "log"}
			if o.Log == "" {
				sections = append(sections, "postgres")
				if len(o.Tables) == 0 {
					sections = append(sections, "replication", "router")
				}
			}
			if o.Slot != "" {
				sections = append(sections, "replication")
			}
			l, err := a.load(cmd, sections...)
			if err != nil {
				return err
			}
			if err := requireKafka(l.Config, "audit", "postrider audit"); err != nil {
				return err
			}
			cfg := l.Config
			if len(o.Tables) > 0 {
				cfg = auditor.OnlyTables(cfg, o.Tables)
			}
			if a.env("GOMEMLIMIT") == "" {
				debug.SetMemoryLimit(plan.Memory) // garbage counts
			}
			r, err := auditor.Run(cmd.Context(), o, plan, cfg, a.newLogger(l.Config.Log))
			if err != nil {
				return err
			}
			err = a.print(r, func(w io.Writer) error {
				r.Print(w)
				return nil
			})
			return cmp.Or(err, statusUnless(r.Result == auditor.Clean, exit.Runtime))
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&o.Topics, "topic", nil,
		"`topic` to read; may be repeated (default: all that match --topics)")
	parsedFlag(cmd, "topics", "",
		"topics that match this `pattern` (default: made of route.topic.replacement)",
		func(text string) (err error) {
			plan.Pattern, err = regexp.Compile("^(?:" + text + ")$")
			return err
		})
	f.StringArrayVar(&o.Tables, "table", nil,
		"outbox `table` to read; may be repeated (default: replication.tables)")
	f.StringVar(&o.Log, "log", "",
		"`file` with a write log instead of a table: a JSON object per line")
	parsedFlag(cmd, "id", "",
		"where a record has the id of its row: header:NAME, key or value:/JSON/POINTER (default "+
			"header:id, or router.header_id)",
		func(text string) (err error) {
			plan.ID, err = auditor.ParseEventID(text)
			return err
		})
	f.StringVar(&o.IDColumn, "id-column", "",
		"`column` with the id (default table.field.event.id)")
	f.StringVar(&o.KeyColumn, "key-column", "",
		"`column` with the key (default table.field.event.key)")
	f.StringVar(&o.OrderBy, "order-by", "",
		"`column` that has the order in which the rows of a key were committed, as you know")
	f.StringVar(&o.Slot, "slot", "",
		"read the order of commits from the WAL that this `slot` keeps, which nothing else "+
			"reads; it stays as it is")
	f.BoolVar(&o.WantsOrder, "require-order", false,
		"exit with 1 unless the order of every row was judged")
	f.StringVar(&o.TimeColumn, "time-column", "",
		"`column` for --since and --until (default table.field.event.timestamp, else created_at)")
	f.StringVar(&o.Transaction, "transaction-column", auditor.RowTransaction,
		"integer `column` with the transaction of a row")
	timeFlag(cmd, &plan.Since, "since",
		"judge only rows from this time on: a `duration` (1h) or time (2026-01-31T12:00:00Z); "+
			"topics are read from there, unless the records have the time of another column")
	timeFlag(cmd, &plan.Until, "until", "judge only rows before this time: a `duration` or time")
	wordFlag(cmd, &o.Isolation, "isolation", "read_committed",
		"read_committed or read_uncommitted, as a consumer's isolation.level",
		[]string{"read_committed", "read_uncommitted"})
	f.StringVar(&o.DeadLetters, "dead-letters", "",
		"`topic` of dead letters: rows there are not lost (default deadletter.topic, if a "+
			"policy uses it)")
	parsedFlag(cmd, "memory", "256MiB",
		"`size` of memory to use; with more rows than fit, the topics are read several times",
		func(text string) (err error) {
			if plan.Memory, err = units.ParseSize(text); err != nil || plan.Memory < audit.MinMemory {
				return fmt.Errorf("expected a size of %dMiB or more", audit.MinMemory>>20)
			}
			return nil
		})
	f.IntVar(&o.Examples, "examples", 5, "faults of each kind to show")
	a.jsonFlag(cmd, "print the report as JSON")
	completeNothing(cmd, "topic", "topics", "table", "id", "id-column", "key-column", "order-by",
		"time-column", "transaction-column", "since", "until", "dead-letters", "memory",
		"examples")
	must(cmd.RegisterFlagCompletionFunc("slot", a.slotNames))
	cmd.AddCommand(newAuditCompare(a))
	return cmd
}

// validateAudit refuses flags that do not go together.
func validateAudit(o auditor.Options, plan auditor.Plan) error {
	switch {
	case o.Examples < 0:
		return exit.Usagef("--examples must not be negative")
	case o.Slot != "" && (o.Log != "" || o.OrderBy != ""):
		return exit.Usagef("--slot, --order-by and --log each give the order of commits: use one")
	case o.Log != "" && o.OrderBy != "":
		return exit.Usagef("--order-by is for a table: the lines of a write log are in the " +
			"order of commits")
	case o.Log != "" && len(o.Topics) == 0 && plan.Pattern == nil:
		return exit.Usagef("--log needs topics: name them with --topic or --topics")
	}
	return nil
}

func newAuditCompare(a *app) *cobra.Command {
	o := auditor.CompareOptions{}
	cmd := &cobra.Command{
		Use:   "compare",
		Short: "Run beside Debezium, or any other relay, and report every byte that differs",
		Long: `compare routes new rows the way run would, from a temporary slot of its own, reads
what the other relay publishes of the same rows, and compares topic, partition, key, value,
headers and timestamp of each event. It publishes nothing, or, with --publish-prefix, everything
to topics of its own. The other relay, its slot, its topics and its consumer groups stay as they
are.

Events are matched by the header that carries their id (router.header_id), else by the order per
key. Not compared are timestamps of the clock alone (without
router.table.field.event.timestamp), and the values of the headers runId, taskId and
connectorName of __debezium.context.

It ends after --rows or --duration, or with Ctrl-C, and then waits up to --settle for what is
under way; a second Ctrl-C ends it at once. What the other relay publishes of rows from before
the beginning is ignored.

Exit status: 0 everything was equal; 1 something differed, or nothing was compared, so that
nothing is proven; otherwise as for run.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Validate(); err != nil {
				return err
			}
			l, err := a.load(cmd, "postgres", "replication", "router", "format", "sink", "relay",
				"log")
			if err != nil {
				return err
			}
			err = requireKafka(l.Config, "compare with", "postrider audit compare")
			if err != nil {
				return err
			}
			r, err := auditor.Compare(cmd.Context(), o, l.Config, a.environment(),
				a.newLogger(l.Config.Log))
			if r == nil {
				return err
			}
			shown := a.print(r, func(w io.Writer) error {
				r.Print(w)
				return nil
			})
			return cmp.Or(err, shown,
				statusUnless(r.Result == auditor.ResultEqual, exit.Runtime))
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Prefix, "publish-prefix", "",
		"publish to topics with this `prefix`, like shadow. (default: publish nothing)")
	f.StringVar(&o.Topics, "topics", "",
		"also read topics that match this `pattern` and that we route nothing to (default: made "+
			"of route.topic.replacement)")
	f.Int64Var(&o.Rows, "rows", 0, "stop after so many compared events (0: no limit)")
	f.DurationVar(&o.Duration, "duration", 0, "stop after so long (0: no limit)")
	f.DurationVar(&o.Settle, "settle", 30*time.Second,
		"how long an event may be missing on one side")
	f.IntVar(&o.Waiting, "max-waiting", 50_000,
		"messages that may wait for their other side; together at most 128 MiB")
	f.IntVar(&o.Details, "max-differences", 10, "differing and missing events to show in detail")
	a.jsonFlag(cmd, "print the report as JSON")
	completeNothing(cmd, "publish-prefix", "topics", "rows", "duration", "settle", "max-waiting",
		"max-differences")
	return cmd
}
