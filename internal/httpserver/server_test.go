package httpserver

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/postrider/postrider/internal/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answers is a set of handlers whose answers a test changes while the server runs.
type answers struct {
	live, ready atomic.Pointer[error]
	status      atomic.Pointer[func() any]
}

func (a *answers) handlers() Handlers {
	load := func(p *atomic.Pointer[error]) error {
		if e := p.Load(); e != nil {
			return *e
		}
		return nil
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "postrider_test", Help: "A test.",
	}, func() float64 {
		return 7
	}))
	return Handlers{
		Live:  func() error { return load(&a.live) },
		Ready: func() (string, error) { return "standby", load(&a.ready) },
		Status: func() any {
			if f := a.status.Load(); f != nil {
				return (*f)()
			}
			return map[string]string{"phase": "streaming"}
		},
		Metrics: reg,
		Log:     zerolog.Nop(),
	}
}

// start runs a server on a free port until the test ends and returns its URL.
func start(t *testing.T, h Handlers) string {
	t.Helper()
	s := New(Config{Listen: "127.0.0.1:0"}, h)
	require.NoError(t, s.Listen())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		cancel()
		require.NoError(t, <-ended)
	})
	return "http://" + s.Addr().String()
}

func request(t *testing.T, method, url string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp, string(body)
}

func TestServer_AnswersEveryEndpoint(t *testing.T) {
	url := start(t, new(answers).handlers())
	for _, c := range []struct{ path, contentType, contains string }{
		{"/", "text/plain; charset=utf-8", "/readyz"},
		{"/livez", "application/json", `"ok": true`},
		{"/readyz", "application/json", `"ok": true`},
		{"/status", "application/json", "{\n  \"phase\": \"streaming\"\n}\n"},
		{"/metrics", "text/plain", "postrider_test 7"},
	} {
		t.Run(c.path, func(t *testing.T) {
			resp, body := request(t, http.MethodGet, url+c.path)
			require.Equal(t, http.StatusOK, resp.StatusCode)
			require.True(t, strings.HasPrefix(resp.Header.Get("Content-Type"), c.contentType),
				resp.Header.Get("Content-Type"))
			require.Contains(t, body, c.contains)

			resp, body = request(t, http.MethodHead, url+c.path)
			require.Equal(t, http.StatusOK, resp.StatusCode)
			require.Empty(t, body)
		})
	}
	resp, _ := request(t, http.MethodGet, url+"/other")
	require.Equal(t, http.StatusNotFound, resp.StatusCode)
}

func TestServer_NamesEveryEndpointInTheIndex(t *testing.T) {
	url := start(t, new(answers).handlers())
	_, body := request(t, http.MethodGet, url+"/")
	for _, path := range []string{"/livez", "/readyz", "/status", "/metrics"} {
		require.Contains(t, body, "\n"+path+" ")
	}
}

func TestServer_OnlyReads(t *testing.T) {
	url := start(t, new(answers).handlers())
	for _, method := range []string{
		http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch,
	} {
		for _, path := range []string{"/", "/livez", "/readyz", "/status", "/metrics"} {
			resp, _ := request(t, method, url+path)
			require.Equal(t, http.StatusMethodNotAllowed, resp.StatusCode, "%s %s", method, path)
			require.Equal(t, "GET, HEAD", resp.Header.Get("Allow"))
		}
	}
}

func TestServer_SetsSafeHeadersOnEveryAnswer(t *testing.T) {
	url := start(t, new(answers).handlers())
	for _, path := range []string{"/", "/livez", "/readyz", "/status", "/metrics", "/other"} {
		resp, _ := request(t, http.MethodGet, url+path)
		require.Equal(t, "no-store", resp.Header.Get("Cache-Control"), path)
		require.Equal(t, "nosniff", resp.Header.Get("X-Content-Type-Options"), path)
		require.Contains(t, resp.Header.Get("Content-Security-Policy"), "default-src 'none'", path)
	}
}

func TestProbe_FailsWithTheReason(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		want Probe
	}{
		{"a reason", &Reason{Code: "backing_off", Text: "broker unreachable"},
			Probe{Reason: "backing_off", Detail: "broker unreachable"}},
		{"a wrapped reason", fmt.Errorf("ready: %w", &Reason{Code: "starting"}),
			Probe{Reason: "starting"}},
		{"any error", errors.New("loop has not turned for 1m0s"),
			Probe{Reason: "error", Detail: "loop has not turned for 1m0s"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := new(answers)
			url := start(t, a.handlers())
			for path, answer := range map[string]*atomic.Pointer[error]{"/livez": &a.live,
				"/readyz": &a.ready} {
				answer.Store(&c.err)
				resp, body := request(t, http.MethodGet, url+path)
				require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
				var got Probe
				require.NoError(t, json.Unmarshal([]byte(body), &got))
				require.Equal(t, c.want, got)

				answer.Store(nil)
				resp, body = request(t, http.MethodGet, url+path)
				require.Equal(t, http.StatusOK, resp.StatusCode, "a probe recovers")
				got = Probe{}
				require.NoError(t, json.Unmarshal([]byte(body), &got))
				require.Equal(t, Probe{OK: true, State: map[string]string{"/readyz": "standby"}[path]}, got)
			}
		})
	}
}

