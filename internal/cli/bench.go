package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/internal/bench"
	"github.com/postrider/postrider/internal/build"
	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/daemon"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/terminal"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/slot"
)

// benchmark is one call of bench.
type benchmark struct {
	*app
	cfg   bench.Config
	sizes []string
}

func newBench(a *app) *cobra.Command {
	b := &benchmark{app: a}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure drain rate, latency and cost, with an audit of every row",
		Long: `bench measures the relay, as a process of its own, between a PostgreSQL server and
a Kafka broker, and audits every run: lost, duplicated, out of order. Without a workload it runs a
short suite of about a minute: backlogs of 1 and 10 rows per transaction and of a single
transaction, steady rates of 100 and 1,000 rows a second, an idle outbox in a busy database.

The PostgreSQL server is started for it, and so is an in-process stand-in for Kafka, whose rates
are not those of a real broker: for figures that mean something use --kafka and --postgres. There
it makes the schema, publication and slot postrider_bench (--name) and topics of that name,
refuses to start if they exist, and removes them at the end. The server's WAL grows by what is
written.

--set goes to the relay; a configuration file is not read. docs/PERFORMANCE.md says how
everything is measured.

Exit status 0 only if every audit is clean; otherwise as for run.`,
		Args: knownSubcommand,
		Example: `  postrider bench
  postrider bench drain --tx 1,10,1000,all --size 200,1kB --rows 1000000 --kafka localhost:9092 --postgres postgres://postgres@localhost/postgres --runs 5
  postrider bench rate --rate 100,1000,5000 --duration 30s --json > rate.json
  postrider bench report drain.json rate.json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			const size = 200
			return b.measure(cmd, []bench.Workload{
				{Kind: bench.Drain, Rows: 50_000, Tx: 1, Size: size},
				{Kind: bench.Drain, Rows: 100_000, Tx: 10, Size: size},
				{Kind: bench.Drain, Rows: 100_000, Tx: 100_000, Size: size},
				{Kind: bench.Rate, Rate: 100, Duration: 8 * time.Second, Size: size},
				{Kind: bench.Rate, Rate: 1000, Duration: 8 * time.Second, Size: size},
				{Kind: bench.Idle, Rate: 1000, Duration: 10 * time.Second, Size: size},
			})
		},
	}
	f := cmd.PersistentFlags()
	f.StringVar(&b.cfg.Postgres, "postgres", "", "use this server instead: a connection `string`")
	f.StringSliceVar(&b.cfg.Brokers, "kafka", nil, "use these brokers instead: `host:port,...`")
	f.StringVar(&b.cfg.Name, "name", bench.DefaultName,
		"`name` of the schema, publication and slot, and prefix of the topics")
	f.StringVar(&b.cfg.Binary, "relay", "",
		"measure another build of postrider: its `path` (default: this one)")
	f.IntVar(&b.cfg.Runs, "runs", 1, "repeat each workload so often, and give medians")
	f.BoolVar(&a.json, "json", false, "print one JSON object")
	broker := &cobra.Command{
		Use: benchBroker, Hidden: true,
		RunE: func(*cobra.Command, []string) error { return bench.ServeBroker(a.Stdin, a.Stdout) },
	}
	cmd.AddCommand(b.drainCommand(), b.rateCommand(), b.idleCommand(), newBenchReport(a), broker)
	return cmd
}

// benchBroker is the hidden command of the in-process broker.
const benchBroker = "in-process-broker"

func (b *benchmark) sizeFlag(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&b.sizes, "size", []string{"200"},
		"size of a payload, such as 200, 1kB or 10kB; a list measures each")
}

func (b *benchmark) drainCommand() *cobra.Command {
	var texts []string
	var rows int64
	cmd := &cobra.Command{
		Use:   "drain",
		Short: "How fast a backlog is drained",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var workloads []bench.Workload
			for _, text := range texts {
				tx, err := strconv.ParseInt(text, 10, 64)
				switch {
				case text == "all":
					tx = rows
				case err != nil || tx < 1:
					return exit.Usagef("--tx %s: expected a number of rows from 1 on, or all", text)
				}
				workloads = append(workloads, bench.Workload{Kind: bench.Drain, Rows: rows, Tx: tx})
			}
			return b.measureSizes(cmd, workloads)
		},
	}
	cmd.Flags().StringSliceVar(&texts, "tx", []string{"10"},
		"`rows` per transaction, or all; a list measures each")
	b.sizeFlag(cmd)
	cmd.Flags().Int64Var(&rows, "rows", 100_000, "rows of the backlog")
	return cmd
}

func (b *benchmark) rateCommand() *cobra.Command {
	var rates []int
	var duration time.Duration
	cmd := &cobra.Command{
		Use:   "rate",
		Short: "How soon rows arrive at a steady rate",
		Long: `rate writes one-row transactions at a steady rate, whatever the relay does, on 16
connections. Latencies are measured from when the row was due, so that a writer that is held up
hides nothing; from its commit to the consumer; and, by the relay's own histogram, from its commit
to the broker's acknowledgement. A first second at the same rate does not count.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var workloads []bench.Workload
			for _, rate := range rates {
				workloads = append(workloads,
					bench.Workload{Kind: bench.Rate, Rate: rate, Duration: duration})
			}
			return b.measureSizes(cmd, workloads)
		},
	}
	cmd.Flags().IntSliceVar(&rates, "rate", []int{100, 1000},
		"transactions a `second`; a list measures each")
	b.sizeFlag(cmd)
	cmd.Flags().DurationVar(&duration, "duration", 10*time.Second, "how long each")
	return cmd
}

