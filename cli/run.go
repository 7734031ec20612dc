package cli

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"postrider/config"
	"postrider/metrics"
	"postrider/relay"
	"postrider/sink/kafka"
)

func newRun(a *app) *cobra.Command {
	dryRun := false
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Relay until a signal comes",
		Long: `run streams the slot, publishes and confirms until SIGTERM or SIGINT comes: then it finishes the open
transaction, waits for the broker, confirms and exits with 0. A second signal ends it at once.

Exit status: 0 stopped cleanly, 1 halted by a row, 70 a lost slot or another
server, 75 the drain timeout struck, 77 permission, 78 configuration. While a host, a topic or a certificate is not in order, run waits
and tries again; 'postrider check' says at once what is missing.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := a.load(cmd)
			if err != nil {
				return err
			}
			log := a.newLogger(l.Config.Log)
			for _, w := range l.Warnings {
				log.Warn().Msg(w)
			}
			if dryRun {
				return a.dryRun(cmd.Context(), l.Config, log)
			}
			return a.run(cmd.Context(), l, log)
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "route and print as JSON lines from a temporary slot; publish and confirm nothing")
	a.keyFlags(cmd, "slot.name", "replication.publication", "sink.kind", "sink.kafka.brokers", "http.listen", "log.level", "log.format")
	return cmd
}

// run is the daemon: a relay, the listener that shows it, and the signals that end it.
func (a *app) run(ctx context.Context, l *config.Loaded, log zerolog.Logger) error {
	cfg := l.Config
	kill, stop, release := signals(ctx, log)
	defer release()
	a.tuneCollector()
	kafka.BridgeLog(log.With().Str("component", "sink").Logger())

	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	metrics.RegisterBuild(registry, version())
	set := metrics.New(registry, cfg.Slot.Name)
	set.ConfigLoaded.SetTime(time.Now())

	d, err := a.newDaemon(l, set, log)
	if err != nil {
		return err
	}
	endListener, err := d.listen(ctx, registry, log)
	if err != nil {
		return err
	}
	sup := a.newSupervisor(os.Getpid())
	if err := sup.ready(); err != nil {
		log.Warn().Err(err).Msg("systemd not notified")
	}
	log.Info().Str("version", version()).Str("slot", cfg.Slot.Name).Str("publication", cfg.Replication.Publication).
		Strs("tables", cfg.Replication.Tables).Str("sink", cfg.Sink.Kind).Msg("relay started")

	endWatch := d.goWatch(ctx, sup, log)
	err = d.relay.Run(kill, stop)
	endWatch()
	endListener() // last: probes and the last scrape see the drain
	return a.runFailure(err, d.relay.State(), log)
}

// gcPercent lets the heap grow to four times what is alive before it is collected. What is alive is bounded by what is in flight, a few
// megabytes; at Go's default of 100 the collector took a fifth of the CPU of a drain. With 5,000 messages in flight the
// peak was 74 MiB at 300, 61 MiB at 200, 85 MiB at 400.
const gcPercent = 300

// tuneCollector leaves the decision to GOGC where that is set.
func (a *app) tuneCollector() {
	if a.env("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

// sameSignal is how soon a signal after the first is still the first: a supervisor that signals a process and its group, like
// timeout(1), does it twice.
const sameSignal = 250 * time.Millisecond

// signals returns two contexts: stop ends with the first SIGTERM or SIGINT, kill with the second.
func signals(ctx context.Context, log zerolog.Logger) (kill, stop context.Context, release func()) {
	kill, cancelKill := context.WithCancel(ctx)
	stop, cancelStop := context.WithCancel(ctx)
	received := make(chan os.Signal, 2)
	var first time.Time
	signal.Notify(received, syscall.SIGTERM, os.Interrupt)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case s := <-received:
				if stop.Err() == nil {
					first = time.Now()
					log.Info().Stringer("signal", s).Msg("stop requested; a second signal stops at once")
					cancelStop()
					continue
				}
				if time.Since(first) > sameSignal {
					cancelKill()
				}
			case <-done:
				return
			}
		}
	})
	return kill, stop, func() {
		signal.Stop(received)
		close(done)
		wg.Wait()
		cancelStop()
		cancelKill()
	}
}

// runFailure says how run ended. st is the relay's last state.
func (a *app) runFailure(err error, st relay.State, log zerolog.Logger) error {
	if err == nil {
		log.Info().Stringer("acked_lsn", st.AckedLSN).Uint64("published", st.Published).Msg("relay stopped")
		return nil
	}
	return relayFailure(err, st)
}
