package daemon

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/rs/zerolog"

	"github.com/postrider/postrider/internal/build"
	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/logging"
	"github.com/postrider/postrider/internal/memory"
	"github.com/postrider/postrider/internal/metrics"
)

// Run runs a relay until it ends or a signal stops it, serves its status, and handles signals.
// level is the level of log. Errors are of package exit.
func Run(ctx context.Context, l *config.Loaded, env Environment, level *logging.Level,
	log zerolog.Logger) error {
	cfg := l.Config
	kill, stop, release := Signals(ctx, log)
	defer release()
	requests, endRequests := takeRequests()
	defer endRequests()
	memory.Tune(env.Getenv, log)

	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	metrics.RegisterBuild(registry, build.Release())
	set := metrics.New(registry, cfg.Slot.Name)
	set.ConfigLoaded.SetTime(time.Now())

	d, err := New(env, l, set, log)
	if err != nil {
		return err
	}
	d.level, d.requests, d.supervisor = level, requests, newSupervisor(env.Getenv, log)
	endListener, err := d.Listen(ctx, registry, log)
	if err != nil {
		return err
	}
	defer endListener() // last: probes and the last scrape see the drain
	endAdmin, err := d.listenAdmin(ctx, log)
	if err != nil {
		return err
	}
	defer endAdmin()
	log.Info().Str("version", build.Release()).Str("slot", cfg.Slot.Name).
		Str("publication", cfg.Replication.Publication).Strs("tables", cfg.Replication.Tables).
		Str("sink", cfg.Sink.Kind).Msg("relay started")

	endWatch := d.StartWatch(ctx, stop, log)
	endPruner := d.startPruner(stop)
	endWriteBack := d.startWriteBack(stop)
	err = d.Relay.Run(kill, stop)
	endWriteBack()
	endPruner()
	endWatch()
	st := d.Relay.State()
	if err != nil {
		return exit.OfRelay(err, st).For(cfg)
	}
	log.Info().Stringer("acked_lsn", st.AckedLSN).Uint64("published", st.Published).
		Msg("relay stopped")
	return nil
}
