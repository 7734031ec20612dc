package cli

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/metrics"
	"github.com/postrider/postrider/relay"
)

func newRun(a *app) *cobra.Command {
	dryRun := false
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Relay until a signal comes",
		Long: `run streams the slot, publishes and confirms until SIGTERM or SIGINT comes: then it finishes the open
transaction, waits for the broker, confirms and exits with 0. A second signal ends it at once.
SIGHUP reads the configuration again: log.level, [health], alerts.severity and alerts.repeat_interval change at once, for the rest
it says what needs a restart. SIGUSR1 writes the state as one line of JSON. 'postrider pause' lets go of the slot for a while.

Exit status: 0 stopped cleanly, 1 halted by a row, 70 a lost slot or another
server, 75 the drain timeout struck, 77 permission, 78 configuration. While a host, a topic or a certificate is not in order, run waits
and tries again; 'postrider check' says at once what is missing.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := a.load(cmd)
			if err != nil {
				return err
			}
			level := new(logLevel)
			level.configure(l.Config.Log)
			log := a.newLeveledLogger(l.Config.Log, level)
			for _, w := range l.Warnings {
				log.Warn().Msg(w)
			}
			if dryRun {
				return a.dryRun(cmd.Context(), l.Config, log)
			}
			return a.run(cmd.Context(), l, level, log)
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "route and print as JSON lines from a temporary slot; publish and confirm nothing")
	a.keyFlags(cmd, "slot.name", "replication.publication", "sink.kind", "sink.kafka.brokers", "http.listen", "log.level", "log.format")
	return cmd
}

// run is the daemon: a relay, the listeners that show it, and the signals that it obeys. level is that of log.
func (a *app) run(ctx context.Context, l *config.Loaded, level *logLevel, log zerolog.Logger) error {
	cfg := l.Config
	kill, stop, release := signals(ctx, log)
	defer release()
	requests, endRequests := takeRequests()
	defer endRequests()
	a.tuneCollector(log)

	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	metrics.RegisterBuild(registry, version())
	set := metrics.New(registry, cfg.Slot.Name)
	set.ConfigLoaded.SetTime(time.Now())

	d, err := a.newDaemon(l, set, log)
	if err != nil {
		return err
	}
	d.live.level, d.requests, d.supervisor = level, requests, a.newSupervisor(log)
	endListener, err := d.listen(ctx, registry, log)
	if err != nil {
		return err
	}
	endAdmin, err := d.listenAdmin(ctx, log)
	if err != nil {
		endListener()
		return err
	}
	log.Info().Str("version", version()).Str("slot", cfg.Slot.Name).Str("publication", cfg.Replication.Publication).
		Strs("tables", cfg.Replication.Tables).Str("sink", cfg.Sink.Kind).Msg("relay started")

	endWatch := d.goWatch(ctx, stop, log)
	err = d.relay.Run(kill, stop)
	endWatch()
	endAdmin()
	endListener() // last: probes and the last scrape see the drain
	return a.runFailure(err, d.relay.State(), cfg, log)
}

// runFailure says how run ended. st is the relay's last state.
func (a *app) runFailure(err error, st relay.State, cfg config.Config, log zerolog.Logger) error {
	if err == nil {
		log.Info().Stringer("acked_lsn", st.AckedLSN).Uint64("published", st.Published).Msg("relay stopped")
		return nil
	}
	return relayFailure(err, st).of(cfg)
}
