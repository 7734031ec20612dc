package daemon

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/logging"
	"github.com/postrider/postrider/internal/metrics"
	"github.com/postrider/postrider/internal/ratelimit"
)

// reloadRig is a daemon whose configuration lies in a file. It is connected to nothing.
type reloadRig struct {
	*Daemon
	file     string
	registry *prometheus.Registry
	log      zerolog.Logger
	written  bytes.Buffer // the log, and what is dumped
}

const reloadable1 = `
[postgres]
url = "postgres://postrider:canary@db/shop"
[replication]
tables = ["public.outbox"]
[sink.kafka]
brokers = ["kafka-1:9092"]
[admin]
token = "canary"
`

func newReloadRig(t *testing.T, more string) *reloadRig {
	t.Helper()
	x := &reloadRig{file: filepath.Join(t.TempDir(), "postrider.toml"), registry: prometheus.NewRegistry()}
	x.write(t, reloadable1+more)
	l, err := config.LoadValid(config.Source{Path: x.file})
	require.NoError(t, err)
	level := new(logging.Level)
	level.Configure(l.Config.Log)
	x.log = logging.New(&x.written, config.Log{Format: "json"}, level, false)
	x.Daemon, err = New(testEnvironment(&x.written), l, metrics.New(x.registry, "postrider"), x.log)
	require.NoError(t, err)
	x.level = level
	t.Cleanup(func() { require.NotContains(t, x.written.String(), "canary") })
	return x
}

func (x *reloadRig) write(t *testing.T, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(x.file, []byte(text), 0o600))
}

// reloadWith is a SIGHUP with another file. It returns what was logged, by message.
func (x *reloadRig) reloadWith(t *testing.T, text string) map[string]map[string]any {
	t.Helper()
	x.write(t, text)
	x.written.Reset()
	x.requests = &requests{}
	x.obey(syscall.SIGHUP, x.log)
	lines := map[string]map[string]any{}
	for line := range bytes.Lines(x.written.Bytes()) {
		var fields map[string]any
		require.NoError(t, json.Unmarshal(line, &fields), "%s", line)
		lines[fields["message"].(string)] = fields
	}
	return lines
}

// gauge is a series of this registry without labels of its own; nil: absent.
func (x *reloadRig) gauge(t *testing.T, name string) *float64 {
	t.Helper()
	families, err := x.registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].Gauge.Value
		}
	}
	return nil
}

func TestReload_ChangesLevelAndThresholdsAtOnce(t *testing.T) {
	x := newReloadRig(t, "")
	require.Nil(t, x.gauge(t, "postrider_relay_config_reload_successful"), "never asked")
	x.log.Debug().Msg("not written")
	lines := x.reloadWith(t, reloadable1+"[health]\nunacked_warning = \"7s\"\n[alerts]\nseverity = \"critical\"\n[log]\nlevel = \"debug\"\n")
	require.Equal(t, []any{`health.unacked_warning = "7s"`, `alerts.severity = "critical"`, `log.level = "debug"`}, lines["configuration reloaded"]["changed"])
	require.Len(t, lines, 1)
	require.Equal(t, 7*time.Second, x.loaded.Load().Config.Health.UnackedWarning)
	require.Equal(t, "critical", x.loaded.Load().Config.Alerts.Severity)
	require.Contains(t, part(t, x.Daemon, "config")["values"], map[string]any{
		"key": "health.unacked_warning", "value": "7s", "toml": `"7s"`, "origin": x.file + ":11", "env": "POSTRIDER_HEALTH_UNACKED_WARNING",
	})
	x.log.Debug().Msg("written")
	require.Contains(t, x.written.String(), `"message":"written"`)
	require.NotContains(t, x.written.String(), "not written")
	require.InDelta(t, 1, *x.gauge(t, "postrider_relay_config_reload_successful"), 0)
	require.NotNil(t, x.gauge(t, "postrider_relay_config_loaded_timestamp_seconds"))
}

func TestReload_ChangesTheRate(t *testing.T) {
	x := newReloadRig(t, "")
	require.Zero(t, x.Relay.State().Rate)
	lines := x.reloadWith(t, reloadable1+"[relay]\nmax_rate = \"500 rows/s\"\n[[relay.rate]]\ntopics = [\"orders\"]\nmax_rate = \"1MiB/s\"\n")
	require.Equal(t, []any{`relay.max_rate = "500 rows/s"`, `relay.rate = [{ topics = ["orders"], max_rate = "1MiB/s" }]`}, lines["configuration reloaded"]["changed"])
	require.Len(t, lines, 1)
	require.Equal(t, ratelimit.Rate{Rows: 500}, x.Relay.State().Rate.MaxRate)
	require.InDelta(t, 500, *x.gauge(t, "postrider_relay_rate_limit_rows_per_second"), 0)
	require.InDelta(t, 1<<20, *x.gauge(t, "postrider_relay_rate_limit_bytes_per_second"), 0)
	x.reloadWith(t, reloadable1+"[relay]\nmax_rate = \"fast\"\n")
	require.Equal(t, ratelimit.Rate{Rows: 500}, x.Relay.State().Rate.MaxRate, "a broken file changes nothing")
	lines = x.reloadWith(t, reloadable1)
	require.Equal(t, []any{`relay.max_rate = "none"`, "relay.rate = "}, lines["configuration reloaded"]["changed"])
	require.Zero(t, x.Relay.State().Rate)
	require.Nil(t, x.gauge(t, "postrider_relay_rate_limit_rows_per_second"))
}

