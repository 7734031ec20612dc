package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/internal/httpserver"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/slot/monitor"
)

func wellReport() Report {
	return Report{
		Version: "v1.2.3", PID: 99, StartedAt: ago(2 * time.Hour), Source: sourceDaemon,
		Relay: streaming(nil), Slot: observed(nil), Sink: SinkReport{Kind: "kafka", Targets: []string{"kafka-1:9092", "kafka-2:9092"}},
		Verdict: health.Judge(health.Input{Now: now, Relay: streaming(nil), Observation: monitor.Observation{Slot: observed(nil)}, Config: health.DefaultConfig()}),
	}
}

// serveStatus runs a daemon that answers with r, and returns a configuration that asks it.
func serveStatus(t *testing.T, r func() any) string {
	t.Helper()
	port := serveHTTP(t, "127.0.0.1:0", httpserver.Handlers{Live: healthy, Ready: isReady, Status: r})
	return "[http]\nlisten = \"127.0.0.1:" + port + "\"\n"
}

func TestReport_KeepsEverythingThroughJSON(t *testing.T) {
	want := wellReport()
	want.Relay.OldestUnacked, want.Relay.Error, want.DaemonError = ago(time.Second), "an error", "another"
	b, err := json.Marshal(want)
	require.NoError(t, err)
	var got Report
	require.NoError(t, json.Unmarshal(b, &got))
	require.Equal(t, want, got)
}

// The daemon's answer, with all that a monitor can know.
func TestReport_KeepsVerdictAndObservationThroughJSON(t *testing.T) {
	seconds := 600.0
	o := monitor.Observation{
		Slot:           observed(nil),
		Server:         monitor.Server{Version: "17.6", Timeline: 3, StartedAt: ago(time.Hour)},
		Limit:          monitor.Limit{MaxSlotWALKeepSize: new(int64(1 << 30)), Effective: new(int64(1 << 30)), SegmentSize: 16 << 20, CheckpointTimeout: 300},
		Stream:         &monitor.Walsender{PID: 4711, Application: "postrider", State: "streaming"},
		Decoding:       &monitor.Decoding{SpillBytes: 17},
		CatalogXminAge: new(int64(42)),
		Blockers:       []monitor.Blocker{{Kind: monitor.BlockerTransaction, PID: 815, Application: "psql", Since: ago(time.Hour), Restart: true}},
		Standbys:       []monitor.StandbySlot{{Name: "standby1", Blocks: true}},
		Others:         []slot.Status{{Slot: slot.Slot{Name: "crm"}, RetainedBytes: new(int64(5 << 30)), ObservedAt: ago(time.Second)}},
		Rates:          monitor.Rates{WAL5m: &seconds},
		Forecast:       monitor.Forecast{Loss: monitor.Estimate{Seconds: &seconds, Assumption: "writes go on"}},
		Clock:          &monitor.Clock{Skew: 2, Error: 0.5},
		Notes:          []monitor.Note{{Value: "wal_directory", Text: "needs pg_monitor"}},
		Events:         []monitor.Event{{At: ago(time.Minute), Code: "server_restarted", Text: "the server was restarted"}},
	}
	cfg := config.Default()
	cfg.Sink.Kafka.Brokers = []string{"kafka-1:9092"}
	want := newReport(now, 99, ago(2*time.Hour), streaming(func(r *relay.State) { r.InFlight, r.WaitingSince = 3, ago(10*time.Second) }), o, cfg)
	b, err := json.Marshal(want)
	require.NoError(t, err)
	var got Report
	require.NoError(t, json.Unmarshal(b, &got))
	for i := range want.Verdict.Conditions { // how long it has to hold is for whoever tells of it, in the same process
		want.Verdict.Conditions[i].For = 0
	}
	require.Equal(t, want, got)

	var names []string
	for _, c := range got.Verdict.Conditions {
		names = append(names, c.Name)
	}
	require.Equal(t, []string{health.TimeToLoss, health.StandbyGate, health.Stuck, health.HeldByTransaction, health.OtherSlot, health.ClockSkew}, names)
	require.Equal(t, "kafka at kafka-1:9092", got.Verdict.Conditions[2].Cause)

	var document struct{ Monitor map[string]any }
	require.NoError(t, json.Unmarshal(b, &document))
	require.NotContains(t, document.Monitor, "slot", "it stands beside")
	require.Contains(t, document.Monitor, "holders")
}

