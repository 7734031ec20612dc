package e2e

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/test/parts"
)

// benchReport is what scripts rely on: of each workload, what the demo prints, and more.
type benchReport struct {
	Version   string
	Cores     int
	Date      time.Time
	Postgres  string
	Workloads []struct {
		demoReport
		Workload string
		Runs     int
		Spread   map[string][2]float64
		Each     []demoReport

		IntendedLatencyMS   map[string]float64 `json:"intended_latency_ms"`
		AckLatencyMS        map[string]float64 `json:"ack_latency_ms"`
		StartToFirstSeconds float64            `json:"start_to_first_seconds"`
		CPUPerMillion       float64            `json:"cpu_seconds_per_million"`
		ProduceRequests     float64            `json:"produce_requests"`
		ProduceBytes        float64            `json:"produce_bytes"`
		RetainedMaxBytes    float64            `json:"retained_max_bytes"`
		WALBytes            float64            `json:"wal_bytes"`
		WrittenPerSecond    float64            `json:"written_per_second"`
	}
}

// requireBench wants one JSON object with clean audits.
func requireBench(t testing.TB, p *parts.Relay, workloads int) benchReport {
	t.Helper()
	require.Zero(t, p.Wait(t), "exit code")
	var r benchReport
	require.NoError(t, json.Unmarshal(p.Stdout.Bytes(), &r), "stdout: %s", p.Stdout.String())
	require.Len(t, r.Workloads, workloads)
	require.Positive(t, r.Cores)
	require.NotEmpty(t, r.Version)
	require.NotEmpty(t, r.Postgres)
	require.WithinDuration(t, time.Now(), r.Date, time.Hour)
	for _, w := range r.Workloads {
		require.True(t, w.Clean(), "%+v", w)
		require.Positive(t, w.Written)
		require.Equal(t, w.Written, w.Delivered)
		require.Positive(t, w.Seconds)
		require.Positive(t, w.LatencyMS["p50"])
		require.LessOrEqual(t, w.LatencyMS["p50"], w.LatencyMS["p99"])
		require.LessOrEqual(t, w.LatencyMS["p999"], w.LatencyMS["max"])
		require.Len(t, w.Each, w.Runs)
		require.Positive(t, w.MaxRSSBytes)
	}
	return r
}

func TestBench_DrainsABacklogOnPartsOfItsOwnAndLeavesNothing(t *testing.T) {
	t.Parallel()
	dir, env := temporary(t)
	p := start(t, env, "bench", "drain", "--rows", "10000", "--tx", "1,all", "--size", "200", "--runs", "2", "--json")
	var pids []int
	parts.Await(t, "the relay of the second workload", func() (bool, error) {
		pids = descendants(t, p.PID)
		return strings.Contains(p.Log.String(), "all rows per transaction") || !p.Running(), nil
	})
	r := requireBench(t, p, 2)
	for _, w := range r.Workloads {
		require.Equal(t, "drain", w.Workload)
		require.Equal(t, int64(20_000), w.Written, "in two runs")
		require.Positive(t, w.StartToFirstSeconds)
		require.Positive(t, w.RowsPerSecond)
		require.Positive(t, w.CPUSeconds)
		require.Positive(t, w.CPUPerMillion)
		require.Positive(t, w.ProduceRequests)
		require.Greater(t, w.ProduceBytes, 10_000*200.0, "all payloads, without compression")
		spread := w.Spread["rows_per_second"]
		require.LessOrEqual(t, spread[0], w.RowsPerSecond)
		require.GreaterOrEqual(t, spread[1], w.RowsPerSecond)
	}
	requireNothingLeft(t, dir, pids)

	saved := filepath.Join(t.TempDir(), "bench.json")
	require.NoError(t, os.WriteFile(saved, p.Stdout.Bytes(), 0o600))
	tables := start(t, nil, "bench", "report", saved)
	require.Zero(t, tables.Wait(t))
	require.Contains(t, tables.Stdout.String(), "| rows per transaction | payload |")
	require.Contains(t, tables.Stdout.String(), "audit: written 40000, delivered 40000, lost 0, duplicated 0, out of order 0")
}

