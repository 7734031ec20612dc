package alerts

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/internal/metrics"
	"github.com/postrider/postrider/internal/secret"
)

// canary stands in every part of a URL that may be secret.
const canary = "CANARY"

// hook is a receiver over HTTP.
type hook struct {
	*httptest.Server
	got chan []byte // bodies, in order
}

// newHook answers each request with what answer does; nil is 200.
func newHook(t testing.TB, answer http.HandlerFunc) *hook {
	t.Helper()
	h := stopped(answer)
	h.Start()
	t.Cleanup(h.Close)
	return h
}

// stopped is a receiver that does not listen yet.
func stopped(answer http.HandlerFunc) *hook {
	h := &hook{got: make(chan []byte, 100)}
	h.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err == nil {
			h.got <- b
		}
		if answer != nil {
			answer(w, r)
		}
	}))
	h.Config.ErrorLog = log.New(io.Discard, "", 0) // of handshakes that are meant to fail
	return h
}

func (h *hook) body(t testing.TB) payload {
	t.Helper()
	select {
	case b := <-h.got:
		return decode(t, b)
	case <-time.After(30 * time.Second):
		require.FailNow(t, "the receiver got nothing")
		return payload{}
	}
}

// secretURL is a URL of the server with the canary as user, password, path and query.
func secretURL(t testing.TB, server string) string {
	t.Helper()
	u, err := url.Parse(server)
	require.NoError(t, err)
	u.User = url.UserPassword("user-"+canary, "password-"+canary)
	u.Path, u.RawQuery = "/services/"+canary, "token="+canary
	return u.String()
}

// post makes one attempt.
func post(t testing.TB, u string, timeout time.Duration) *failure {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Webhook, cfg.Timeout = secret.Of(u), timeout
	require.NoError(t, cfg.Validate())
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	w := notification{
		condition: condition("PostriderNotReady", health.Critical, 0), severity: critical,
		startsAt: time.Now(),
	}
	f := newWebhook(cfg, "1.2.3").send(ctx, w.message(about, receiverWebhook, ""))
	if f != nil {
		require.NotContains(t, f.text+f.next, canary)
		require.NotContains(t, strings.ToLower(fmt.Sprintf("%v %+v %#v", f, f, *f)),
			strings.ToLower(canary))
		require.NotEmpty(t, f.text)
	}
	return f
}

func TestWebhook_PostsJSON(t *testing.T) {
	var request *http.Request
	h := newHook(t, func(w http.ResponseWriter, r *http.Request) {
		request = r
		w.WriteHeader(http.StatusAccepted)
	})
	require.Nil(t, post(t, secretURL(t, h.URL), 10*time.Second))
	require.Equal(t, "PostriderNotReady", h.body(t).CommonLabels["alertname"])
	require.Equal(t, http.MethodPost, request.Method)
	require.Equal(t, "application/json", request.Header.Get("Content-Type"))
	require.Equal(t, "postrider/1.2.3", request.Header.Get("User-Agent"))
	require.Equal(t, "/services/"+canary+"?token="+canary, request.RequestURI)
	user, password, _ := request.BasicAuth()
	require.Equal(t, "user-"+canary, user)
	require.Equal(t, "password-"+canary, password)
}

func TestWebhook_JudgesTheAnswer(t *testing.T) {
	for code, want := range map[int]failure{
		400: {refused: true}, 401: {refused: true}, 403: {refused: true}, 404: {refused: true},
		405: {refused: true},
		410: {refused: true}, 413: {refused: true}, 422: {refused: true}, 300: {refused: true},
		304: {refused: true},
		408: {}, 429: {}, 500: {reached: true}, 502: {reached: true}, 503: {reached: true}, 504: {reached: true},
	} {
		h := newHook(t, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(code)
			_, _ = io.WriteString(w, "cannot POST "+r.RequestURI) // as many servers do
		})
		got := post(t, secretURL(t, h.URL), 10*time.Second)
		require.NotNil(t, got, code)
		require.Contains(t, got.text, fmt.Sprint(code))
		require.Equal(t, want.refused, got.refused, code)
		require.Equal(t, want.reached, got.reached, code)
		require.Zero(t, got.retryAfter)
		if got.refused {
			require.NotEmpty(t, got.next, "it says what to do")
		}
		h.Close()
	}
}

func TestRetryAfter_IsReadInSecondsAndAsADate(t *testing.T) {
	now := time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"": 0, "0": 0, "17": 17 * time.Second, "-3": 0, "soon": 0, "7200": retryAfterMax,
		"99999999999999999999":          0,
		"Wed, 06 May 2026 07:10:09 GMT": 2 * time.Minute, "Wed, 06 May 2020 07:10:09 GMT": 0,
	} {
		header := http.Header{}
		header.Set("Retry-After", value)
		require.Equal(t, want, retryAfter(header, now), "%q", value)
		require.Equal(t, want, failureOf(408, header, now).retryAfter)
		require.Equal(t, want, failureOf(429, header, now).retryAfter)
		require.Equal(t, want, failureOf(503, header, now).retryAfter)
	}
}

func TestWebhook_FollowsARedirectOnTheSameHostOnly(t *testing.T) {
	elsewhere := newHook(t, nil)
	var to string
	code := http.StatusPermanentRedirect
	h := newHook(t, nil)
	h.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/moved" {
			h.got <- b
			return
		}
		http.Redirect(w, r, to, code)
	})
	to = "/moved"
	require.Nil(t, post(t, secretURL(t, h.URL), 10*time.Second))
	h.body(t) // with the whole alert

	// As a GET it would arrive without the alert, and be answered with 200.
	code = http.StatusFound
	require.True(t, post(t, secretURL(t, h.URL), 10*time.Second).refused)

	for _, code = range []int{301, 302, 303, 307, 308} {
		for _, to = range []string{elsewhere.URL + "/" + canary, "https" +
			strings.TrimPrefix(h.URL, "http")} {
			f := post(t, secretURL(t, h.URL), 10*time.Second)
			require.True(t, f.refused)
			require.Contains(t, f.text, "redirect")
		}
	}
	require.Empty(t, elsewhere.got)

	code, to = http.StatusPermanentRedirect, "/again"
	require.True(t, post(t, secretURL(t, h.URL), 10*time.Second).refused,
		"a redirect that does not end")
}

