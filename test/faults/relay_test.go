package faults

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded/child"
	"github.com/postrider/postrider/test/parts"
)

// process is one running relay.
type process struct {
	child  *child.Process
	said   *transcript
	http   *http.Client
	listen atomic.Pointer[string] // once it is known
}

var listening = regexp.MustCompile(`"listen":"([^"]+)".*"message":"http listener started"`)

// address is where the relay listens, as it says itself; empty before. A port chosen in front of it may be somebody else's by then.
func (p *process) address() string {
	if known := p.listen.Load(); known != nil {
		return *known
	}
	found := listening.FindStringSubmatch(p.said.String())
	if found == nil {
		return ""
	}
	p.listen.Store(&found[1])
	return found[1]
}

// transcript keeps all that a relay prints.
type transcript struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *transcript) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *transcript) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func (s *transcript) count(part string) int { return strings.Count(s.String(), part) }

// lines are those that hold part.
func (s *transcript) lines(part string) (found []string) {
	for line := range strings.Lines(s.String()) {
		if strings.Contains(line, part) {
			found = append(found, line)
		}
	}
	return found
}

// start starts a relay, which ends with the test at the latest. A data race or a panic in it fails the test.
func (r *rig) start(t testing.TB) *process {
	t.Helper()
	p := &process{said: &transcript{}, http: &http.Client{Timeout: 20 * time.Second}}
	file := filepath.Join(t.TempDir(), "postrider.toml")
	require.NoError(t, os.WriteFile(file, []byte(r.config("127.0.0.1:0")), 0o600))

	command := append(slices.Clone(r.command), "run", "--config", file)
	switch {
	case r.command != nil:
	case *contained > 0:
		command = append(newContainer(t, *contained<<20).command(parts.Binary(t)), command...)
	default:
		command = append([]string{parts.Binary(t)}, command...)
	}
	cmd := exec.Command(command[0], command[1:]...)
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "POSTRIDER_") && !strings.HasPrefix(kv, "PG") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Env = append(cmd.Env, "GORACE=atexit_sleep_ms=0") // or each exit takes a second longer than it does
	cmd.Env = append(cmd.Env, r.env...)
	cmd.Stdout, cmd.Stderr = p.said, p.said
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	var err error
	p.child, err = child.Start(cmd, syscall.SIGKILL)
	require.NoError(t, err)
	t.Cleanup(func() {
		p.http.CloseIdleConnections()
		if p.child.Running() {
			p.signal(t, syscall.SIGCONT)
			p.kill(t)
		}
		if said := p.said.String(); t.Failed() {
			t.Logf("end of the log of relay %d:\n%s", p.child.PID, said[max(0, len(said)-6000):])
		}
		require.Zero(t, p.said.count("WARNING: DATA RACE"), "data race")
		require.Zero(t, p.said.count("panic: "), "panic")
	})
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
	require.NoError(t, p.child.Signal(sig))
}

// insist sends a signal again and again until the relay has ended: one right behind the first counts as the same.
func (p *process) insist(sig syscall.Signal) {
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for end := time.After(patience); ; {
		select {
		case <-p.child.Done:
			return
		case <-end:
			return
		case <-again.C:
			_ = p.child.Signal(sig) // it may have ended just now
		}
	}
}

// kill ends the relay as a crash would.
func (p *process) kill(t testing.TB) {
	t.Helper()
	p.signal(t, syscall.SIGKILL)
	<-p.child.Done
}

// ended waits until the relay has ended by itself, no longer than within or patience, and returns its exit code.
func (p *process) ended(t testing.TB, within time.Duration) int {
	t.Helper()
	within = max(within, patience)
	select {
	case <-p.child.Done:
	case <-time.After(within):
		t.Fatalf("relay still runs after %s", within)
	}
	var exit *exec.ExitError
	if errors.As(p.child.Err, &exit) {
		return exit.ExitCode()
	}
	require.NoError(t, p.child.Err)
	return 0
}

// stop is SIGTERM, which has to end with 0.
func (p *process) stop(t testing.TB) time.Duration {
	t.Helper()
	before := time.Now()
	p.signal(t, syscall.SIGTERM)
	require.Zero(t, p.ended(t, 30*time.Second), "exit code")
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
	resp, err := p.http.Get("http://" + p.address() + path)
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
	if !p.child.Running() { // only then may the error be read
		t.Fatalf("relay ended: %v", p.child.Err)
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

// full waits until the in-flight limit is reached: rows are in flight, and more of them wait in the WAL.
func (p *process) full(t testing.TB) {
	t.Helper()
	eventually(t, 30*time.Second, "in-flight limit reached", func() bool { return p.ask().Relay.InFlight >= inFlight })
}

// metric is the value of a series without labels, or of the first one of its name.
func (p *process) metric(t testing.TB, name string) float64 {
	t.Helper()
	body, _ := p.get("/metrics")
	for line := range strings.Lines(string(body)) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if series == name || strings.HasPrefix(series, name+"{") {
			v, err := strconv.ParseFloat(value, 64)
			require.NoError(t, err)
			return v
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// rss is the relay's resident memory in bytes.
func (p *process) rss(t testing.TB) float64 {
	t.Helper()
	return p.metric(t, "process_resident_memory_bytes")
}

func mib(bytes float64) string { return fmt.Sprintf("%.0f MiB", bytes/(1<<20)) }
