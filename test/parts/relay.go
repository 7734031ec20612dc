package parts

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded/child"
)

// Patience bounds every wait for something that takes a second or two: on a busy machine with the
// race detector it takes longer.
const Patience = 2 * time.Minute

// Environment is that of the tests without variables that configure postrider or a PostgreSQL
// client, and with further ones, as NAME=value.
func Environment(further ...string) []string {
	env := []string{"GORACE=atexit_sleep_ms=0"} // or each exit takes a second longer
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "POSTRIDER_") && !strings.HasPrefix(v, "PG") {
			env = append(env, v)
		}
	}
	return append(env, further...)
}

// Output is all that a process has printed so far: tests count lines in it, and child.Output keeps
// only the end. It may be used from any goroutine.
type Output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *Output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(b)
}

func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// Bytes is a copy.
func (o *Output) Bytes() []byte { return []byte(o.String()) }

// Count returns how often part occurs.
func (o *Output) Count(part string) int { return strings.Count(o.String(), part) }

// Lines returns those that contain part.
func (o *Output) Lines(part string) (found []string) {
	for line := range strings.Lines(o.String()) {
		if strings.Contains(line, part) {
			found = append(found, line)
		}
	}
	return found
}

// RelayConfig is how to start postrider. The zero value starts the binary of the tests.
type RelayConfig struct {
	Command []string // in place of the binary, before the arguments
	Dir     string   // empty: an empty directory
	Env     []string // nil: Environment()
	OneLog  bool     // what it prints to stdout goes to Log
}

// Relay is a running postrider, of any command.
type Relay struct {
	*child.Process
	Stdout Output
	Log    Output                 // stderr
	listen atomic.Pointer[string] // once it is known
}

// StartRelay starts postrider with these arguments. If it still runs at the end of the test, it is
// killed; the log of a failed test's relay is shown. A data race or a panic in it fails the test.
func StartRelay(t testing.TB, cfg RelayConfig, args ...string) *Relay {
	t.Helper()
	command := cfg.Command
	if command == nil {
		command = []string{Binary(t)}
	}
	cmd := exec.Command(command[0], append(command[1:len(command):len(command)], args...)...)
	if cmd.Dir = cfg.Dir; cmd.Dir == "" {
		cmd.Dir = t.TempDir()
	}
	if cmd.Env = cfg.Env; cmd.Env == nil {
		cmd.Env = Environment()
	}
	r := &Relay{}
	cmd.Stdout, cmd.Stderr = &r.Stdout, &r.Log
	if cfg.OneLog {
		cmd.Stdout = &r.Log
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	var err error
	r.Process, err = child.Start(cmd, syscall.SIGKILL)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = r.Signal(syscall.SIGCONT)
		r.Kill(t)
		log := r.Log.String()
		if t.Failed() {
			t.Logf("postrider %s ended with %v; the end of its log:\n%s",
				strings.Join(args, " "), r.Err, lastPart(log, 20_000))
		}
		require.NotContains(t, log, "WARNING: DATA RACE")
		require.NotContains(t, log, "panic: ")
	})
	return r
}

// RunRelay runs a command of postrider to its end.
func RunRelay(t testing.TB, cfg RelayConfig, args ...string) (r *Relay, code int) {
	t.Helper()
	r = StartRelay(t, cfg, args...)
	return r, r.Wait(t)
}

// Wait waits for the end of the process and returns its exit code; -1: a signal ended it.
func (r *Relay) Wait(t testing.TB) int {
	t.Helper()
	select {
	case <-r.Done:
	case <-time.After(Patience):
		require.FailNow(t, "the process does not end")
	}
	if exit := new(exec.ExitError); errors.As(r.Err, &exit) {
		return exit.ExitCode()
	}
	require.NoError(t, r.Err)
	return 0
}

// Stop sends SIGTERM and requires that the process then ends with 0.
func (r *Relay) Stop(t testing.TB) {
	t.Helper()
	require.NoError(t, r.Signal(syscall.SIGTERM))
	require.Zero(t, r.Wait(t), "exit code after SIGTERM")
}

// Kill ends the process as a crash would.
func (r *Relay) Kill(t testing.TB) {
	t.Helper()
	require.NoError(t, r.Signal(syscall.SIGKILL))
	<-r.Done
}

// Logged returns the first line of the JSON log with this message, or nil.
func (r *Relay) Logged(message string) map[string]any {
	for line := range bytes.Lines(r.Log.Bytes()) {
		var fields map[string]any
		if json.Unmarshal(line, &fields) == nil && fields["message"] == message {
			return fields
		}
	}
	return nil
}

// AwaitLog waits for a line of the JSON log.
func (r *Relay) AwaitLog(t testing.TB, message string) (line map[string]any) {
	t.Helper()
	Await(t, "log line "+message, func() (bool, error) {
		running := r.Running() // before the log is read
		if line = r.Logged(message); line == nil && !running {
			return false, errors.New("the process has ended")
		}
		return line != nil, nil
	})
	return line
}

var listening = regexp.MustCompile(`"listen":"([^"]+)".*"message":"http listener started"`)

// Address is where the relay listens, from its log; empty: not yet. A port that a test chooses in
// advance may belong to another process by then.
func (r *Relay) Address() string {
	if known := r.listen.Load(); known != nil {
		return *known
	}
	found := listening.FindStringSubmatch(r.Log.String())
	if found == nil {
		return ""
	}
	r.listen.Store(&found[1])
	return found[1]
}

// Await waits until done returns true; its error ends the test.
func Await(t testing.TB, what string, done func() (bool, error)) {
	t.Helper()
	for deadline := time.Now().Add(Patience); ; <-time.After(10 * time.Millisecond) {
		ok, err := done()
		require.NoError(t, err, "while waiting for: %s", what)
		if ok {
			return
		}
		require.True(t, time.Now().Before(deadline), "waited in vain for: %s", what)
	}
}