func TestBench_MeasuresFromTheIntendedTimeAndFromTheCommit(t *testing.T) {
	t.Parallel()
	_, env := temporary(t)
	r := requireBench(t, start(t, env, "bench", "rate", "--rate", "200", "--duration", "2s", "--json"), 1)
	w := r.Workloads[0]
	require.LessOrEqual(t, w.Written, int64(600), "a second to warm up, and two; what is late at the end is not sent")
	require.Greater(t, w.Written, int64(200), "more than the warm-up")
	require.GreaterOrEqual(t, w.IntendedLatencyMS["max"], w.LatencyMS["p50"])
	require.GreaterOrEqual(t, w.IntendedLatencyMS["p50"], w.LatencyMS["p50"], "a row is due before it is committed")
	require.Positive(t, w.AckLatencyMS["p50"])
	require.Positive(t, w.WrittenPerSecond)
}

func TestBench_LooksAtAnIdleOutboxInABusyDatabase(t *testing.T) {
	t.Parallel()
	_, env := temporary(t)
	r := requireBench(t, start(t, env, "bench", "idle", "--rate", "500", "--duration", "1s", "--json"), 1)
	require.Positive(t, r.Workloads[0].WALBytes)
	require.Positive(t, r.Workloads[0].RetainedMaxBytes)
}

// yours is a database and a cluster that a bench is let into under a name of its own.
type yours struct {
	cluster
	db   *parts.Database
	name string
}

// newYours has a server of its own: on a shared one the slot of a bench would wait for open transactions of other tests.
func newYours(t *testing.T) yours {
	db := parts.NewDatabase(t, parts.ExclusivePostgres(t, embedded.PostgresConfig{}).DSN())
	return yours{newCluster(t), db, parts.Unique("bench")}
}

func (y yours) start(t *testing.T, args ...string) *parts.Relay {
	_, env := temporary(t)
	return start(t, env, append(append([]string{"bench"}, args...), "--name", y.name, "--postgres", y.db.DSN(), "--kafka", y.list())...)
}

// left is what is there of the bench's name.
func (y yours) left(t *testing.T) (found []string) {
	require.NoError(t, y.db.Connect(t).QueryRow(t.Context(), `
		SELECT coalesce(array_agg(what), '{}') FROM (
			SELECT 'schema ' || nspname FROM pg_namespace WHERE nspname = $1
			UNION ALL SELECT 'publication ' || pubname FROM pg_publication
			UNION ALL SELECT 'slot ' || slot_name FROM pg_replication_slots WHERE database = current_database()
		) leftovers (what)`, y.name).Scan(&found))
	return found
}

func (y yours) requireNothingLeft(t *testing.T) {
	require.Empty(t, y.left(t))
	for _, aggregate := range []string{"order", "payment", "customer", "shipment"} {
		topic := y.name + ".0.0." + aggregate
		parts.Await(t, "the end of topic "+topic, func() (bool, error) { return y.Partitions(t, topic) == 0, nil })
	}
}

