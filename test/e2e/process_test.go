package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded/child"
	"github.com/postrider/postrider/test/parts"
)

// patience bounds every wait for something that is expected within a second or two; on a busy machine with the race detector it takes longer.
const patience = 2 * time.Minute

// process is a running postrider.
type process struct {
	*child.Process
	stdout output
	log    output // stderr
}

// start runs the binary with these arguments and additional environment. Whatever is still running at the end of the test is killed, and
// what a failed test's process logged is shown.
func start(t testing.TB, env map[string]string, args ...string) *process {
	t.Helper()
	p := &process{}
	cmd := exec.Command(parts.Binary(t), args...)
	cmd.Dir = t.TempDir() // where no postrider.toml lies
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "POSTRIDER_") && !strings.HasPrefix(v, "PG") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, "GORACE=atexit_sleep_ms=0") // or each exit takes a second longer than it does
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.Stdout, cmd.Stderr = &p.stdout, &p.log
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	var err error
	p.Process, err = child.Start(cmd, syscall.SIGKILL)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, p.Signal(syscall.SIGKILL))
		<-p.Done
		if t.Failed() {
			t.Logf("postrider %s ended with %v; its log:\n%s", strings.Join(args, " "), p.Err, p.log.String())
		}
		require.NotContains(t, p.log.String(), "WARNING: DATA RACE")
		require.NotContains(t, p.log.String(), "panic: ")
	})
	return p
}

// wait waits for the end of the process and returns its exit code.
func (p *process) wait(t testing.TB) int {
	t.Helper()
	select {
	case <-p.Done:
	case <-time.After(patience):
		require.FailNow(t, "the process does not end")
	}
	if exit := new(exec.ExitError); errors.As(p.Err, &exit) {
		return exit.ExitCode()
	}
	require.NoError(t, p.Err)
	return 0
}

// stop asks the process to end and requires that it does so cleanly.
func (p *process) stop(t testing.TB) {
	t.Helper()
	require.NoError(t, p.Signal(syscall.SIGTERM))
	require.Zero(t, p.wait(t), "exit code after SIGTERM")
}

// logged returns the first line of the JSON log with this message, or nil.
func (p *process) logged(message string) map[string]any {
	for line := range bytes.Lines(p.log.Bytes()) {
		var fields map[string]any
		if json.Unmarshal(line, &fields) == nil && fields["message"] == message {
			return fields
		}
	}
	return nil
}

// awaitLog waits for a line of the JSON log.
func (p *process) awaitLog(t testing.TB, message string) map[string]any {
	t.Helper()
	var line map[string]any
	await(t, "log line "+message, func() (bool, error) {
		line = p.logged(message)
		if line == nil && !p.Running() {
			return false, errors.New("the process has ended")
		}
		return line != nil, nil
	})
	return line
}

// await waits until done returns true; its error ends the test.
func await(t testing.TB, what string, done func() (bool, error)) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := done()
		require.NoError(t, err, "while waiting for: %s", what)
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			require.FailNow(t, "waited in vain for: "+what)
		}
	}
}

// output is what a process printed so far.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(b)
}

// Bytes is a copy.
func (o *output) Bytes() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	return bytes.Clone(o.buf.Bytes())
}

func (o *output) String() string { return string(o.Bytes()) }

// getJSON reads a page of the relay's listener.
func getJSON(url string, into any) (status int, err error) {
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(url)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	return response.StatusCode, json.NewDecoder(response.Body).Decode(into)
}
