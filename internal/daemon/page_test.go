package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/check"
	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/metrics"
	"github.com/postrider/postrider/internal/secret"
	"github.com/postrider/postrider/internal/status"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/slot/monitor"
)

func newTestDaemon(t *testing.T) *Daemon {
	t.Helper()
	l := &config.Loaded{Config: config.Default(), Path: "postrider.toml"}
	l.Config.Postgres.URL = secret.Of("postgres://postrider:canary@db/shop")
	d, err := New(testEnvironment(io.Discard), l, metrics.New(prometheus.NewRegistry(), "postrider"), zerolog.Nop())
	require.NoError(t, err)
	return d
}

// part is the JSON twin of a part, as a client sees it.
func part(t *testing.T, d *Daemon, name string) map[string]any {
	t.Helper()
	for _, p := range d.page.parts() {
		if p.Name == name {
			b, err := json.Marshal(p.Get())
			require.NoError(t, err)
			require.NotContains(t, string(b), "canary")
			var document map[string]any
			require.NoError(t, json.Unmarshal(b, &document))
			return document
		}
	}
	t.Fatalf("the page has no part %s", name)
	return nil
}

func TestPage_HasTenPartsBeforeAnythingIsKnown(t *testing.T) {
	d := newTestDaemon(t)
	require.Len(t, d.page.parts(), 10)
	for name, keys := range map[string][]string{
		"verdict":  {"state", "reason"},
		"pipeline": {"phase", "since", "sessions", "received_lsn", "distances", "rates", "published", "in_flight"},
		"slot":     {"slot", "server", "limit", "rates", "forecast"},
		"history":  {"interval_seconds", "samples"},
		"topics":   {"topics"},
		"events":   {"events"},
		"errors":   {"errors"},
		"check":    {"running", "ok", "findings"},
		"config":   {"file", "values"},
		"build":    {"version", "go_version", "os", "arch", "pid", "started_at"},
	} {
		document := part(t, d, name)
		for _, k := range keys {
			require.Contains(t, document, k, name)
			require.NotNil(t, document[k], "%s.%s: a list that is empty is [], so that a script can loop", name, k)
		}
	}
}

func TestPage_MakesRatesOfWhatWasPublished(t *testing.T) {
	d := newTestDaemon(t)
	begin := time.Now()
	d.page.sample(begin)
	topic := d.metrics.Topic("outbox.event.order")
	topic.Published.Add(500)
	topic.Bytes.Add(5_000)
	topic.Last.Set(1_700_000_000)
	d.page.sample(begin.Add(10 * time.Second))

	topics := part(t, d, "topics")["topics"].([]any)
	require.Len(t, topics, 1)
	row := topics[0].(map[string]any)
	require.Equal(t, "outbox.event.order", row["topic"])
	require.Equal(t, 50.0, row["published_per_second"])
	require.Equal(t, 500.0, row["bytes_per_second"])
	require.Equal(t, "2023-11-14T22:13:20Z", row["last_published"])
	require.Equal(t, 50.0, part(t, d, "pipeline")["rates"].(map[string]any)["published_per_second"])
	samples := part(t, d, "history")["samples"].([]any)
	require.Len(t, samples, 1)
	require.Equal(t, 50.0, samples[0].(map[string]any)["published_per_second"])
}

func TestPageCheck_RunsWhileSomebodyLooksAndNotTooOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		c := pageCheck{run: func(context.Context) ([]check.Finding, []kafka.TopicReport) {
			runs.Add(1)
			return []check.Finding{{Severity: check.SeverityWarning, Code: "topic", Subject: "orders", Observed: "no leader"}},
				[]kafka.TopicReport{{Name: "orders", Partitions: 3, ReplicationFactor: 2}}
		}}
		require.Equal(t, check.Report{Findings: []check.Finding{}}, c.get(time.Now()), "nothing runs before the relay does")
		end := c.start(t.Context())
		require.True(t, c.get(time.Now()).Running)
		synctest.Wait()
		for range 100 {
			r := c.get(time.Now())
			require.False(t, r.Running)
			require.True(t, r.OK)
			require.Len(t, r.Findings, 1)
		}
		require.EqualValues(t, 1, runs.Load())
		require.Equal(t, status.Topic{Partitions: 3, ReplicationFactor: 2, Warnings: []string{"no leader"}}, c.topics()["orders"])
		time.Sleep(checkPause) // of the bubble's clock
		require.True(t, c.get(time.Now()).Running)
		end()
		require.EqualValues(t, 2, runs.Load())
		time.Sleep(checkPause)
		require.False(t, c.get(time.Now()).Running, "the relay has ended")
	})
}

// The server's position is that of the last look, some seconds ago. What has been received since then is no distance to it.
func TestPage_ShowsThePositionsOfOneInstant(t *testing.T) {
	d := newTestDaemon(t)
	look := func(at time.Time, wal, confirmed pglogrepl.LSN) monitor.Observation {
		var o monitor.Observation
		o.Slot.ObservedAt, o.Slot.CurrentWALLSN, o.Slot.ConfirmedFlushLSN = at, wal, confirmed
		return o
	}
	distances := func() map[string]any {
		return part(t, d, "pipeline")["distances"].(map[string]any)
	}
	begin := time.Now()
	d.page.take(look(begin, 5000, 3000), relay.State{ReceivedLSN: 4900, AckedLSN: 4000})
	require.Equal(t, map[string]any{"server_to_received": 100.0, "received_to_acked": 900.0, "acked_to_confirmed": 1000.0}, distances())
	d.page.take(look(begin, 5000, 3000), relay.State{ReceivedLSN: 90_000, AckedLSN: 80_000}) // told again of the same look
	require.Equal(t, 1000.0, distances()["acked_to_confirmed"])
	d.page.take(look(begin.Add(5*time.Second), 95_000, 94_000), relay.State{ReceivedLSN: 95_100, AckedLSN: 94_500}) // it came between
	require.Equal(t, map[string]any{"server_to_received": 0.0, "received_to_acked": 600.0, "acked_to_confirmed": 500.0}, distances())
	require.Equal(t, part(t, d, "pipeline")["received_lsn"], part(t, d, "pipeline")["server_wal_lsn"])
}

// testEnvironment is that of a process without variables.
func testEnvironment(stderr io.Writer) Environment {
	none := func(string) string { return "" }
	return Environment{Stdout: io.Discard, Stderr: stderr, Getenv: none, Hint: func(hint string) string { return hint }}
}

func TestPauseText_SaysUntilWhenAndWhy(t *testing.T) {
	until := time.Date(2026, 9, 30, 12, 0, 0, 0, time.UTC)
	require.Equal(t, "the relay is paused until it is resumed", pauseText(relay.Pause{}))
	require.Equal(t, "the relay is paused until 2026-09-30T12:00:00Z: new brokers", pauseText(relay.Pause{Until: until, Reason: "new\nbrokers"}))
}

func TestAboutAlerts_NamesTheDatabaseWithoutItsPassword(t *testing.T) {
	cfg := config.Default()
	cfg.Postgres.URL = secret.Of("postgres://relay:CANARY@db-1:5433,db-2/shop?sslmode=require")
	about := AboutAlerts(cfg)
	require.Equal(t, "db-1:5433,db-2:5432", about.Server)
	require.Equal(t, "shop", about.Database)
	require.Equal(t, "postrider", about.Slot)
	require.NotContains(t, fmt.Sprintf("%+v", about), "CANARY")
	require.NotEmpty(t, about.Instance)
}
