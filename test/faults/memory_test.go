package faults

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

var contained = flag.Int64("container", 0, "limit on memory of every relay of every row, in MiB; 0: none but that of row 31")

// container is a control group with a limit on memory, as containers have it, or what comes close where none can be made: then the relay is
// told the same soft limit as it would take from a container, and what it allocates is watched.
type container struct {
	limit int64  // bytes
	group string // directory of the control group; empty: none
	v1    bool
}

// newContainer makes one, which ends with the test.
func newContainer(t testing.TB, limit int64) *container {
	t.Helper()
	c := &container{limit: limit}
	own, err := os.ReadFile("/proc/self/cgroup")
	require.NoError(t, err)
	for line := range strings.Lines(string(own)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(fields) != 3 || c.group != "":
		case fields[1] == "memory" && c.make("/sys/fs/cgroup/memory", fields[2], "memory.limit_in_bytes"):
			c.v1 = true
		case fields[1] == "":
			c.make("/sys/fs/cgroup", fields[2], "memory.max")
		}
	}
	if c.group == "" {
		return c
	}
	t.Cleanup(func() {
		eventually(t, 10*time.Second, "an empty control group", func() bool {
			err := os.Remove(c.group) // the relay was killed just now
			return err == nil || errors.Is(err, os.ErrNotExist)
		})
	})
	return c
}

// make tells whether there is a group with the limit. Containers and users without rights have none to make it in.
func (c *container) make(mount, path, file string) bool {
	for _, parent := range []string{filepath.Join(mount, path), mount} { // the path may be the host's
		group := filepath.Join(parent, parts.Unique("postrider"))
		if os.Mkdir(group, 0o755) != nil {
			continue
		}
		if os.WriteFile(filepath.Join(group, file), []byte(strconv.FormatInt(c.limit, 10)), 0o600) == nil {
			c.group = group
			return true
		}
		_ = os.Remove(group)
	}
	return false
}

// command is what starts a program within the limit.
func (c *container) command(program string) []string {
	if c.group == "" {
		return []string{"env", fmt.Sprintf("GOMEMLIMIT=%d", c.limit*3/4), program}
	}
	return []string{"env", "-u", "GOMEMLIMIT", "sh", "-c", `echo $$ >"$0" && exec "$@"`, filepath.Join(c.group, "cgroup.procs"), program}
}

// peak is the most that the group has taken so far, with the kernel's part, in bytes; zero where there is no group, or it does not say.
func (c *container) peak() int64 {
	if c.group == "" {
		return 0
	}
	file := "memory.peak" // from Linux 5.19 on
	if c.v1 {
		file = "memory.max_usage_in_bytes"
	}
	text, _ := os.ReadFile(filepath.Join(c.group, file))
	n, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64) // zero of what is not there
	return n
}

// allocated is what a process has allocated and touched, in bytes. Pages of its program are not counted: the kernel can drop those.
func (p *process) allocated(t testing.TB) int64 {
	t.Helper()
	return p.memory(t, "RssAnon")
}

// peak is the most that was resident so far, pages of the program included, in bytes.
func (p *process) peak(t testing.TB) float64 {
	t.Helper()
	return float64(p.memory(t, "VmHWM"))
}

// memory is what the kernel says of the process, in bytes.
func (p *process) memory(t testing.TB, field string) int64 {
	t.Helper()
	if runtime.GOOS != "linux" {
		parts.Lacking(t, "cgroup", "control groups, and /proc, are Linux's")
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID))
	require.NoError(t, err)
	for line := range bytes.Lines(status) {
		if value, ok := bytes.CutPrefix(line, []byte(field+":")); ok {
			kib, err := strconv.ParseInt(string(bytes.TrimSuffix(bytes.TrimSpace(value), []byte(" kB"))), 10, 64)
			require.NoError(t, err)
			return kib << 10
		}
	}
	require.FailNow(t, "no "+field)
	return 0
}

// wide commits n events of 10 kB, of keys of their own.
func (r *rig) wide(t testing.TB, n int) {
	t.Helper()
	conn := parts.Connect(t, r.dsn)
	const atOnce = 500
	for from := 0; from < n; from += atOnce {
		_, err := conn.Exec(t.Context(), `INSERT INTO outbox (aggregate_type, aggregate_id, payload, number)
			SELECT $1, 'wide-' || k, jsonb_build_object('key', 'wide-' || k, 'number', n, 'pad', p), n
			FROM (SELECT i % 50 AS k, i / 50 + 1 AS n, string_agg(md5(i::text || j::text), '') AS p
				FROM generate_series($2::int, $3::int) i, generate_series(1, 312) j GROUP BY i) rows ORDER BY n`, r.topic, from, from+atOnce-1)
		require.NoError(t, err)
		for i := from; i < from+atOnce; i++ {
			r.tally.Wrote(fmt.Sprint("wide-", i%50), uint64(i/50+1))
		}
	}
}

// TestFault31_ContainerLimitSuffices is about the smallest container that is documented, with the limits that are set by default: the window
// full of wide rows while the broker stalls, a backlog of them, a large transaction, a crash.
func TestFault31_ContainerLimitSuffices(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		parts.Lacking(t, "cgroup", "control groups, and /proc, are Linux's")
	}
	limits := []int64{64 << 20}
	if *long {
		limits = []int64{64 << 20, 128 << 20, 256 << 20}
	}
	binary := parts.Binary(t)
	for _, limit := range limits {
		t.Run(fmt.Sprintf("%d MiB", limit>>20), func(t *testing.T) {
			r := newRig(t, server(t, parts.AnyVersion), parts.RealKafka(t))
			delete(r.settings, "relay.in_flight_messages")
			network := r.throughKafkaProxy(t)
			c := newContainer(t, limit)
			r.command = c.command(binary)
			most := int64(0)
			p := r.started(t)
			watch := func() {
				p.requireRunning(t)
				most = max(most, p.allocated(t))
			}
			require.Equal(t, 1, p.Log.Count("memory limit taken from"), "lines about the limit")

			r.transaction(t, bulkKeys)
			r.drained(t, 30*time.Second) // so that the topic is known
			network.Stall()
			r.wide(t, full(t, 2000, 20_000))
			r.transaction(t, full(t, 10_000, 300_000))
			eventually(t, 30*time.Second, "the limit on bytes in flight", func() bool { return p.metric(t, "postrider_relay_in_flight_bytes") > 7<<20 }) // of 8 MiB, before that on messages
			during(fullFor(t, time.Second, time.Minute), watch)
			network.Resume()
			end := currentLSN(t, r.dsn)
			eventually(t, 5*time.Minute, "the backlog confirmed", func() bool { watch(); return r.confirmed(t) >= end })

			l := r.load(t, rate())
			l.more(t, 500)
			p.Kill(t)
			l.more(t, 500)
			p = r.started(t)
			back := r.caughtUp(t)
			l.end(t)
			watch()
			r.drained(t, time.Minute)
			peak := c.peak()
			p.stop(t)

			v := r.judge(t)
			requireNothingLost(t, v)
			require.LessOrEqual(t, v.Duplicated, int64(5000+3000), "window of the default")
			require.LessOrEqual(t, most, limit, "allocated")
			how := "no control group could be made: GOMEMLIMIT, and what was allocated watched"
			if c.group != "" {
				how = "control group, at its peak " + mib(float64(peak))
			}
			matrix(t, 31, fmt.Sprintf("%d MiB", limit>>20), fmt.Sprintf("%s; allocated at most %s; caught up in %.1f s after a kill", how, mib(float64(most)), back.Seconds()))
		})
	}
}
