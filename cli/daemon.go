package cli

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/rs/zerolog"

	"postrider/config"
	"postrider/httpserver"
	"postrider/relay"
)

// stuckAfter is how long the session loop may stand still before the process counts as hung. It turns once a second, whatever the
// database and the broker do.
const stuckAfter = 30 * time.Second

// daemon answers for a running relay.
type daemon struct {
	cfg      config.Config
	relay    *relay.Relay
	pipeline *pipeline
	started  time.Time
}

func (d *daemon) live() error {
	if standing := time.Since(d.relay.State().LastProgress); standing > stuckAfter {
		return &httpserver.Reason{Code: "stuck", Text: fmt.Sprintf("the session loop has not turned for %s", standing.Round(time.Second))}
	}
	return nil
}

func (d *daemon) ready() error {
	st := d.relay.State()
	if st.Ready() {
		return nil
	}
	text := st.Error
	if text == "" {
		text = "the relay is " + string(st.Phase)
	}
	return &httpserver.Reason{Code: string(st.Phase), Text: text}
}

// report is the answer of /status.
func (d *daemon) report() Report {
	return newReport(time.Now(), os.Getpid(), d.started, d.relay.State(), d.pipeline.watcher.Status(), sinkReport(d.cfg.Sink))
}

// watch feeds systemd's watchdog until ctx ends, but only while the loop turns.
func (d *daemon) watch(ctx context.Context, sup supervisor, log zerolog.Logger) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	fed := time.Time{}
	for {
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
