package daemon

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/status"
)

// reloadable reports whether a key takes effect while the relay runs.
func reloadable(key string) bool {
	switch key {
	case "log.level", "alerts.severity", "alerts.repeat_interval", "relay.max_rate", "relay.rate":
		return true
	}
	return strings.HasPrefix(key, "health.")
}

// obey handles a signal.
func (d *Daemon) obey(s os.Signal, log zerolog.Logger) {
	switch s {
	case syscall.SIGUSR1:
		d.dump()
	case syscall.SIGHUP:
		if d.requests.hungUp() {
			log.Info().Msg("terminal is gone")
			_ = syscall.Kill(os.Getpid(), syscall.SIGTERM) // what closing its window means to a program
			return
		}
		d.supervisor.reload(func() { d.reload(log) })
	}
}

// reload reads the configuration again. Reloadable keys take effect at once; other changed keys
// are logged as ones that need a restart. A configuration with a problem changes nothing.
func (d *Daemon) reload(log zerolog.Logger) {
	was := d.loaded.Load()
	newer, err := was.Again()
	d.metrics.ConfigReloaded.SetBool(err == nil)
	if err != nil {
		log.Error().Strs("problems", problemTexts(err)).
			Str("next", d.env.Hint("postrider config validate")).
			Msg("configuration not reloaded; the one in use stays")
		return
	}
	now, changed, left := was.Adopt(newer, reloadable)
	d.loaded.Store(now)
	// also if the key has not changed: what was set over the admin listener ends here
	d.level.Configure(now.Config.Log)
	d.notifier.Adopt(now.Config.Alerts)
	d.pipeline.limiter.Set(now.Config.Relay.MaxRate, now.Config.Relay.Rates)
	d.metrics.ConfigLoaded.SetTime(time.Now())
	for _, w := range now.Warnings {
		log.Warn().Msg(w)
	}
	log.Info().Str("file", now.Path).Strs("changed", values(now, changed)).
		Msg("configuration reloaded")
	if len(left) > 0 {
		const next = "systemctl restart postrider   # or however it was started"
		log.Warn().Strs("keys", left).Str("next", next).
			Msg("configuration changed where only a restart takes it up")
	}
}

// problemTexts are the problems of a configuration, one each.
func problemTexts(err error) []string {
	var problems config.Problems
	if !errors.As(err, &problems) {
		return []string{err.Error()}
	}
	texts := make([]string, len(problems))
	for i, p := range problems {
		texts[i] = p.Error()
	}
	return texts
}

// values are lines of configuration: `log.level = "debug"`.
func values(l *config.Loaded, keys []string) []string {
	lines := []string{}
	for _, v := range l.Values() {
		if slices.Contains(keys, v.Key) {
			lines = append(lines, v.Key+" = "+v.TOML)
		}
	}
	return lines
}

// StateDump is the answer to SIGUSR1 and to GET /state of the admin listener.
type StateDump struct {
	Status  status.Report  `json:"status"`
	Process processFigures `json:"process"`
}

type processFigures struct {
	LogLevel   string `json:"log_level"`
	Goroutines int    `json:"goroutines"`
	HeapBytes  uint64 `json:"heap_bytes"`  // of objects, live or not yet collected
	TotalBytes uint64 `json:"total_bytes"` // that the Go runtime has from the system
	HeapGoal   uint64 `json:"heap_goal_bytes"`
	GCCycles   uint32 `json:"gc_cycles"`
}

func (d *Daemon) state() StateDump {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return StateDump{d.report(), processFigures{d.level.Get().String(), runtime.NumGoroutine(),
		m.HeapAlloc, m.Sys, m.NextGC, m.NumGC}}
}

// dump writes the state as one line of JSON, whatever format and level the log has.
func (d *Daemon) dump() {
	line := zerolog.New(d.env.Stderr)
	line.Log().Timestamp().Interface("state", d.state()).Msg("state dumped")
}
