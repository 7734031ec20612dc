package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/internal/auditor"
	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/exit"
)

func newAuditCompare(a *app) *cobra.Command {
	o := auditor.CompareOptions{}
	cmd := &cobra.Command{
		Use:   "compare",
		Short: "Run beside Debezium, or any other relay, and report every byte that differs",
		Long: `compare routes new rows the way run would, from a temporary slot of its own, reads what the other relay publishes of
the same rows, and compares topic, partition, key, value, headers and timestamp of each event. It publishes nothing, or, with
--publish-prefix, everything to topics of its own. The other relay, its slot, its topics and its consumer groups stay as they are.

Events are matched by the header that carries their id (router.header_id), else by the order per key. Not compared are
timestamps that are nobody's but the clock's (without router.table.field.event.timestamp), and the values of the headers runId, taskId and
connectorName of __debezium.context.

It ends after --rows or --duration, or with Ctrl-C, and then waits up to --settle for what is under way; a second Ctrl-C ends
it at once. What the other relay publishes of rows from before the beginning is left aside.

Exit status: 0 everything was equal; 1 something differed, or nothing was compared, so that nothing is proven;
otherwise as for run.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Validate(); err != nil {
				return err
			}
			l, err := a.load(cmd, "postgres", "replication", "router", "format", "sink", "relay", "log")
			if err != nil {
				return err
			}
			if l.Config.Sink.Kind != config.SinkKafka {
				return &exit.Error{Code: exit.Config, Err: fmt.Errorf("sink.kind is %q: there are no topics to compare with", l.Config.Sink.Kind),
					Next: "postrider audit compare --set sink.kind=kafka --set sink.kafka.brokers=HOST:PORT"}
			}
			r, err := auditor.Compare(cmd.Context(), o, l.Config, a.environment(), a.newLogger(l.Config.Log))
			if r == nil {
				return err
			}
			if o.JSON {
				err = firstError(err, a.printJSON(r))
			} else {
				r.Print(a.Stdout)
			}
			if err == nil && r.Result != auditor.ResultEqual {
				err = exit.Status(exit.Runtime)
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Prefix, "publish-prefix", "", "publish to topics with this `prefix`, like shadow. (default: publish nothing)")
	f.StringVar(&o.Topics, "topics", "", "also read topics that match this `pattern` and that we route nothing to (default: made of route.topic.replacement)")
	f.Int64Var(&o.Rows, "rows", 0, "stop after so many compared events (0: no limit)")
	f.DurationVar(&o.Duration, "duration", 0, "stop after so long (0: no limit)")
	f.DurationVar(&o.Settle, "settle", 30*time.Second, "how long an event may be missing on one side")
	f.IntVar(&o.Waiting, "max-waiting", 50_000, "messages that may wait for their other side; together at most 128 MiB")
	f.IntVar(&o.Details, "max-differences", 10, "differing and missing events to show in detail")
	f.BoolVar(&o.JSON, "json", false, "print the report as JSON")
	for _, name := range []string{"publish-prefix", "topics", "rows", "duration", "settle", "max-waiting", "max-differences"} {
		must(cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions))
	}
	return cmd
}
