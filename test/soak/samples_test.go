package soak

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

// samples are what a relay uses, whenever it has caught up.
type samples struct {
	relay    *relay
	values   map[string][]point // by quantity
	profiled time.Time          // when the last heap profile was written
}

// quantities are those of samples, with a unit where it is not a number of things.
// What the collector lets the heap grow to is twice what was in use when it last ran: it tells memory
// that is not given back from what the process holds in reserve.
var quantities = []string{"resident memory, MiB", "heap goal, MiB", "goroutines", "descriptors",
	"connections to PostgreSQL", "connections to brokers", "slot distance, KiB"}

// take adds one sample. The relay has caught up.
func (s *samples) take() {
	r := s.relay
	r.t.Helper()
	var distance float64
	r.query([]any{&distance}, `SELECT (pg_current_wal_lsn() - confirmed_flush_lsn)::float8
		FROM pg_replication_slots WHERE slot_name = $1`, r.slot)
	figures := parts.ParseMetrics(r.t, r.get("/metrics"))
	toServer, toBrokers := r.connections()
	now := time.Now()
	for i, value := range []float64{
		figures.Value("process_resident_memory_bytes") / (1 << 20),
		figures.Value("go_memstats_next_gc_bytes") / (1 << 20),
		figures.Value("go_goroutines"), figures.Value("process_open_fds"), float64(toServer), float64(toBrokers), distance / (1 << 10),
	} {
		s.values[quantities[i]] = append(s.values[quantities[i]], point{now, value})
	}
	require.Positive(r.t, figures.Value("go_goroutines"), "no metrics of %s", r.name)
	if *profiles != "" && now.Sub(s.profiled) >= betweenProfiles {
		s.profiled = now
		s.profile(filepath.Join(*profiles, now.UTC().Format("150405")+".heap"))
	}
}

// profile writes what is in use of the heap, as of a collection.
// go tool pprof -sample_index=inuse_space -diff_base of two of them shows what has grown.
func (s *samples) profile(file string) {
	r := s.relay
	address, _ := r.process().AwaitLog(r.t, "admin listener started")["listen"].(string)
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet,
		"http://"+address+"/debug/pprof/heap?gc=1", http.NoBody)
	require.NoError(r.t, err)
	req.Header.Set("Authorization", "Bearer "+adminToken)
	resp, err := r.http.Do(req)
	require.NoError(r.t, err)
	defer resp.Body.Close()
	profile, err := io.ReadAll(resp.Body)
	require.NoError(r.t, err)
	require.Equal(r.t, http.StatusOK, resp.StatusCode, "%s", profile)
	require.NoError(r.t, os.WriteFile(file, profile, 0o600))
}

// connections counts those of the process, as the kernel has them. Without /proc there are none.
func (r *relay) connections() (toServer, toBrokers int) {
	server := port(r.network.Addr())
	brokers := map[string]bool{}
	for _, node := range r.nodes {
		brokers[port(node.Proxy.Addr())] = true
	}
	remote := remotePorts()
	links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", r.process().PID))
	for _, link := range links {
		target, err := os.Readlink(link)
		if err != nil {
			continue // closed meanwhile
		}
		switch to := remote[strings.TrimSuffix(strings.TrimPrefix(target, "socket:["), "]")]; {
		case to == server:
			toServer++
		case brokers[to]:
			toBrokers++
		}
	}
	return toServer, toBrokers
}

// remotePorts are those of the sockets for TCP, by inode.
func remotePorts() map[string]string {
	found := map[string]string{}
	table, _ := os.ReadFile("/proc/net/tcp")
	for line := range strings.Lines(string(table)) {
		// sl local_address rem_address st tx_queue:rx_queue tr:when retrnsmt uid timeout inode
		fields := strings.Fields(line)
		if len(fields) < 10 {
			continue
		}
		_, hex, _ := strings.Cut(fields[2], ":")
		if n, err := strconv.ParseUint(hex, 16, 16); err == nil {
			found[fields[9]] = strconv.FormatUint(n, 10)
		}
	}
	return found
}

func port(address string) string { return address[strings.LastIndexByte(address, ':')+1:] }

// report prints how each quantity has developed, and returns those that grow.
func (s *samples) report() (growing []string) {
	t := s.relay.t
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "%-26s %12s %12s %12s %8s\n", s.relay.name, "first block", "last block", "per hour", "t")
	for _, name := range quantities {
		all := s.values[name]
		slope, ok := newSlope(all)
		if !ok {
			fmt.Fprintf(&b, "%-26s only %d samples\n", name, len(all))
			continue
		}
		fmt.Fprintf(&b, "%-26s %12.2f %12.2f %12.3f %8.2f\n", name, slope.medians[0],
			slope.medians[blocks-1], slope.perHour, slope.t)
		if slope.grows() { // a leak goes on, a pool fills
			fmt.Fprintf(&b, "%.1f\n", slope.medians)
			growing = append(growing, name)
		}
	}
	t.Logf("medians of %d blocks of %d samples:\n%s", blocks, len(s.values[quantities[0]]), &b)
	return growing
}