func (b *benchmark) idleCommand() *cobra.Command {
	var rate int
	var duration time.Duration // its default is not that of rate
	cmd := &cobra.Command{
		Use:   "idle",
		Short: "What an idle outbox in a busy database costs",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return b.measure(cmd, []bench.Workload{
				{Kind: bench.Idle, Rate: rate, Duration: duration, Size: 200}})
		},
	}
	cmd.Flags().IntVar(&rate, "rate", 1000, "transactions a `second` in another table")
	cmd.Flags().DurationVar(&duration, "duration", 30*time.Second, "how long")
	return cmd
}

func newBenchReport(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "report FILE...",
		Short: "Print the tables of saved JSON, as Markdown",
		Long: `report prints what bench --json has printed as the tables of docs/PERFORMANCE.md.
Files of the same build, servers and machine are put together.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, files []string) error {
			var reports []*bench.Report
			for _, path := range files {
				text, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				r := &bench.Report{}
				if err := json.Unmarshal(text, r); err != nil {
					return fmt.Errorf("%s is not what bench --json prints: %w", path, err)
				}
				if len(r.Workloads) == 0 {
					return fmt.Errorf("%s has no workloads: is it what bench --json prints?", path)
				}
				reports = append(reports, r)
			}
			bench.WriteTables(a.Stdout, bench.Join(reports)...)
			return nil
		},
	}
}

var benchSize = regexp.MustCompile(`^\s*(\d+)\s*([kKM]?)B?$`)

// measureSizes measures each workload with each of --size.
func (b *benchmark) measureSizes(cmd *cobra.Command, workloads []bench.Workload) error {
	var sized []bench.Workload
	for _, w := range workloads {
		for _, text := range b.sizes {
			m := benchSize.FindStringSubmatch(strings.TrimSpace(text))
			n := 0
			if m != nil {
				n, _ = strconv.Atoi(m[1])
			}
			if n < 1 || n > bench.MaxSize {
				return exit.Usagef("--size %s: expected a size from %d to %dkB, such as 200, "+
					"1kB or 10kB", text, bench.MinSize, bench.MaxSize/1000)
			}
			w.Size = n * map[string]int{"": 1, "k": 1_000, "K": 1_000, "M": 1_000_000}[m[2]]
			sized = append(sized, w)
		}
	}
	return b.measure(cmd, sized)
}

func (b *benchmark) measure(cmd *cobra.Command, workloads []bench.Workload) (err error) {
	cfg := b.cfg
	embedded, inProcess := cfg.Postgres == "", len(cfg.Brokers) == 0
	if cfg.Runs < 1 || cfg.Runs > 1000 {
		return exit.Usagef("--runs %d: expected 1 to 1000", cfg.Runs)
	}
	if err := slot.ValidateName(cfg.Name); err != nil {
		return exit.Usagef("--name: %w", err)
	}
	if len(workloads) == 0 {
		return exit.Usagef("nothing to measure: a list is empty")
	}
	for _, w := range workloads {
		if err := w.Validate(inProcess); err != nil {
			return exit.Usagef("%w", err)
		}
	}
	src, err := b.source(cmd)
	if err != nil {
		return err
	}
	if _, err := config.Load(config.Source{Path: os.DevNull, Flags: src.Flags}); err != nil {
		return exit.ConfigFailure(err)
	}
	kill, stop, release := daemon.Signals(cmd.Context(), b.warningLogger())
	defer release()
	ctx, cancel := context.WithCancelCause(kill)
	defer cancel(nil)
	defer context.AfterFunc(stop, func() { cancel(errInterrupted) })()

	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program, to start the relay: %w", err)
	}
	show := terminal.NewProgress(b.Stderr)
	cfg.Binary, cfg.Env, cfg.Set = cmp.Or(cfg.Binary, binary), b.Env, b.set
	var endPostgres func() error
	cfg.Postgres, endPostgres, err = startPostgres(ctx, cfg.Postgres, "bench", show)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, endPostgres()) }()
	if inProcess {
		show.Say("starting an in-process Kafka broker")
		broker, err := bench.StartBroker(ctx, binary, "bench", benchBroker)
		if err != nil {
			return fmt.Errorf("start an in-process Kafka broker: %w", err)
		}
		defer broker.Close()
		cfg.Brokers, cfg.BrokerPID = []string{broker.Address}, broker.PID
	}
	report, err := bench.Run(ctx, cfg, workloads, show.Say)
	report.Version, report.Revision = build.Release(), build.Current().Revision
	report.Embedded, report.InProcess = embedded, inProcess
	if inProcess {
		report.Kafka = "in-process stand-in"
	}
	if len(report.Workloads) > 0 { // also what was finished before something went wrong
		if b.json {
			err = errors.Join(json.NewEncoder(b.Stdout).Encode(report), err)
		} else {
			bench.WriteTables(b.Stdout, report)
		}
	}
	if errors.Is(err, sink.ErrUnreachable) {
		return &exit.Error{Code: exit.Unavailable, Err: err,
			Next: "check --kafka: host:port of a broker that this machine reaches, without TLS " +
				"and SASL"}
	}
	return cmp.Or(err, statusUnless(report.Clean(), exit.Runtime))
}

var errInterrupted = errors.New("interrupted: what was not finished is left out")
