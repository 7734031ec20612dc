package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded/child"
	"github.com/postrider/postrider/test/parts"
)

const operatorToken = "canary-token-of-the-operator"

// operated is a relay with an admin listener, and its operator.
type operated struct {
	*copied
	relay *relay
	env   map[string]string // of commands that ask the listener
	admin string            // URL of the listener
}

// operate starts a relay with these rows in its outbox.
func operate(t *testing.T, mode, more string, rows int, env ...map[string]string) *operated {
	t.Helper()
	o := &operated{copied: newCopied(t, parts.AnyVersion, numberedSQL, mode, more)}
	if rows > 0 {
		o.fill(rows)
	}
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte(operatorToken+"\n"), 0o600))
	o.env = map[string]string{"POSTRIDER_ADMIN_LISTEN": "127.0.0.1:0", "POSTRIDER_ADMIN_TOKEN_FILE": file}
	o.relay = o.listening(append(env, o.env)...)
	address, ok := o.relay.AwaitLog(t, "admin listener started")["listen"].(string)
	require.True(t, ok)
	o.admin, o.env["POSTRIDER_ADMIN_LISTEN"] = "http://"+address, address
	t.Cleanup(func() { require.NotContains(t, o.relay.Log.String(), operatorToken) })
	return o
}

// command runs one as the operator would, and returns its exit code and what it printed.
func (o *operated) command(t testing.TB, args ...string) (code int, printed string) {
	t.Helper()
	env := o.environment()
	maps.Copy(env, o.env)
	p := start(t, env, append(args, "--config", o.file)...)
	code = p.Wait(t)
	return code, p.Stdout.String() + p.Log.String()
}

func (o *operated) phase(t testing.TB, want string) {
	t.Helper()
	parts.Await(t, "phase "+want, func() (bool, error) {
		if !o.relay.Running() {
			return false, errEnded
		}
		return o.relay.state(t).Phase == want, nil
	})
}

func (o *operated) ready(t testing.TB) (status int, answer map[string]any) {
	t.Helper()
	status, err := getJSON(o.relay.url+"/readyz", &answer)
	require.NoError(t, err)
	return status, answer
}

// ask sends a request to the admin listener.
func (o *operated) ask(t testing.TB, method, path, body string, headers ...string) (status int, answer string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, o.admin+path, strings.NewReader(body))
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+operatorToken)
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	client := http.Client{Timeout: parts.Patience, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(b)
}

// held tells whether somebody streams from the slot.
func (s *shop) held(t testing.TB) (active bool) {
	t.Helper()
	require.NoError(t, s.sql.QueryRow(t.Context(), "SELECT active FROM pg_replication_slots WHERE slot_name = $1", s.slot).Scan(&active))
	return active
}

func TestPause_LosesAndRepeatsNothingUnderLoad(t *testing.T) {
	t.Parallel()
	o := operate(t, "no_data", "", 0)
	o.phase(t, "streaming")
	end := o.write(4)
	const pauses = 8
	for n := range pauses {
		before := o.count(t, o.topic)
		parts.Await(t, "events of the load", func() (bool, error) { return o.count(t, o.topic) > before, nil })
		code, printed := o.command(t, "pause", "--for", "5m", "--reason", "a test")
		require.Zero(t, code, printed)
		require.Contains(t, printed, "PostgreSQL keeps WAL for the slot meanwhile")
		require.False(t, o.held(t), "the command returns when the slot is free")
		published := o.count(t, o.topic)
		if n == 0 {
			status, answer := o.ready(t)
			require.Equal(t, http.StatusServiceUnavailable, status)
			require.Equal(t, "paused", answer["reason"])
			require.Contains(t, answer["detail"], "a test")
			var live map[string]any
			status, err := getJSON(o.relay.url+"/livez", &live)
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, status, "a restart would end the pause")
			code, printed = o.command(t, "healthcheck", "--ready", "--http-listen", strings.TrimPrefix(o.relay.url, "http://"))
			require.Equal(t, 1, code)
			require.Contains(t, printed, "paused: the relay is paused until")
		}
		position := o.lsn(t, "SELECT pg_current_wal_flush_lsn()")
		parts.Await(t, "more WAL than was paused at", func() (bool, error) { return o.lsn(t, "SELECT pg_current_wal_flush_lsn()") > position, nil })
		require.Equal(t, published, o.count(t, o.topic), "nothing is published meanwhile")
		code, printed = o.command(t, "resume")
		require.Zero(t, code, printed)
		require.Equal(t, "resumed\n", printed)
	}
	end()
	o.requireExact(o.relay, pauses)
	require.Equal(t, pauses+1, o.relay.state(t).Sessions)
	require.Nil(t, o.relay.Logged("last session did not end cleanly; some rows may be published again"))
	o.relay.Stop(t)
}