func TestProbe_LiveDoesNotAskReady(t *testing.T) {
	a := new(answers)
	err := errors.New("broker unreachable")
	a.ready.Store(&err)
	url := start(t, a.handlers())
	resp, _ := request(t, http.MethodGet, url+"/livez")
	require.Equal(t, http.StatusOK, resp.StatusCode)
}

func TestStatus_ThatCannotBeEncodedIsAnError(t *testing.T) {
	a := new(answers)
	broken := func() any { return map[string]any{"fine": 1, "not": make(chan int)} }
	a.status.Store(&broken)
	url := start(t, a.handlers())
	resp, body := request(t, http.MethodGet, url+"/status")
	require.Equal(t, http.StatusInternalServerError, resp.StatusCode)
	require.NotContains(t, body, "fine")
}

func TestServer_SurvivesAPanicInAHandler(t *testing.T) {
	a := new(answers)
	broken := func() any { panic("status is broken") }
	a.status.Store(&broken)
	url := start(t, a.handlers())
	_, err := http.DefaultClient.Get(url + "/status") //nolint:bodyclose,noctx // there is no answer
	require.Error(t, err)
	resp, _ := request(t, http.MethodGet, url+"/livez")
	require.Equal(t, http.StatusOK, resp.StatusCode)
}

func TestServer_RefusesHugeHeaders(t *testing.T) {
	url := start(t, new(answers).handlers())
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/livez", nil)
	require.NoError(t, err)
	req.Header.Set("X-Huge", strings.Repeat("x", 4*maxHeaderBytes))
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, resp.StatusCode)
}

// TestServer_EndsRequestsThatNeverEnd is about clients that send a byte now and then to hold on to
// connections (slowloris).
func TestServer_EndsRequestsThatNeverEnd(t *testing.T) {
	for name, s := range map[string]*Server{
		"http": New(Config{Listen: "127.0.0.1:0"}, new(answers).handlers()),
		"admin": NewAdmin(Admin{Listen: "127.0.0.1:0", Token: secret.Of("token")}, AdminHandlers{
			Pause: func(time.Duration, string) (any, error) { t.Error("paused"); return nil, nil },
		}),
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, readTimeout, s.server.ReadHeaderTimeout)
			require.Equal(t, readTimeout, s.server.ReadTimeout)
			require.Equal(t, writeTimeout, s.server.WriteTimeout)
			require.Equal(t, idleTimeout, s.server.IdleTimeout)
			require.Equal(t, maxHeaderBytes, s.server.MaxHeaderBytes)
			// longer than any test waits
			s.server.ReadHeaderTimeout, s.server.ReadTimeout = 100*time.Millisecond, 100*time.Millisecond
			require.NoError(t, s.Listen())
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() { ended <- s.Serve(ctx) }()
			for _, request := range []string{"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
				"POST /pause HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer token\r\nContent-Length: " +
					"100\r\n\r\n{"} {
				c, err := net.Dial("tcp", s.Addr().String())
				require.NoError(t, err)
				require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
				_, _ = io.WriteString(c, request) // which the server may have ended already
				_, err = io.Copy(io.Discard, c)
				require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the server does not end it")
				require.NoError(t, c.Close())
			}
			cancel()
			require.NoError(t, <-ended)
		})
	}
}

func TestListen_SaysWhichKeyIsWrong(t *testing.T) {
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, taken.Close()) }()

	for _, c := range []struct {
		name, listen string
		want         error
	}{
		{"in use", taken.Addr().String(), ErrInUse},
		{"not an address of this machine", "192.0.2.1:8432", ErrNoAddress},
		{"not a host", "no-such-host.invalid:8432", ErrNoAddress},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := New(Config{Listen: c.listen}, new(answers).handlers())
			err := s.Listen()
			require.ErrorIs(t, err, c.want)
			require.ErrorContains(t, err, "http.listen")
			require.ErrorContains(t, err, c.listen)
			require.Nil(t, s.Addr())
		})
	}
}

func TestServe_WithoutAddressWaitsForTheContext(t *testing.T) {
	s := New(Config{}, new(answers).handlers())
	require.NoError(t, s.Listen())
	require.Nil(t, s.Addr())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	cancel()
	require.NoError(t, <-ended)
}

func TestServe_FinishesTheRequestBeingAnswered(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	a := new(answers)
	slow := func() any {
		close(entered)
		<-release
		return "the last answer"
	}
	a.status.Store(&slow)
	s := New(Config{Listen: "127.0.0.1:0"}, a.handlers())
	require.Equal(t, shutdownTimeout, s.grace)
	s.grace = 10 * time.Minute
	require.NoError(t, s.Listen())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()

	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.Addr().String())
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	_, err = io.WriteString(conn, "GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n")
	require.NoError(t, err)
	<-entered
	cancel()
	require.Eventually(t, func() bool {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.Addr().String())
		if err != nil {
			return true
		}
		return c.Close() != nil
	}, time.Minute, 10*time.Millisecond, "takes connections while it shuts down")
	close(release)

	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Contains(t, string(body), "the last answer")
	require.NoError(t, <-ended)
}