func TestReload_NamesWhatNeedsARestart(t *testing.T) {
	x := newReloadRig(t, "")
	lines := x.reloadWith(t, "[log]\nlevel = \"warn\"\n[http]\nlisten = \"127.0.0.1:1\"\n"+
		"[postgres]\nurl = \"postgres://postrider:canary2@db/shop\"\n[replication]\ntables = [\"public.outbox\"]\n[sink.kafka]\nbrokers = [\"kafka-2:9092\"]\n[admin]\ntoken = \"canary\"\n")
	require.Equal(t, []any{"postgres.url", "sink.kafka.brokers", "http.listen"}, lines["configuration changed where only a restart takes it up"]["keys"])
	require.Nil(t, lines["configuration reloaded"], "an info, which is not written any more")
	require.Equal(t, []string{"kafka-1:9092"}, x.loaded.Load().Config.Sink.Kafka.Brokers)

	lines = x.reloadWith(t, reloadable1)
	require.Nil(t, lines["configuration changed where only a restart takes it up"], "it is as it was at the start again")
}

func TestReload_RefusesABrokenFileAsAWhole(t *testing.T) {
	x := newReloadRig(t, "")
	x.env.Hint = func(hint string) string { return hint + " --config p.toml" }
	for name, text := range map[string]string{
		"not TOML":      "[log\n",
		"unknown key":   reloadable1 + "[log]\nlevel = \"debug\"\nlevle = \"debug\"\n",
		"wrong value":   reloadable1 + "[log]\nlevel = \"debug\"\n[health]\nunacked_warning = \"-1s\"\n",
		"what is wrong": "[log]\nlevel = \"debug\"\n[sink]\nkind = \"amqp\"\n",
	} {
		lines := x.reloadWith(t, text)
		refused := lines["configuration not reloaded; the one in use stays"]
		require.NotEmpty(t, refused["problems"], name)
		require.Equal(t, "postrider config validate --config p.toml", refused["next"], name)
		require.Equal(t, "error", refused["level"], name)
		require.Len(t, lines, 1, name)
		require.InDelta(t, 0, *x.gauge(t, "postrider_relay_config_reload_successful"), 0)
		require.Equal(t, config.Default().Health, x.loaded.Load().Config.Health)
		require.Equal(t, zerolog.InfoLevel, x.level.Get())
	}
	require.NoError(t, os.Remove(x.file))
	x.reload(x.log)
	require.Equal(t, []string{"kafka-1:9092"}, x.loaded.Load().Config.Sink.Kafka.Brokers)
	require.NotEmpty(t, x.reloadWith(t, reloadable1)["configuration reloaded"], "and the next one is taken")
}

func TestReload_EndsALevelThatWasSetByHand(t *testing.T) {
	x := newReloadRig(t, "")
	answer, err := x.setLogLevel("trace", x.log)
	require.NoError(t, err)
	require.Equal(t, levelAnswer{Level: "trace", Was: "info"}, answer)
	require.Equal(t, zerolog.TraceLevel, x.level.Get())
	x.reload(x.log)
	require.Equal(t, zerolog.InfoLevel, x.level.Get())
	for _, wrong := range []string{"", "loud", "disabled", "DEBUG"} {
		_, err = x.setLogLevel(wrong, x.log)
		require.ErrorContains(t, err, "trace, debug, info, warn, error", wrong)
	}
}

func TestDump_IsOneLineOfJSONWhateverTheLogIs(t *testing.T) {
	x := newReloadRig(t, "[log]\nlevel = \"error\"\nformat = \"console\"\n")
	x.obey(syscall.SIGUSR1, x.log)
	var line struct {
		Message string `json:"message"`
		State   struct {
			Status  map[string]any `json:"status"`
			Process processFigures `json:"process"`
		} `json:"state"`
	}
	require.Equal(t, 1, bytes.Count(x.written.Bytes(), []byte("\n")))
	require.NoError(t, json.Unmarshal(x.written.Bytes(), &line))
	require.Equal(t, "state dumped", line.Message)
	require.Contains(t, line.State.Status, "verdict")
	require.Equal(t, "error", line.State.Process.LogLevel)
	require.NotZero(t, line.State.Process.Goroutines)
	require.NotZero(t, line.State.Process.HeapBytes)
	require.Greater(t, line.State.Process.TotalBytes, line.State.Process.HeapBytes)
}

func TestRequests_TakeAHangUpForTheEndOnlyWithTheTerminalGone(t *testing.T) {
	require.False(t, (&requests{}).hungUp(), "a daemon never had one")
	require.Equal(t, !hasTerminal(), (&requests{terminal: true}).hungUp())
}