func TestPause_EndsByItselfOrWithTheProcess(t *testing.T) {
	t.Parallel()
	o := operate(t, "no_data", "", 0)
	o.phase(t, "streaming")
	code, printed := o.command(t, "pause", "--for", "300ms")
	require.Zero(t, code, printed)
	o.relay.AwaitLog(t, "pause ended at its set time")
	o.phase(t, "streaming")
	code, printed = o.command(t, "resume")
	require.Zero(t, code)
	require.Equal(t, "the relay was not paused: it is streaming\n", printed)

	code, printed = o.command(t, "pause", "--for", "0", "--json")
	require.Zero(t, code, printed)
	var answer struct {
		Phase  string
		Paused struct{ Since, Until time.Time }
	}
	require.NoError(t, json.Unmarshal([]byte(printed), &answer))
	require.Equal(t, "paused", answer.Phase)
	require.True(t, answer.Paused.Until.IsZero())
	o.fill(1)
	o.relay.Stop(t)

	// Nothing of it is kept.
	r := o.run(t)
	o.requireExact(r, 1)
	r.Stop(t)
}

func TestPause_InterruptsASnapshot(t *testing.T) {
	t.Parallel()
	o := operate(t, "initial", smallChunks, 20_000)
	reached := int64(0)
	for range 3 {
		var streams bool
		reached, streams = o.copiedBeyond(o.relay, reached)
		require.False(t, streams)
		code, printed := o.command(t, "pause")
		require.Zero(t, code, printed)
		o.phase(t, "paused")
		require.Less(t, o.count(t, o.topic), 20_000)
		code, printed = o.command(t, "resume")
		require.Zero(t, code, printed)
	}
	o.phase(t, "streaming")
	o.requireExact(o.relay, 20_000)
	o.relay.Stop(t)
}

func TestReadyz_TellsWhoStandsBy(t *testing.T) {
	t.Parallel()
	o := operate(t, "no_data", "", 0)
	o.phase(t, "streaming")
	status, answer := o.ready(t)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, map[string]any{"ok": true, "state": "streaming"}, answer)

	second := &operated{copied: o.copied, relay: o.listening()}
	second.phase(t, "standby")
	status, answer = second.ready(t)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, map[string]any{"ok": true, "state": "standby"}, answer)

	// The one that stands by takes over from one that is paused, which then stands by itself.
	code, printed := o.command(t, "pause")
	require.Zero(t, code, printed)
	second.phase(t, "streaming")
	code, printed = o.command(t, "resume")
	require.Zero(t, code, printed)
	o.phase(t, "standby")
	second.relay.Stop(t)
	o.phase(t, "streaming")
	o.relay.Stop(t)
}

func TestReload_TakesWhatMayChange(t *testing.T) {
	t.Parallel()
	o := operate(t, "no_data", "", 0)
	o.phase(t, "streaming")
	o.mode("no_data", "[health]\nlag_warning = \"2MiB\"\n[log]\nlevel = \"debug\"\n[sink.kafka]\nclient_id = \"another\"\n")
	require.NoError(t, o.relay.Signal(syscall.SIGHUP))
	left := o.relay.AwaitLog(t, "configuration changed where only a restart takes it up")
	require.Equal(t, []any{"sink.kafka.client_id"}, left["keys"])
	require.Equal(t, []any{`health.lag_warning = "2MiB"`, `log.level = "debug"`}, o.relay.Logged("configuration reloaded")["changed"])
	var shown struct {
		Values []struct{ Key, TOML string }
	}
	_, err := getJSON(o.relay.url+"/api/config", &shown)
	require.NoError(t, err)
	values := map[string]string{}
	for _, v := range shown.Values {
		values[v.Key] = v.TOML
	}
	require.Equal(t, `"2MiB"`, values["health.lag_warning"])
	require.Equal(t, `"postrider"`, values["sink.kafka.client_id"], "as it is in use")

	o.configure(t, "[health]\nlag_warning = \"many\"\n")
	require.NoError(t, o.relay.Signal(syscall.SIGHUP))
	refused := o.relay.AwaitLog(t, "configuration not reloaded; the one in use stays")
	require.Len(t, refused["problems"], 1)
	require.Contains(t, refused["problems"].([]any)[0], "postrider.toml:2: health.lag_warning: ")

	o.fill(10)
	o.requireExact(o.relay, 11)
	require.Equal(t, 1, o.relay.state(t).Sessions, "no session ends for it")
	o.relay.Stop(t)
}

