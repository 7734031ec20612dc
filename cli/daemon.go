package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"postrider/alerts"
	"postrider/config"
	"postrider/docs"
	"postrider/health"
	"postrider/history"
	"postrider/httpserver"
	"postrider/metrics"
	"postrider/relay"
	"postrider/sink/kafka"
	"postrider/slot"
)

// stuckAfter is how long the session loop may stand still before the process counts as hung. It turns once a second, whatever the
// database and the broker do.
const stuckAfter = 30 * time.Second

// daemon answers for a running relay, and tells of it: it joins what relay, monitor and configuration know.
type daemon struct {
	app      *app
	cfg      config.Config
	loaded   *config.Loaded // cfg, and where it came from
	relay    *relay.Relay
	pipeline *pipeline
	metrics  *metrics.Set
	health   *health.Watcher
	notifier *alerts.Notifier
	page     *page
	started  time.Time
}

func (a *app) newDaemon(l *config.Loaded, set *metrics.Set, log zerolog.Logger) (*daemon, error) {
	p := a.newPipeline(l.Config, set, log)
	d := &daemon{app: a, cfg: l.Config, loaded: l, pipeline: p, relay: relay.New(l.Config.Relay, p.parts()), metrics: set, started: time.Now()}
	var err error
	d.notifier, err = alerts.New(l.Config.Alerts, aboutAlerts(l.Config), set, log.With().Str("component", "alerts").Str("slot", l.Config.Slot.Name).Logger())
	if err != nil {
		return nil, &failure{code: exitConfig, err: err, next: "postrider config validate"}
	}
	d.health = health.NewWatcher(set, log.With().Str("component", "health").Str("slot", l.Config.Slot.Name).Logger())
	d.page = newPage(d)
	return d, nil
}

func (d *daemon) live() error {
	if standing := time.Since(d.relay.State().LastProgress); standing > stuckAfter {
		return &httpserver.Reason{Code: "stuck", Text: fmt.Sprintf("the session loop has not turned for %s", standing.Round(time.Second))}
	}
	return nil
}

// ready returns what the relay does, if that is its work. One that is paused is not ready: whoever asked for it knows, and nobody
// else should take its silence for well-being. It is live all the same, since a restart would end the pause.
func (d *daemon) ready() (state string, err error) {
	st := d.relay.State()
	switch {
	case st.Ready():
		return string(st.Phase), nil
	case st.Phase == relay.Paused:
		return "", &httpserver.Reason{Code: string(st.Phase), Text: pauseText(st.Paused)}
	case st.Error == "":
		return "", &httpserver.Reason{Code: string(st.Phase), Text: "the relay is " + string(st.Phase)}
	}
	return "", &httpserver.Reason{Code: string(st.Phase), Text: st.Error}
}

// report is the answer of /status.
func (d *daemon) report() Report {
	r := newReport(time.Now(), os.Getpid(), d.started, d.relay.State(), d.observation(), d.cfg)
	r.Verdict = d.health.Fill(r.Verdict)
	return r
}

func (d *daemon) verdict() health.Verdict { return d.report().Verdict }

func (d *daemon) observation() slot.Observation {
	return d.pipeline.monitor.Observation()
}

// findings is a check of everything, with the topics that were published to.
func (d *daemon) findings(ctx context.Context) ([]slot.Finding, []kafka.TopicReport) {
	var names []string
	for _, t := range d.metrics.Topics() {
		names = append(names, t.Topic)
	}
	found := d.app.checkAll(ctx, d.loaded, names)
	if d.cfg.Sink.Kind != config.SinkKafka {
		return found, nil
	}
	cluster, err := kafka.Inspect(ctx, d.cfg.Sink.Kafka, names)
	if err != nil {
		return found, nil // one of the findings says it
	}
	return found, cluster.Topics
}

// listen serves metrics and status until the returned function is called.
func (d *daemon) listen(ctx context.Context, gatherer prometheus.Gatherer, log zerolog.Logger) (end func(), err error) {
	server := httpserver.New(d.cfg.HTTP, httpserver.Handlers{
		Live: d.live, Ready: d.ready, Status: func() any { return d.report() }, Parts: d.page.parts(), Runbook: docs.Section, Metrics: gatherer,
		Log: log.With().Str("component", "httpserver").Logger(),
	})
	if err := server.Listen(); err != nil {
		code := exitConfig
		if errors.Is(err, httpserver.ErrInUse) {
			code = exitTemporary // maybe the process before us, which is still draining
		}
		return nil, &failure{
			code: code, err: err, wal: keptMaybe,
			next: "postrider status   (does a relay answer there?)\nor choose a free address for http.listen, \"\" for none",
		}
	}
	if addr := server.Addr(); addr != nil {
		log.Info().Stringer("listen", addr).Msg("http listener started")
	}
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() { // ends with cancel, waited for by end
		defer close(ended)
		if err := server.Serve(serving); err != nil {
			log.Error().Err(err).Msg("http listener ended")
		}
	}()
	return func() { cancel(); <-ended }, nil
}

// goWatch runs watch until the returned function is called.
func (d *daemon) goWatch(ctx context.Context, sup supervisor, log zerolog.Logger) (end func()) {
	watching, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var watch sync.WaitGroup
	watch.Go(func() { d.watch(watching, sup, log) })
	watch.Go(func() { d.notifier.Run(watching) })
	return func() {
		if d.relay.State().Phase == relay.Halted { // by itself: nobody is there when the conditions have held for long enough to be told
			d.notifier.Last(time.Now(), d.verdict().Conditions)
		}
		cancel()
		watch.Wait()
	}
}

// watch looks at the relay each second until ctx ends: for the verdict, which it takes to log, metrics and receivers, for the page's charts, and for
// systemd's watchdog, which it feeds only while the loop turns.
func (d *daemon) watch(ctx context.Context, sup supervisor, log zerolog.Logger) {
	defer d.page.check.start(ctx)()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	fed, sampled := time.Time{}, time.Time{}
	for {
		now := time.Now()
		d.notifier.Update(now, d.health.Update(now, d.report().Verdict).Conditions)
		if now.Sub(sampled) >= history.Interval {
			sampled = now
			d.page.sample(now)
		}
		if every := sup.feedEvery(); every > 0 && time.Since(fed) >= every && d.live() == nil {
			fed = time.Now()
			st := d.relay.State()
			if err := sup.alive(fmt.Sprintf("%s, confirmed up to %s", st.Phase, st.ConfirmedFlushLSN)); err != nil {
				log.Warn().Err(err).Msg("systemd not notified")
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			if err := sup.stopping(); err != nil {
				log.Warn().Err(err).Msg("systemd not notified")
			}
			return
		}
	}
}
