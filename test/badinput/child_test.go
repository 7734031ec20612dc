package badinput

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience is how long anything may take before a test gives up on it.
const patience = 2 * time.Minute

// said is what a process that has ended said.
type said struct {
	code    int
	stdout  string
	stderr  string
	message string    // what of stderr is no log line
	log     []logLine // the rest
}

// logLine is what the tests read of a JSON log line.
type logLine struct {
	Level, Message, Error, Reason, Class, WAL, Next string
	Listen                                          string
}

// command prepares postrider in the site's directory, with nothing of this process's environment that could configure it.
func (s *site) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.binary, args...)
	cmd.Dir = s.dir
	// A binary with the race detector otherwise rests for a second whenever it ends. It is started some hundred times here.
	const race = "GORACE=atexit_sleep_ms=0"
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.dir, race}, s.env...)
	return cmd
}

// exec runs postrider to its end.
func (s *site) exec(t *testing.T, args ...string) said {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := s.command(ctx, args...)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	require.NoError(t, ctx.Err(), "postrider %s did not end by itself:\n%s", strings.Join(args, " "), stderr.String())
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	out := said{code: cmd.ProcessState.ExitCode(), stdout: stdout.String(), stderr: stderr.String()}
	out.message, out.log = apart(t, out.stderr)
	s.noSecret(t, out.stdout+out.stderr)
	return out
}

// apart tells log lines from what is written for people.
func apart(t *testing.T, stderr string) (message string, log []logLine) {
	t.Helper()
	for line := range strings.Lines(stderr) {
		if strings.HasPrefix(line, "{") {
			log = append(log, parseLine(t, line))
			continue
		}
		message += line
	}
	return message, log
}

func parseLine(t *testing.T, line string) (parsed logLine) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(line), &parsed), line)
	return parsed
}

// daemon is a `postrider run` that goes on.
type daemon struct {
	cmd   *exec.Cmd
	lines <-chan logLine // closed at the end of stderr
	ended chan struct{}  // closed when the process is gone
	url   string         // of the http listener

	mu   sync.Mutex
	text strings.Builder // all of stderr
}

// start starts `postrider run`, and ends it with the test if the test does not.
func (s *site) start(t *testing.T, args ...string) *daemon {
	t.Helper()
	d := &daemon{cmd: s.command(context.WithoutCancel(t.Context()), append([]string{"run"}, args...)...), ended: make(chan struct{})}
	stderr, err := d.cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, d.cmd.Start())

	lines := make(chan logLine, 10_000) // more than any test lets it write
	d.lines = lines
	go func() { // ends with the process's stderr; cleanup waits
		defer close(d.ended)
		defer close(lines)
		d.read(stderr, lines)
		_ = d.cmd.Wait() // its result is read from ProcessState
	}()
	t.Cleanup(func() {
		_ = d.cmd.Process.Kill()
		<-d.ended
		s.noSecret(t, d.stderr())
		if t.Failed() {
			t.Logf("postrider run said:\n%s", d.stderr())
		}
	})
	d.url = "http://" + d.await(t, "the address of the listener", func(l logLine) bool { return l.Listen != "" }).Listen
	return d
}

func (d *daemon) read(stderr io.Reader, lines chan<- logLine) {
	scanner := bufio.NewScanner(stderr)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		d.mu.Lock()
		d.text.WriteString(scanner.Text() + "\n")
		d.mu.Unlock()
		var parsed logLine
		if json.Unmarshal(scanner.Bytes(), &parsed) == nil {
			lines <- parsed
		}
	}
}

func (d *daemon) stderr() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.text.String()
}

// await reads the log up to a line.
func (d *daemon) await(t *testing.T, what string, is func(logLine) bool) logLine {
	t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case l, ok := <-d.lines:
			require.True(t, ok, "postrider ended before %s:\n%s", what, d.stderr())
			if is(l) {
				return l
			}
		case <-timeout:
			require.Fail(t, "no log line", "%s did not come:\n%s", what, d.stderr())
		}
	}
}

// probe is the answer of /readyz.
type probe struct {
	Code   int
	Reason string `json:"reason"`
	Detail string `json:"detail"`
}

func (d *daemon) ready(t *testing.T) probe {
	t.Helper()
	code, body := d.get(t, "/readyz")
	p := probe{Code: code}
	require.NoError(t, json.Unmarshal([]byte(body), &p), body)
	return p
}

func (d *daemon) get(t *testing.T, path string) (code int, body string) {
	t.Helper()
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(d.url + path)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	read, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(read)
}

func (d *daemon) awaitReady(t *testing.T, what string, is func(probe) bool) probe {
	t.Helper()
	var last probe
	require.Eventually(t, func() bool { last = d.ready(t); return is(last) }, patience, 5*time.Millisecond, what)
	return last
}

// stop asks for a clean end.
func (d *daemon) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, d.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-d.ended:
		require.Zero(t, d.cmd.ProcessState.ExitCode(), d.stderr())
	case <-time.After(patience):
		require.Fail(t, "postrider did not stop", d.stderr())
	}
}