func TestReload_ChangesThePace(t *testing.T) {
	t.Parallel()
	o := operate(t, "no_data", "", 0)
	o.phase(t, "streaming")
	limiting := func(limit string) {
		t.Helper()
		require.Eventually(t, func() bool {
			var status struct {
				Verdict struct{ Reason string }
				Relay   struct {
					Rate struct{ Limiting string }
				}
			}
			_, err := getJSON(o.relay.url+"/status", &status)
			return err == nil && status.Relay.Rate.Limiting == limit && strings.Contains(status.Verdict.Reason, limit)
		}, parts.Patience, 50*time.Millisecond)
	}
	o.mode("no_data", "[relay]\nmax_rate = \"1 rows/s\"\n")
	require.NoError(t, o.relay.Signal(syscall.SIGHUP))
	require.Equal(t, []any{`relay.max_rate = "1 rows/s"`}, o.relay.AwaitLog(t, "configuration reloaded")["changed"])
	o.fill(1000)
	limiting("relay.max_rate")
	o.mode("no_data", "")
	require.NoError(t, o.relay.Signal(syscall.SIGHUP)) // 1,000 rows would take longer than the test
	o.requireExact(o.relay, 1001)
	limiting("")
	require.Equal(t, 1, o.relay.state(t).Sessions, "no session ends for it")
	o.relay.Stop(t)
}

func TestSIGUSR1_DumpsTheState(t *testing.T) {
	t.Parallel()
	o := operate(t, "no_data", "", 0, map[string]string{"POSTRIDER_LOG_LEVEL": "info"})
	o.phase(t, "streaming")
	require.NoError(t, o.relay.Signal(syscall.SIGUSR1))
	line, err := json.Marshal(o.relay.AwaitLog(t, "state dumped")["state"])
	require.NoError(t, err)
	_, asked := o.ask(t, http.MethodGet, "/state", "")
	for _, text := range []string{string(line), asked} {
		var dumped struct {
			Status  struct{ Relay relayState }
			Process struct {
				Goroutines int
				HeapBytes  int64  `json:"heap_bytes"`
				LogLevel   string `json:"log_level"`
			}
		}
		require.NoError(t, json.Unmarshal([]byte(text), &dumped))
		require.Equal(t, "streaming", dumped.Status.Relay.Phase)
		require.Positive(t, dumped.Process.Goroutines)
		require.Positive(t, dumped.Process.HeapBytes)
		require.Equal(t, "info", dumped.Process.LogLevel)
	}
	o.relay.Stop(t)
}