func TestBench_RemovesWhatItMadeAndRefusesWhatItDidNot(t *testing.T) {
	t.Parallel()
	y := newYours(t)
	requireBench(t, y.start(t, "drain", "--rows", "2000", "--json"), 1)
	y.requireNothingLeft(t)

	for _, thing := range []struct{ what, make, drop string }{
		{"slot", "SELECT pg_create_logical_replication_slot('" + y.name + "', 'pgoutput')", "SELECT pg_drop_replication_slot('" + y.name + "')"},
		{"schema", "CREATE SCHEMA " + y.name, "DROP SCHEMA " + y.name},
		{"publication", "CREATE PUBLICATION " + y.name, "DROP PUBLICATION " + y.name},
	} {
		y.db.Exec(t, thing.make)
		p := y.start(t, "drain", "--rows", "2000")
		require.Equal(t, 1, p.Wait(t), "exit code")
		require.Contains(t, p.Log.String(), thing.what+` "`+y.name+`" exists already`)
		require.Contains(t, p.Log.String(), "choose another --name")
		require.Equal(t, []string{thing.what + " " + y.name}, y.left(t))
		y.db.Exec(t, thing.drop)
	}
	y.CreateTopic(t, y.name+".0.0.payment", 1, nil)
	p := y.start(t, "drain", "--rows", "2000")
	require.Equal(t, 1, p.Wait(t), "exit code")
	require.Contains(t, p.Log.String(), `topic "`+y.name+`.0.0.payment" exists already`)
	require.Empty(t, y.left(t))
	require.Equal(t, int32(1), y.Partitions(t, y.name+".0.0.payment"))
}

func TestBench_RemovesWhatItMadeWhenInterrupted(t *testing.T) {
	t.Parallel()
	y := newYours(t)
	p := y.start(t, "rate", "--rate", "100", "--duration", "10m", "--json")
	parts.Await(t, "rows under way", func() (bool, error) {
		return y.Partitions(t, y.name+".0.0.order") > 0 && y.EndOffsets(t, y.name+".0.0.order")[0] > 0 || !p.Running(), nil
	})
	require.NoError(t, p.Signal(syscall.SIGINT))
	require.Equal(t, 1, p.Wait(t), "exit code")
	require.Contains(t, p.Log.String(), "interrupted")
	y.requireNothingLeft(t)
}

// A relay that publishes a row twice would be seen in the same place.
func TestBench_FailsWhenARowArrivesTwice(t *testing.T) {
	t.Parallel()
	y := newYours(t)
	p := y.start(t, "rate", "--rate", "100", "--duration", "10s", "--json") // long enough to repeat a row meanwhile
	topic := y.name + ".0.0.order"
	parts.Await(t, "the first records", func() (bool, error) {
		return y.Partitions(t, topic) > 0 && y.EndOffsets(t, topic)[0] > 0 || !p.Running(), nil
	})
	first := y.Consume(t, topic, 1)[0]
	ctx, cancel := context.WithTimeout(t.Context(), parts.Patience)
	defer cancel()
	require.NoError(t, y.Client(t).ProduceSync(ctx, &kgo.Record{Topic: topic, Key: first.Key, Value: first.Value}).FirstErr())

	require.Equal(t, 1, p.Wait(t), "exit code")
	var r benchReport
	require.NoError(t, json.Unmarshal(p.Stdout.Bytes(), &r), "stdout: %s", p.Stdout.String())
	require.Equal(t, int64(1), r.Workloads[0].Duplicated)
	require.Zero(t, r.Workloads[0].Lost)
	y.requireNothingLeft(t)
}

func TestBench_SaysWhatTheServerLacks(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	_, env := temporary(t)
	for name, lack := range map[string]struct {
		params map[string]string
		before string
		says   string
	}{
		"wal_level":  {map[string]string{"wal_level": "replica"}, "", "wal_level is replica, and a logical slot needs logical"},
		"slots":      {map[string]string{"max_replication_slots": "1"}, "SELECT pg_create_physical_replication_slot('taken')", "no free replication slot"},
		"walsenders": {map[string]string{"max_wal_senders": "0"}, "", "0 of 0 walsenders are in use"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := parts.ExclusivePostgres(t, embedded.PostgresConfig{Params: lack.params})
			_, err := parts.Connect(t, server.DSN()).Exec(t.Context(), lack.before)
			require.NoError(t, err)
			p := start(t, env, "bench", "drain", "--rows", "100", "--postgres", server.DSN(), "--kafka", c.list(), "--name", parts.Unique("bench"))
			require.Equal(t, 78, p.Wait(t), "exit code")
			require.Contains(t, p.Log.String(), lack.says)
			require.Contains(t, p.Log.String(), "ALTER SYSTEM SET")
		})
	}
}