func TestReport_WritesPositionsAsText(t *testing.T) {
	b, err := json.Marshal(wellReport())
	require.NoError(t, err)
	var document struct{ Relay, Slot map[string]any }
	require.NoError(t, json.Unmarshal(b, &document))
	require.Equal(t, "0/2000", document.Relay["received_lsn"])
	require.Equal(t, "0/2000", document.Relay["acked_lsn"])
	require.Equal(t, "0/1F00", document.Relay["confirmed_flush_lsn"])
	require.Equal(t, "0/1F00", document.Slot["confirmed_flush_lsn"])
}

func TestReport_LeavesOutWhatNobodyKnows(t *testing.T) {
	b, err := json.Marshal(Report{Source: sourceDatabase})
	require.NoError(t, err)
	var document map[string]any
	require.NoError(t, json.Unmarshal(b, &document))
	require.NotContains(t, document, "relay")
	require.NotContains(t, document, "slot")
	require.NotContains(t, document, "monitor")
	require.NotContains(t, document, "started_at")
}

func TestStatus_ShowsWhatTheDaemonSays(t *testing.T) {
	file := serveStatus(t, func() any { return wellReport() })
	code, stdout, stderr := command(t, file, "status")
	require.Equal(t, exitOK, code, stderr)
	require.Empty(t, stderr)
	require.True(t, strings.HasPrefix(stdout, "ok: streaming for 1h12m\n\n"), stdout)
	for _, line := range []string{
		"sink          kafka at kafka-1:9092, kafka-2:9092",
		"slot          postrider in database shop, active for process 4711 of the database",
		"wal_status    reserved, max_slot_wal_keep_size sets no limit",
		"server        0/2100",
		"received      0/2000   256 B behind",
		"acked         0/2000   256 B behind",
		"confirmed     0/1F00   512 B behind",
		"restart       0/1000   4.2 KiB kept",
	} {
		require.Contains(t, stdout, "\n"+line+"\n")
	}
}

func TestStatus_ShowsEveryCondition(t *testing.T) {
	file := serveStatus(t, func() any {
		r := wellReport()
		paused := streaming(func(s *relay.State) {
			s.Phase, s.Paused = relay.Paused, relay.Pause{Since: now.Add(-2 * time.Minute), Reason: "deploy"}
		})
		r.judge(now, paused, monitor.Observation{Slot: observed(func(s *slot.Status) { s.LagBytes = new(int64(2 << 30)) })}, health.StartError{}, health.DefaultConfig())
		return r
	})
	code, stdout, stderr := command(t, file, "status")
	require.Equal(t, exitOK, code, stderr)
	require.True(t, strings.HasPrefix(stdout, `degraded: the relay has been paused for 2m0s, until somebody resumes it: deploy
  WAL:  4.2 KiB is kept for slot "postrider", more with every write, until rows are confirmed again
  next: postrider resume
  also: warning, PostriderBacklog: 2.0 GiB of WAL behind the server: the relay has been paused for 2m0s, until somebody resumes it: deploy
        next: postrider resume

`), stdout)
}

func TestStatus_PrintsTheReportAsJSON(t *testing.T) {
	file := serveStatus(t, func() any { return wellReport() })
	code, stdout, stderr := command(t, file, "status", "--json")
	require.Equal(t, exitOK, code, stderr)
	var got Report
	require.NoError(t, json.Unmarshal([]byte(stdout), &got))
	require.Equal(t, wellReport(), got)
}