func TestAdmin_DoesWhatTheHolderOfTheTokenAsks(t *testing.T) {
	t.Parallel()
	o := operate(t, "no_data", "", 0)
	o.phase(t, "streaming")
	for _, c := range []struct {
		method, path string
		headers      []string
		want         int
	}{
		{http.MethodPost, "/pause", []string{"Authorization", ""}, http.StatusUnauthorized},
		{http.MethodPost, "/pause", []string{"Authorization", "Bearer wrong"}, http.StatusUnauthorized},
		{http.MethodGet, "/debug/pprof/heap", []string{"Authorization", "Bearer wrong"}, http.StatusUnauthorized},
		{http.MethodPost, "/pause", []string{"Sec-Fetch-Site", "cross-site"}, http.StatusForbidden},
		{http.MethodPost, "/pause", []string{"Origin", "http://evil.example"}, http.StatusForbidden},
		{http.MethodGet, "/pause", nil, http.StatusMethodNotAllowed},
		{http.MethodGet, "/debug/pprof/heap", nil, http.StatusOK},
		{http.MethodGet, "/debug/pprof/goroutine?debug=2", nil, http.StatusOK},
	} {
		status, answer := o.ask(t, c.method, c.path, "", c.headers...)
		require.Equal(t, c.want, status, "%s %s %v: %s", c.method, c.path, c.headers, answer)
		require.NotContains(t, answer, operatorToken)
	}
	require.Equal(t, "streaming", o.relay.state(t).Phase)

	status, answer := o.ask(t, http.MethodPost, "/log-level", `{"level": "debug"}`)
	require.Equal(t, http.StatusOK, status)
	require.JSONEq(t, `{"level": "debug", "was": "info"}`, answer)
	o.relay.AwaitLog(t, "log level changed until the next reload or restart")
	asked := o.relay.Logged("admin request")
	require.Equal(t, "profile", asked["action"])
	require.Regexp(t, `^127\.0\.0\.1:[0-9]+$`, asked["client"])
	require.Contains(t, o.relay.Log.String(), `"action":"log-level"`)

	code, printed := o.command(t, "pause", "--set", "admin.token_file=/dev/null")
	require.Equal(t, 77, code)
	require.NotContains(t, printed, operatorToken)

	// The listener that asks for nothing has none of it.
	var nothing any
	status, _ = getJSON(o.relay.url+"/debug/pprof/", &nothing)
	require.Equal(t, http.StatusNotFound, status)
	status, _ = getJSON(o.relay.url+"/state", &nothing)
	require.Equal(t, http.StatusNotFound, status)
	o.relay.Stop(t)
}

// systemd is the socket of a service manager.
type systemd struct {
	conn *net.UnixConn
	env  map[string]string
	said []string
}

func newSystemd(t *testing.T) *systemd {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(parts.Patience)))
	return &systemd{conn: conn, env: map[string]string{"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "2000000"}}
}

// hear waits for an assignment that begins so, and returns the message it was in.
func (s *systemd) hear(t *testing.T, begin string) string {
	t.Helper()
	b := make([]byte, 4096)
	for {
		n, err := s.conn.Read(b)
		require.NoError(t, err, "waiting for %s after %q", begin, s.said)
		message := string(b[:n])
		s.said = append(s.said, message)
		for line := range strings.Lines(message) {
			if strings.HasPrefix(line, begin) {
				return message
			}
		}
	}
}

func TestSystemd_HearsWhatIsTrue(t *testing.T) {
	t.Parallel()
	sd := newSystemd(t)
	o := operate(t, "no_data", "", 0, sd.env)
	require.Contains(t, sd.hear(t, "READY=1"), "STATUS=")
	o.phase(t, "streaming")
	for range 3 {
		sd.hear(t, "WATCHDOG=1")
	}
	require.NoError(t, o.relay.Signal(syscall.SIGHUP))
	require.Regexp(t, `^RELOADING=1\nMONOTONIC_USEC=[0-9]+$`, sd.hear(t, "RELOADING=1"))
	require.Equal(t, "READY=1", sd.hear(t, "READY=1"))
	code, printed := o.command(t, "pause")
	require.Zero(t, code, printed)
	sd.hear(t, "STATUS=paused")
	sd.hear(t, "WATCHDOG=1")
	require.NoError(t, o.relay.Signal(syscall.SIGTERM))
	sd.hear(t, "STOPPING=1")
	sd.hear(t, "STATUS=stopped")
	require.Zero(t, o.relay.Wait(t))
}

// A start that waits for the broker is no failed start: systemd is asked for more time, and is not told that all is well.
func TestSystemd_WaitsForABrokerThatIsAway(t *testing.T) {
	t.Parallel()
	sd := newSystemd(t)
	port, err := child.FreePort()
	require.NoError(t, err)
	nobody := fmt.Sprintf("127.0.0.1:%d", port)
	sd.env["POSTRIDER_SINK_KAFKA_BROKERS"] = nobody
	o := operate(t, "no_data", "", 0, sd.env)
	sd.hear(t, "EXTEND_TIMEOUT_USEC=")
	status := sd.hear(t, "STATUS=backing_off")
	for strings.Contains(status, "waits for open transactions") { // of the tests beside this one
		status = sd.hear(t, "STATUS=backing_off")
	}
	require.Contains(t, status, nobody)
	sd.hear(t, "EXTEND_TIMEOUT_USEC=")
	sd.hear(t, "WATCHDOG=1")
	require.NotContains(t, strings.Join(sd.said, "\n"), "READY=1")
	o.relay.Stop(t)
	sd.hear(t, "STOPPING=1")
}
