package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/audit"
	"github.com/postrider/postrider/internal/embedded/child"
	"github.com/postrider/postrider/test/parts"
)

// demoReport is what scripts rely on.
type demoReport struct {
	audit.Verdict
	Seconds       float64            `json:"seconds"`
	RowsPerSecond float64            `json:"rows_per_second"`
	LatencyMS     map[string]float64 `json:"latency_ms"`
	CPUSeconds    float64            `json:"cpu_seconds"`
	MaxRSSBytes   int64              `json:"max_rss_bytes"`
}

// requireReport wants one JSON object, and a clean audit.
func requireReport(t testing.TB, p *parts.Relay, rows int64) {
	t.Helper()
	require.Zero(t, p.Wait(t), "exit code")
	var r demoReport
	require.NoError(t, json.Unmarshal(p.Stdout.Bytes(), &r), "stdout: %s", p.Stdout.String())
	require.True(t, r.Clean(), "%+v", r)
	require.Equal(t, rows, r.Written)
	require.Equal(t, rows, r.Delivered)
	require.Positive(t, r.Seconds)
	require.Positive(t, r.RowsPerSecond)
	require.Positive(t, r.CPUSeconds)
	require.Positive(t, r.MaxRSSBytes)
	require.Len(t, r.LatencyMS, 4)
	require.LessOrEqual(t, r.LatencyMS["p50"], r.LatencyMS["p99"])
}

// temporary gives a process a temporary directory of its own, which any user may enter: as root the server runs as another.
func temporary(t testing.TB) (dir string, env map[string]string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "postrider-demo-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	return dir, map[string]string{"TMPDIR": dir}
}

// descendants are the processes that pid has started, and theirs. Each thread has its own.
func descendants(t testing.TB, pid int) []int {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	require.NoError(t, err)
	var all []int
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			continue // the thread has ended
		}
		for _, field := range strings.Fields(string(text)) {
			c, err := strconv.Atoi(field)
			require.NoError(t, err)
			all = append(append(all, c), descendants(t, c)...)
		}
	}
	return all
}

func requireNothingLeft(t testing.TB, dir string, pids []int) {
	t.Helper()
	for _, pid := range pids {
		parts.Await(t, "the end of a process that the demo started", func() (bool, error) { return child.Gone(pid), nil })
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left, "what it left in its temporary directory")
}

func TestDemo_RunsOnPartsOfItsOwnAndLeavesNothing(t *testing.T) {
	t.Parallel()
	dir, env := temporary(t)
	p := start(t, env, "demo", "--rows", "2000", "--json")
	var pids []int
	parts.Await(t, "the demo's server", func() (bool, error) {
		pids = descendants(t, p.PID)
		return strings.Contains(p.Log.String(), "writing ") || !p.Running(), nil
	})
	requireReport(t, p, 2000)
	if runtime.GOOS == "linux" {
		require.NotEmpty(t, pids, "the server is a child of the demo")
	}
	requireNothingLeft(t, dir, pids)
}

func TestDemo_EndsWithItsAuditWhenInterrupted(t *testing.T) {
	t.Parallel()
	dir, env := temporary(t)
	p := start(t, env, "demo", "--json", "--rate", "200")
	var pids []int
	parts.Await(t, "the demo at work", func() (bool, error) {
		pids = descendants(t, p.PID)
		return strings.Contains(p.Log.String(), "delivered ") || !p.Running(), nil
	})
	require.NoError(t, p.Signal(syscall.SIGINT))
	require.Zero(t, p.Wait(t), "exit code")
	var r demoReport
	require.NoError(t, json.Unmarshal(p.Stdout.Bytes(), &r))
	require.True(t, r.Clean(), "%+v", r)
	require.Positive(t, r.Delivered)
	requireNothingLeft(t, dir, pids)
}

func TestDemo_RunsOnPartsOfYoursAndLeavesThemAsTheyWere(t *testing.T) {
	t.Parallel()
	db, c := parts.Postgres(t, parts.AnyVersion), newCluster(t)
	dir, env := temporary(t)
	p := start(t, env, "demo", "--rows", "500", "--json", "--postgres", db.DSN(), "--kafka", c.list())
	requireReport(t, p, 500)
	requireNothingLeft(t, dir, nil)

	var left []string
	require.NoError(t, db.Connect(t).QueryRow(t.Context(), `
		SELECT coalesce(array_agg(what), '{}') FROM (
			SELECT 'schema ' || nspname FROM pg_namespace WHERE nspname NOT LIKE 'pg\_%' AND nspname NOT IN ('public', 'information_schema')
			UNION ALL SELECT 'publication ' || pubname FROM pg_publication
			UNION ALL SELECT 'slot ' || slot_name FROM pg_replication_slots WHERE database = current_database()
			UNION ALL SELECT 'table ' || relname FROM pg_class WHERE relnamespace = 'public'::regnamespace
		) leftovers (what)`).Scan(&left))
	require.Empty(t, left)
	for _, topic := range []string{"postrider.demo.order", "postrider.demo.payment"} {
		parts.Await(t, "the end of topic "+topic, func() (bool, error) { return c.Partitions(t, topic) == 0, nil })
	}
}
