package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/daemon"
	"github.com/postrider/postrider/internal/demo"
	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/internal/metrics"
	"github.com/postrider/postrider/internal/secret"
	"github.com/postrider/postrider/internal/terminal"
	"github.com/postrider/postrider/relay"
)

// demonstration is one call of demo.
type demonstration struct {
	*app
	shop     demo.Config
	postgres string
	kafka    []string
	listen   string
	show     *terminal.Progress
}

func newDemo(a *app) *cobra.Command {
	o := demonstration{app: a, show: terminal.NewProgress(a.Stderr)}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show the relay at work on a real PostgreSQL and an audit of what it delivered",
		Long: `demo starts a PostgreSQL server and an in-process Kafka broker, writes orders with
their events, relays the events, reads them back from the topics and compares: written, delivered,
lost, duplicated, out of order. Ctrl-C ends it, with the audit, and leaves nothing behind.

The server's binaries are fetched once and kept in the cache directory, or taken from this machine.
With --postgres and --kafka it uses what you have: there it makes the schema, publication and slot
postrider_demo and two topics, and removes them at the end.

Exit status 0 only if the audit is clean.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.shop.Rate <= 0 || o.shop.Rows < 0 || o.shop.Duration < 0 {
				return exit.Usagef("--rate must be above zero, --rows and --duration must not " +
					"be negative")
			}
			return o.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.Int64Var(&o.shop.Rows, "rows", 0, "stop after so many events (0: no limit)")
	f.DurationVar(&o.shop.Duration, "duration", 0, "stop after so long (0: no limit)")
	f.Float64Var(&o.shop.Rate, "rate", 1000, "transactions a `second`, each with one event")
	f.StringVar(&o.postgres, "postgres", "", "use this server instead: a connection `string`")
	f.StringSliceVar(&o.kafka, "kafka", nil, "use these brokers instead: `host:port,...`")
	f.StringVar(&o.listen, "listen", "",
		"`address` for the status page and /metrics (default: none)")
	a.jsonFlag(cmd, "print the final report as JSON")
	return cmd
}

func (o *demonstration) run(ctx context.Context) (err error) {
	log := o.warningLogger()
	kill, stop, release := daemon.Signals(ctx, log)
	defer release()

	dsn, endPostgres, err := startPostgres(kill, o.postgres, "demo", o.show)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, endPostgres()) }()
	brokers := o.kafka
	if len(brokers) == 0 {
		o.show.Say("starting an in-process Kafka broker")
		broker, err := embedded.StartKafka(embedded.KafkaConfig{})
		if err != nil {
			return fmt.Errorf("start an in-process Kafka broker: %w", err)
		}
		defer broker.Close()
		brokers = broker.Brokers()
	}

	cfg := o.config(dsn, brokers)
	set := prometheus.NewRegistry()
	d, err := daemon.New(o.environment(), &config.Loaded{Config: cfg},
		metrics.New(set, cfg.Slot.Name), log)
	if err != nil {
		return err
	}
	endListener, err := d.Listen(kill, set, log)
	if err != nil {
		return err
	}
	defer endListener()
	endWatch := d.StartWatch(ctx, stop, log)
	defer endWatch()

	shop := demo.New(o.shop, dsn, brokers)
	if err := shop.SetUp(kill); err != nil {
		return err
	}
	defer func() {
		// The topics, slot and tables go even when the run was ended at once.
		tearDown, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		err = cmp.Or(err, shop.TearDown(tearDown))
	}()
	o.show.Say(fmt.Sprintf("writing %.0f orders a second, each with an event in %s; topics %s",
		o.shop.Rate, demo.Table, strings.Join(demo.Topics(), ", ")))
	if o.shop.Rows == 0 && o.shop.Duration == 0 {
		o.show.Say("Ctrl-C stops")
	}
	streaming := func() bool { return d.Relay.State().Phase == relay.Streaming }
	report, err := shop.Run(kill, stop, d.Relay.Run, streaming, func(p demo.Progress) {
		o.progress(p, d.Observation().Slot.LagBytes)
	})
	if err != nil {
		return err
	}
	return cmp.Or(o.print(report), statusUnless(report.Clean(), exit.Runtime))
}

// startPostgres starts a server for a command, unless one is given.
func startPostgres(ctx context.Context, given, command string,
	show *terminal.Progress) (dsn string, end func() error, err error) {
	if given != "" {
		return given, func() error { return nil }, nil
	}
	show.Say("starting PostgreSQL (the first time its binaries are fetched)")
	server, err := embedded.StartPostgres(ctx, embedded.PostgresConfig{})
	if err != nil {
		return "", nil, &exit.Error{
			Code: exit.Unavailable, Err: fmt.Errorf("start an embedded PostgreSQL: %w", err),
			Next: "use a server of yours: postrider " + command +
				" --postgres postgres://user@host/db"}
	}
	return server.DSN(), server.Close, nil
}

// config is the default configuration with the names of the demo.
func (o *demonstration) config(dsn string, brokers []string) config.Config {
	cfg := config.Default()
	cfg.Postgres.URL = secret.Of(dsn)
	cfg.Slot.Name = demo.Slot
	cfg.Slot.CheckInterval = time.Second // the slot's lag is shown once a second
	cfg.Replication.Publication = demo.Publication
	cfg.Replication.Tables = []string{demo.Table}
	cfg.Router[0].TopicReplacement = demo.TopicPrefix + "${routedByValue}"
	cfg.Sink.Kafka.Brokers = brokers
	cfg.HTTP.Listen = o.listen
	return cfg
}

func (o *demonstration) print(r demo.Report) error {
	if o.json {
		return json.NewEncoder(o.Stdout).Encode(r)
	}
	return o.printf("\n%d events in %.1f s (%.0f/s), commit to consumer p50 %.1f ms, p99 %.1f ms, "+
		"max %.1f ms\naudit: written %d, delivered %d, lost %d, duplicated %d, out of order %d\n",
		r.Delivered, r.Seconds, r.RowsPerSecond, r.LatencyMS.P50, r.LatencyMS.P99, r.LatencyMS.Max,
		r.Written, r.Delivered, r.Lost, r.Duplicated, r.OutOfOrder)
}

func (o *demonstration) progress(p demo.Progress, lag *int64) {
	line := fmt.Sprintf("%4.0f s  written %d  delivered %d  p50 %.1f ms  p99 %.1f ms",
		p.Elapsed.Seconds(), p.Written, p.Delivered,
		float64(p.P50)/float64(time.Millisecond), float64(p.P99)/float64(time.Millisecond))
	if lag != nil {
		line += "  slot lag " + health.Bytes(*lag)
	}
	o.show.Show(line)
}