func TestStatus_ExitsWithTheVerdict(t *testing.T) {
	for state, want := range map[string]int{health.OK: exitOK, health.Standby: exitOK, health.Degraded: exitOK, health.Failing: exitRuntime} {
		r := wellReport()
		r.Verdict = health.Verdict{State: state, Reason: "because", WAL: "1 GiB is kept", Next: "postrider check"}
		file := serveStatus(t, func() any { return r })
		code, stdout, stderr := command(t, file, "status")
		require.Equal(t, want, code)
		require.Empty(t, stderr)
		require.True(t, strings.HasPrefix(stdout, state+": because\n  WAL:  1 GiB is kept\n  next: postrider check\n\n"), stdout)
	}
}

func TestStatus_AsksTheDatabaseWhenNoDaemonAnswers(t *testing.T) {
	pg, err := embedded.StartPostgres(t.Context(), embedded.PostgresConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pg.Close()) })
	stranger := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(stranger.Close)
	file := fmt.Sprintf("[postgres]\nurl = %q\n[slot]\nname = \"orders\"\n[http]\nlisten = %q\n", pg.DSN(), strings.TrimPrefix(stranger.URL, "http://"))

	code, stdout, stderr := command(t, file, "status")
	require.Equal(t, exitRuntime, code, stderr)
	require.Contains(t, stdout, `failing: no relay is running, and none could stream: table public.outbox does not exist`)
	require.Contains(t, stdout, "  WAL:  there is no slot")
	require.Contains(t, stdout, "next: postrider init")

	conn, err := pgx.Connect(t.Context(), pg.DSN())
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "CREATE TABLE outbox (id int); CREATE PUBLICATION postrider FOR TABLE outbox")
	require.NoError(t, err)
	_, stdout, _ = command(t, file, "status")
	require.Contains(t, stdout, `failing: no relay is running, and slot "orders" does not exist`)
	require.Contains(t, stdout, "next: postrider run")

	_, err = conn.Exec(t.Context(), "SELECT pg_create_logical_replication_slot('orders', 'pgoutput')")
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))

	code, stdout, stderr = command(t, file, "status")
	require.Equal(t, exitRuntime, code, stderr)
	require.Contains(t, stdout, "failing: no relay is running\n")
	require.Contains(t, stdout, "no answer: what follows comes from the database")
	require.Contains(t, stdout, "is it postrider that listens there?")
	require.Regexp(t, `\nslot +orders in database \w+, inactive\n`, stdout)
	require.Regexp(t, `\nconfirmed +[0-9A-F]+/[0-9A-F]+ +[0-9.]+ [KM]?i?B behind\n`, stdout)

	code, stdout, _ = command(t, file, "status", "--json")
	require.Equal(t, exitRuntime, code)
	var got Report
	require.NoError(t, json.Unmarshal([]byte(stdout), &got))
	require.Equal(t, sourceDatabase, got.Source)
	require.Equal(t, relay.State{}, got.Relay)
	require.Equal(t, "orders", got.Slot.Name)
	require.NotEmpty(t, got.DaemonError)
}

func TestStatus_FailsWhenNobodyAnswers(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	nobody := strings.TrimPrefix(gone.URL, "http://")
	gone.Close()
	const password = "hunter2-canary"
	file := fmt.Sprintf("[postgres]\nurl = \"postgres://relay:%s@%s/shop?sslmode=disable\"\n[http]\nlisten = %q\n", password, nobody, nobody)
	code, stdout, stderr := command(t, file, "status")
	require.Equal(t, exitUnavailable, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "the relay does not answer, and the database cannot be asked")
	require.Contains(t, stderr, "ask the relay: ")
	require.Contains(t, stderr, "ask the database: ")
	require.Contains(t, stderr, "next: start the server")
	require.NotContains(t, stderr, password)
}

// cancelAfter ends a watch after so many lines.
type cancelAfter struct {
	bytes.Buffer
	lines  int
	cancel context.CancelFunc
}

func (c *cancelAfter) Write(p []byte) (int, error) {
	n, err := c.Buffer.Write(p)
	if bytes.Count(c.Bytes(), []byte("\n")) >= c.lines {
		c.cancel()
	}
	return n, err
}

