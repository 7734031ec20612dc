package badinput

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

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

// run starts postrider in the site's directory. Only the site's environment configures it.
func (s *site) run(t *testing.T, args ...string) *parts.Relay {
	t.Helper()
	env := append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.dir, "GORACE=atexit_sleep_ms=0"}, s.env...)
	return parts.StartRelay(t, parts.RelayConfig{Dir: s.dir, Env: env}, args...)
}

// exec runs postrider to its end.
func (s *site) exec(t *testing.T, args ...string) said {
	t.Helper()
	p := s.run(t, args...)
	out := said{code: p.Wait(t), stdout: p.Stdout.String(), stderr: p.Log.String()}
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
	*parts.Relay
	url  string // of the http listener
	read int    // bytes of the log that await has read
}

// start starts `postrider run`, and ends it with the test if the test does not.
func (s *site) start(t *testing.T, args ...string) *daemon {
	t.Helper()
	d := &daemon{Relay: s.run(t, append([]string{"run"}, args...)...)}
	t.Cleanup(func() {
		d.Kill(t)
		s.noSecret(t, d.stderr())
	})
	d.url = "http://" + d.await(t, "the address of the listener", func(l logLine) bool { return l.Listen != "" }).Listen
	return d
}

func (d *daemon) stderr() string { return d.Log.String() }

// await reads the log up to a line.
func (d *daemon) await(t *testing.T, what string, is func(logLine) bool) (found logLine) {
	t.Helper()
	parts.Await(t, what, func() (bool, error) {
		running := d.Running() // before the log is read
		for line := range bytes.Lines(d.Log.Bytes()[d.read:]) {
			if line[len(line)-1] != '\n' {
				break
			}
			d.read += len(line)
			found = logLine{}
			if json.Unmarshal(line, &found) == nil && is(found) {
				return true, nil
			}
		}
		if !running {
			return false, errors.New("postrider ended:\n" + d.stderr())
		}
		return false, nil
	})
	return found
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
	client := http.Client{Timeout: parts.Patience, Transport: &http.Transport{DisableKeepAlives: true}}
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
	require.Eventually(t, func() bool { last = d.ready(t); return is(last) }, parts.Patience, 5*time.Millisecond, what)
	return last
}
