package daemon

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/postrider/postrider/docs"
	"github.com/postrider/postrider/internal/alerts"
	"github.com/postrider/postrider/internal/build"
	"github.com/postrider/postrider/internal/check"
	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/internal/history"
	"github.com/postrider/postrider/internal/httpserver"
	"github.com/postrider/postrider/internal/logging"
	"github.com/postrider/postrider/internal/memory"
	"github.com/postrider/postrider/internal/metrics"
	"github.com/postrider/postrider/internal/status"
	"github.com/postrider/postrider/internal/terminal"
	"github.com/postrider/postrider/internal/writeback"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/slot/monitor"
)

// stuckAfter is how long the session loop may stand still before the process counts as hung. The
// loop turns once a second in every state.
const stuckAfter = 30 * time.Second

// Daemon is a running relay with its status: it joins what relay, monitor and configuration
// report.
type Daemon struct {
	env      Environment
	cfg      config.Config                 // as it was at the start
	loaded   atomic.Pointer[config.Loaded] // in use; watch alone replaces it, when it reloads
	level    *logging.Level
	Relay    *relay.Relay
	pipeline *Pipeline
	metrics  *metrics.Set
	health   *health.Watcher
	notifier *alerts.Notifier
	page     *page
	started  time.Time
	writer   *writeback.Writer // nil: [write_back] is off
	letters  *openLetters      // of writer
	servers  []string          // of postgres.url: reading that takes files

	// Of run alone; nil otherwise.
	supervisor *supervisor
	requests   *requests
}

// New builds a relay and its status. It starts nothing.
func New(
	env Environment, l *config.Loaded, set *metrics.Set, log zerolog.Logger,
) (*Daemon, error) {
	component := func(name string) zerolog.Logger {
		return log.With().Str("component", name).Str("slot", l.Config.Slot.Name).Logger()
	}
	notifier, err := alerts.New(l.Config.Alerts, AboutAlerts(l.Config), set, component("alerts"))
	if err != nil {
		return nil, &exit.Error{Code: exit.Config, Err: err, Next: "postrider config validate"}
	}
	p := newPipeline(env, l.Config, set, log)
	limits := l.Config.Relay
	limits.StalledBytes = memory.Stalled(memory.Limit(os.DirFS("/")), limits.InFlightBytes,
		limits.StalledBytes)
	if limits.StalledBytes < l.Config.Relay.StalledBytes {
		log.Info().Int64("limit_bytes", limits.StalledBytes).
			Msg("relay.stalled_bytes lowered to what the container leaves")
	}
	d := &Daemon{
		env: env, cfg: l.Config, level: new(logging.Level), pipeline: p,
		Relay: relay.New(limits, p.parts()), metrics: set, notifier: notifier,
		health: health.NewWatcher(set, component("health")), started: time.Now(),
	}
	if l.Config.WriteBack.Enabled {
		d.writer = writeback.New(d.writeBackParts())
	}
	d.servers, _, _ = l.Config.Postgres.Place()
	d.loaded.Store(l)
	d.page = &page{d: d, check: pageCheck{run: d.findings}}
	p.observed = func(o monitor.Observation) { d.page.take(o, d.Relay.State()) }
	return d, nil
}

func (d *Daemon) alive() error {
	if standing := time.Since(d.Relay.State().LastProgress); standing > stuckAfter {
		return &httpserver.Reason{Code: "stuck", Text: fmt.Sprintf(
			"the session loop has not run for %s", standing.Round(time.Second))}
	}
	return nil
}

// ready returns the phase of a relay that streams or stands by. A paused relay is not ready, so
// that its silence is not taken for health; it is live, since a restart would end the pause.
func (d *Daemon) ready() (state string, err error) {
	st := d.Relay.State()
	reason := &httpserver.Reason{Code: string(st.Phase), Text: st.Error}
	switch {
	case st.Ready():
		return string(st.Phase), nil
	case st.Phase == relay.Paused:
		reason.Text = pauseText(st.Paused)
	case st.Error == "":
		reason.Text = "the relay is " + string(st.Phase)
	}
	return "", reason
}

// report is the response to GET /status.
func (d *Daemon) report() status.Report {
	r := status.New(time.Now(), os.Getpid(), d.started, d.Relay.State(), d.Observation(),
		d.loaded.Load().Config)
	r.Servers = d.servers
	r.Verdict.ChangeHints(d.env.Hint)
	r.Verdict = d.health.Fill(r.Verdict)
	if d.writer != nil {
		state := d.writer.State()
		r.WriteBack = &state
	}
	return r
}