func TestStatus_WatchWritesALineForEachRefresh(t *testing.T) {
	var asked atomic.Uint64
	port := serveHTTP(t, "127.0.0.1:0", httpserver.Handlers{Live: healthy, Ready: isReady, Status: func() any {
		r := wellReport()
		r.Relay.Published = asked.Add(1)
		return r
	}})
	l := &config.Loaded{Config: config.Default()}
	l.Config.HTTP.Listen = "127.0.0.1:" + port
	for _, asJSON := range []bool{false, true} {
		asked.Store(0)
		ctx, cancel := context.WithCancel(t.Context())
		out := &cancelAfter{lines: 3, cancel: cancel}
		a := &app{Process: Process{Stdout: out}}
		require.NoError(t, a.watchStatus(ctx, l, time.Millisecond, asJSON))
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		require.Len(t, lines, 3)
		for i, line := range lines {
			if asJSON {
				var r Report
				require.NoError(t, json.Unmarshal([]byte(line), &r))
				require.EqualValues(t, i+1, r.Relay.Published)
				continue
			}
			require.Contains(t, line, fmt.Sprintf(" ok phase=streaming published=%d in_flight=0 lag=\"512 B\" retained=\"4.2 KiB\" streaming for", i+1))
		}
	}
}

func TestWriteReport_ShowsWhatGoesWrong(t *testing.T) {
	r := wellReport()
	r.Relay = streaming(func(r *relay.State) {
		r.Phase, r.Error, r.InFlight, r.InFlightBytes, r.OldestUnacked = relay.BackingOff, "broker\nunreachable", 3, 3000, ago(time.Minute)
	})
	r.Slot = observed(func(s *slot.Status) {
		s.SafeWALSize, s.PublicationOK, s.Error = new(int64(-1<<20)), new(false), "read slot: no connection"
	})
	r.Verdict = health.Judge(health.Input{Now: now, Relay: r.Relay, Observation: monitor.Observation{Slot: r.Slot}, Config: health.DefaultConfig()})
	var b strings.Builder
	require.NoError(t, writeReport(&b, r, now, true))
	for _, want := range []string{
		"\x1b[1;31mfailing\x1b[0m: ", "last error    broker unreachable\n", "in flight     3 messages, 2.9 KiB, the oldest committed 1m0s ago\n",
		"wal_status    reserved, -1.0 MiB until the slot can be lost\n", "publication   does not bring every table\n",
		"not since     read slot: no connection\n",
	} {
		require.Contains(t, b.String(), want)
	}
}

func TestWriteReport_DoesWithoutASlot(t *testing.T) {
	r := wellReport()
	r.Slot = slot.Status{}
	var b strings.Builder
	require.NoError(t, writeReport(&b, r, now, false))
	require.Contains(t, b.String(), "slot        not observed yet\n")
	require.Contains(t, b.String(), "received    0/2000\n")
}

var now = time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

// streaming is a relay that is well, observed is its slot.
func streaming(change func(*relay.State)) relay.State {
	r := relay.State{
		Phase: relay.Streaming, Since: ago(72 * time.Minute), Sessions: 1, ReceivedLSN: 0x2000, AckedLSN: 0x2000,
		ConfirmedFlushLSN: 0x1f00, Published: 42, LastProgress: ago(time.Second),
	}
	if change != nil {
		change(&r)
	}
	return r
}

func observed(change func(*slot.Status)) slot.Status {
	s := slot.Status{
		Slot: slot.Slot{
			Name: "postrider", Plugin: "pgoutput", Database: "shop", Active: true, ActivePID: 4711, WALStatus: "reserved",
			ConfirmedFlushLSN: 0x1f00, RestartLSN: 0x1000,
		},
		CurrentWALLSN: 0x2100, LagBytes: new(int64(0x200)), RetainedBytes: new(int64(0x1100)), PublicationOK: new(true),
		ObservedAt: ago(2 * time.Second),
	}
	if change != nil {
		change(&s)
	}
	return s
}
