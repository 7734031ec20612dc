package faults

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

// process is one running relay.
type process struct {
	*parts.Relay
	http *http.Client
}

// start starts a relay, which ends with the test at the latest.
func (r *rig) start(t testing.TB) *process {
	t.Helper()
	file := filepath.Join(t.TempDir(), "postrider.toml")
	require.NoError(t, os.WriteFile(file, []byte(r.config("127.0.0.1:0")), 0o600))
	cfg := parts.RelayConfig{Command: r.command, Env: parts.Environment(r.env...), OneLog: true}
	if r.command == nil && *contained > 0 {
		cfg.Command = newContainer(t, *contained<<20).command(parts.Binary(t))
	}
	p := &process{http: &http.Client{Timeout: 20 * time.Second}}
	p.Relay = parts.StartRelay(t, cfg, "run", "--config", file)
	t.Cleanup(p.http.CloseIdleConnections)
	return p
}

// started starts a relay and waits until it streams.
func (r *rig) started(t testing.TB) *process {
	t.Helper()
	p := r.start(t)
	p.streams(t, 30*time.Second)
	return p
}

func (p *process) signal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	require.NoError(t, p.Signal(sig))
}

// insist sends a signal again and again until the relay has ended: one right behind the first counts as the same.
func (p *process) insist(sig syscall.Signal) {
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for end := time.After(parts.Patience); ; {
		select {
		case <-p.Done:
			return
		case <-end:
			return
		case <-again.C:
			_ = p.Signal(sig) // it may have ended just now
		}
	}
}

// stop is SIGTERM, which has to end with 0.
func (p *process) stop(t testing.TB) time.Duration {
	t.Helper()
	before := time.Now()
	p.Stop(t)
	took := time.Since(before)
	t.Logf("relay stopped in %s", took)
	return took
}

// status is the part of /status that the tests look at.
type status struct {
	Relay struct {
		Phase    string
		Reason   string
		Sessions int
		InFlight int `json:"in_flight"`
		// Published is how many messages were acknowledged since the process was started.
		Published uint64
		Phantoms  struct {
			Messages int
			Timeline int32
		}
	}
	Slot    struct{ Synced bool }
	Verdict struct {
		State      string
		Conditions []struct{ Name string }
	}
}

// has tells whether a condition holds.
func (s status) has(condition string) bool {
	return slices.ContainsFunc(s.Verdict.Conditions, func(c struct{ Name string }) bool { return c.Name == condition })
}

// ask returns the zero status while nobody answers.
func (p *process) ask() status {
	var st status
	if body, _ := p.get("/status"); body != nil {
		_ = json.Unmarshal(body, &st) // of an answer cut short nothing is known
	}
	return st
}

func (p *process) get(path string) (body []byte, code int) {
	resp, err := p.http.Get("http://" + p.Address() + path)
	if err != nil {
		return nil, 0
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	if err != nil {
		return nil, 0
	}
	return body, resp.StatusCode
}

func (p *process) phase(t testing.TB, phase string, within time.Duration) {
	t.Helper()
	eventually(t, within, "relay is "+phase, func() bool {
		p.requireRunning(t)
		return p.ask().Relay.Phase == phase
	})
}

func (p *process) requireRunning(t testing.TB) {
	t.Helper()
	if !p.Running() { // only then may the error be read
		t.Fatalf("relay ended: %v", p.Err)
	}
}

func (p *process) streams(t testing.TB, within time.Duration) {
	t.Helper()
	p.phase(t, "streaming", within)
}

// ready asks the probe.
func (p *process) ready() bool {
	_, code := p.get("/readyz")
	return code == http.StatusOK
}

// stall has the broker answer no more once this process has published something: before that the
// relay may still look the topic up, and no message would be in flight.
func (p *process) stall(t testing.TB, network *parts.Proxy) {
	t.Helper()
	eventually(t, time.Minute, "a message published", func() bool { return p.ask().Relay.Published > 0 })
	network.Stall()
}

// full waits until the in-flight limit is reached: rows are in flight, and more of them wait in the WAL.
func (p *process) full(t testing.TB) {
	t.Helper()
	eventually(t, 30*time.Second, "in-flight limit reached", func() bool { return p.ask().Relay.InFlight >= inFlight })
}

// metrics are those that the relay exports.
func (p *process) metrics(t testing.TB) parts.Metrics {
	t.Helper()
	page, _ := p.get("/metrics")
	return parts.ParseMetrics(t, page)
}

// metric is the value of a series, or the sum of those of a name.
func (p *process) metric(t testing.TB, name string, labels ...string) float64 {
	t.Helper()
	value, found := p.metrics(t).Sum(name, labels...)
	require.True(t, found, "no metric %s %s", name, labels)
	return value
}

// rss is the relay's resident memory in bytes.
func (p *process) rss(t testing.TB) float64 {
	t.Helper()
	return p.metric(t, "process_resident_memory_bytes")
}

func mib(bytes float64) string { return fmt.Sprintf("%.0f MiB", bytes/(1<<20)) }