// Verdict is the state of the relay now, with every condition that holds.
func (d *Daemon) Verdict() health.Verdict { return d.report().Verdict }

// Observation is the last one of the monitor.
func (d *Daemon) Observation() monitor.Observation { return d.pipeline.monitor.Observation() }

// findings checks everything, with the topics that messages were published to.
func (d *Daemon) findings(ctx context.Context) ([]check.Finding, []kafka.TopicReport) {
	var names []string
	for _, t := range d.metrics.Topics() {
		names = append(names, t.Topic)
	}
	found := check.Beside(ctx, d.loaded.Load(), names)
	for i := range found {
		found[i].Fix = d.env.Hint(found[i].Fix)
	}
	if d.cfg.Sink.Kind != config.SinkKafka {
		return found, nil
	}
	cluster, err := kafka.Inspect(ctx, d.cfg.Sink.Kafka, names)
	if err != nil {
		return found, nil // a finding reports it
	}
	return found, cluster.Topics
}

// Listen serves metrics and status until end is called.
func (d *Daemon) Listen(
	ctx context.Context, gatherer prometheus.Gatherer, log zerolog.Logger,
) (end func(), err error) {
	server := httpserver.New(d.cfg.HTTP, httpserver.Handlers{
		Live: d.alive, Ready: d.ready, Status: func() any { return d.report() },
		Parts: d.page.parts(), Runbook: docs.Section, Metrics: gatherer,
		Trace: d.trace,
		Log:   log.With().Str("component", "httpserver").Logger(),
	})
	return serve(ctx, server, log, "http.listen")
}

// StartWatch runs watch and the notifier until end is called. stop is the context that the relay
// gets.
func (d *Daemon) StartWatch(ctx, stop context.Context, log zerolog.Logger) (end func()) {
	watching, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var watch sync.WaitGroup
	watch.Go(func() { d.watch(watching, stop, log) })
	// while the relay drains, conditions end that are not resolved
	notifying, endNotifying := context.WithCancel(stop)
	watch.Go(func() { d.notifier.Run(notifying) })
	return func() {
		// the process ends before the conditions have held long enough to be notified
		if d.Relay.State().Phase == relay.Halted {
			d.notifier.Last(time.Now(), d.Verdict().Conditions)
		}
		cancel()
		endNotifying()
		watch.Wait()
	}
}

// watch judges the relay each second until ctx ends, and passes the verdict to the log, the
// metrics, the receivers of notifications, the charts of the page and systemd. It also handles the
// signals in d.requests.
func (d *Daemon) watch(ctx, stop context.Context, log zerolog.Logger) {
	defer d.page.check.start(ctx)()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var requested <-chan os.Signal
	if d.requests != nil {
		requested = d.requests.received
	}
	stopping, sampled := stop.Done(), time.Time{}
	for {
		now, r := time.Now(), d.report()
		d.notifier.Update(now, d.health.Update(now, r.Verdict).Conditions)
		if now.Sub(sampled) >= history.Interval {
			sampled = now
			d.page.sample(now)
		}
		d.supervisor.look(now, r)
		select {
		case <-tick.C:
		case s := <-requested:
			d.obey(s, log)
		case <-stopping:
			stopping = nil
			d.supervisor.stop()
		case <-ctx.Done():
			d.supervisor.end(d.report())
			return
		}
	}
}

// AboutAlerts names the source of notifications: slot, host, server and database. It leaves out
// what the connection string does not give.
func AboutAlerts(cfg config.Config) alerts.About {
	about := alerts.About{Slot: cfg.Slot.Name, Version: build.Release()}
	about.Instance, _ = os.Hostname()
	servers, database, user := cfg.Postgres.Place()
	about.Server, about.Database = strings.Join(servers, ","), cmp.Or(database, user)
	return about
}

// pauseText reports until when a pause lasts, and why.
func pauseText(p relay.Pause) string {
	text := "the relay is paused until it is resumed"
	if !p.Until.IsZero() {
		text = "the relay is paused until " + p.Until.UTC().Format(time.RFC3339)
	}
	if p.Reason != "" {
		text += ": " + terminal.OneLine(p.Reason)
	}
	return text
}