func TestWebhook_SaysWhyThereIsNoAnswerWithoutTheURL(t *testing.T) {
	silent := newHook(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	f := post(t, secretURL(t, silent.URL), 200*time.Millisecond)
	require.Equal(t, "reach the host of alerts.webhook: no answer within 200ms (alerts.timeout)",
		f.text)
	require.True(t, f.reached, "it has the alert")

	closed := httptest.NewServer(nil)
	closed.Close()
	f = post(t, secretURL(t, closed.URL), 10*time.Second)
	require.Contains(t, f.text, "connection refused")
	require.False(t, f.reached)

	f = post(t, secretURL(t, "https"+strings.TrimPrefix(silent.URL, "http")), 10*time.Second)
	require.Contains(t, f.text, "it speaks http")
	require.False(t, f.reached)

	secure := stopped(nil)
	secure.StartTLS()
	defer secure.Close()
	f = post(t, secretURL(t, secure.URL), 10*time.Second)
	require.Contains(t, f.text, "certificate")
	require.False(t, f.reached)
	require.Empty(t, secure.got, "nothing is sent to whom we do not trust")
	f = post(t, secretURL(t, strings.Replace(secure.URL, "127.0.0.1", "localhost", 1)),
		10*time.Second)
	require.Contains(t, f.text, "certificate")

	f = post(t, secretURL(t, "http://"+canary+".invalid"), 10*time.Second)
	require.False(t, f.reached)
}

// A server that speaks no HTTP gets into net/http's error with what it says, and this one says
// what it was sent.
func TestWebhook_DoesNotShowWhatAServerEchoes(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				b := make([]byte, 4096)
				n, _ := conn.Read(b)
				_, _ = conn.Write(b[:n])
			})
		}
	})
	defer wg.Wait()
	defer listener.Close()
	f := post(t, secretURL(t, "http://"+listener.Addr().String()), 10*time.Second)
	require.Contains(t, f.text, "not HTTP")
	require.True(t, f.reached)
}

func TestWebhook_DoesNotReadAnAnswerThatDoesNotEnd(t *testing.T) {
	h := newHook(t, func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write(bytes.Repeat([]byte("x"), 1<<16)); err != nil {
				return
			}
		}
	})
	require.Nil(t, post(t, h.URL, 30*time.Second))
}

func TestWebhook_ReadsItsFileEachTime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "webhook")
	h := newHook(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/new" {
			w.WriteHeader(http.StatusForbidden)
		}
	})
	cfg := DefaultConfig()
	cfg.Webhook = secret.File(path)
	require.NoError(t, cfg.Validate(), "a file that is not there yet keeps no relay from starting")
	w := newWebhook(cfg, "")
	send := func() *failure { return w.send(t.Context(), message{}) }

	f := send()
	require.Contains(t, f.text, path)
	require.False(t, f.refused, "it may come")
	for text, refused := range map[string]bool{
		"": false, canary: false, "ftp://host/" + canary: false, "http://[" + canary: false,
		"http://host:" + canary: false, "http://%" + canary: false,
	} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		f = send()
		require.NotNil(t, f)
		require.NotContains(t, f.text+f.next, canary)
		require.Equal(t, refused, f.refused)
	}
	require.NoError(t, os.WriteFile(path, []byte(h.URL+"/old\n"), 0o600))
	require.True(t, send().refused)
	require.NoError(t, os.WriteFile(path, []byte(h.URL+"/new\n"), 0o600))
	require.Nil(t, send())
}

// Over real sockets and in real time: an error or two, then firing, then resolved.
func TestNotifier_TellsOverHTTPAndLogsNoSecret(t *testing.T) {
	var mu sync.Mutex
	answers := []int{500, 429, 200}
	h := newHook(t, func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if len(answers) > 0 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(answers[0])
			answers = answers[1:]
		}
	})
	cfg := DefaultConfig()
	cfg.Webhook = secret.Of(secretURL(t, h.URL))
	var logged bytes.Buffer
	registry := prometheus.NewRegistry()
	n, err := New(cfg, about, metrics.New(registry, "orders"),
		zerolog.New(&logged).Level(zerolog.DebugLevel))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { n.Run(ctx) })
	now := time.Now()
	n.Update(now, []health.Condition{condition("PostriderSlotLost", health.Critical, 0)})
	for range 3 {
		require.Equal(t, "firing", h.body(t).Status)
	}
	n.Update(now.Add(resolveAfter), nil)
	require.Equal(t, "resolved", h.body(t).Status)
	cancel()
	wg.Wait()

	require.NotContains(t, logged.String(), canary)
	var lines []map[string]any
	for line := range bytes.Lines(logged.Bytes()) {
		var fields map[string]any
		require.NoError(t, json.Unmarshal(line, &fields))
		lines = append(lines, fields)
	}
	require.Len(t, lines, 4, "%s", logged.String())
	require.Equal(t, "notification not sent", lines[0]["message"])
	require.Equal(t, "the receiver answered 500 Internal Server Error", lines[0]["error"])
	require.Equal(t, "notification sent", lines[2]["message"])
	require.Equal(t, "resolved", lines[3]["status"])
}
