package httpserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/secret"
)

const adminToken = "correct-horse-battery-staple"

// adminRig is an admin listener, and what it asked for.
type adminRig struct {
	url string

	mu     sync.Mutex
	limit  time.Duration
	reason string
	calls  int
	fails  error
	log    bytes.Buffer
}

func (a *adminRig) Write(b []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.log.Write(b)
}

func (a *adminRig) logged() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.log.String()
}

func startAdmin(t *testing.T, token secret.Secret) *adminRig {
	t.Helper()
	a := &adminRig{}
	s := NewAdmin(Admin{Listen: "127.0.0.1:0", Token: token}, AdminHandlers{
		State: func() any { return map[string]string{"phase": "streaming"} },
		Pause: func(limit time.Duration, reason string) (any, error) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.calls++
			a.limit, a.reason = limit, reason
			return map[string]string{"phase": "paused"}, a.fails
		},
		Resume: func() any { return map[string]bool{"was_paused": true} },
		LogLevel: func(level string) (any, error) {
			if level != "debug" {
				return nil, errors.New("level must be debug")
			}
			return map[string]string{"level": level, "was": "info"}, nil
		},
		Log: zerolog.New(a),
	})
	require.NoError(t, s.Listen())
	require.False(t, s.Exposed())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		cancel()
		require.NoError(t, <-ended)
		require.NotContains(t, a.logged(), adminToken)
	})
	a.url = "http://" + s.Addr().String()
	return a
}

// ask sends a request with the token, unless headers say otherwise; Host is one of them.
func (a *adminRig) ask(t *testing.T, method, path, body string, headers ...string) (*http.Response,
	string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, a.url+path, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+adminToken)
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	answer, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, "no-store", resp.Header.Get("Cache-Control"))
	require.NotContains(t, string(answer), adminToken)
	return resp, string(answer)
}

func TestAdmin_LetsNobodyThroughWithoutTheToken(t *testing.T) {
	a := startAdmin(t, secret.Of(adminToken))
	for _, path := range []string{"/", "/state", "/debug/pprof/", "/debug/pprof/heap", "/nothing"} {
		for _, authorization := range []string{"", "Bearer", "Bearer ", "Bearer wrong", "Basic " +
			adminToken, adminToken, "Bearer " + adminToken + "x"} {
			resp, body := a.ask(t, http.MethodGet, path, "", "Authorization", authorization)
			require.Equal(t, http.StatusUnauthorized, resp.StatusCode, "%s with %q", path, authorization)
			require.Contains(t, resp.Header.Get("WWW-Authenticate"), "Bearer")
			var said AdminError
			require.NoError(t, json.Unmarshal([]byte(body), &said))
			require.Contains(t, said.Next, "admin.token_file")
		}
	}
	resp, _ := a.ask(t, http.MethodPost, "/pause", "", "Authorization", "Bearer wrong")
	require.Equal(t, http.StatusUnauthorized, resp.StatusCode)
	require.Zero(t, a.calls)
	require.Equal(t, 10, strings.Count(a.logged(), "admin request refused"),
		"and no more in a minute")
}

func TestAdmin_RefusesWhatAnotherSiteCaused(t *testing.T) {
	a := startAdmin(t, secret.Of(adminToken))
	for _, c := range []struct {
		headers []string
		want    int
	}{
		{[]string{"Sec-Fetch-Site", "cross-site"}, http.StatusForbidden},
		{[]string{"Sec-Fetch-Site", "same-site"}, http.StatusForbidden},
		{[]string{"Origin", "https://evil.example"}, http.StatusForbidden},
		{[]string{"Origin", "null"}, http.StatusForbidden},
		{[]string{"Host", "evil.example"}, http.StatusMisdirectedRequest},
		{[]string{"Host", "evil.example", "Origin", "http://evil.example", "Sec-Fetch-Site",
			"same-origin"}, http.StatusMisdirectedRequest},
		{[]string{"Sec-Fetch-Site", "same-origin"}, http.StatusOK},
		{[]string{"Sec-Fetch-Site", "none"}, http.StatusOK},
		{[]string{"Host", "localhost:8433"}, http.StatusOK},
	} {
		resp, body := a.ask(t, http.MethodPost, "/pause", "", c.headers...)
		require.Equal(t, c.want, resp.StatusCode, "%v: %s", c.headers, body)
		require.Empty(t, resp.Header.Get("Access-Control-Allow-Origin"))
	}
	require.Equal(t, 3, a.calls)
}

func TestAdmin_ChangesThingsWithPOSTOnly(t *testing.T) {
	a := startAdmin(t, secret.Of(adminToken))
	for _, path := range []string{"/pause", "/resume", "/log-level"} {
		for _, method := range []string{
			http.MethodGet, http.MethodPut, http.MethodDelete, http.MethodOptions,
		} {
			resp, _ := a.ask(t, method, path, "")
			require.Equal(t, http.StatusMethodNotAllowed, resp.StatusCode, "%s %s", method, path)
			require.Equal(t, http.MethodPost, resp.Header.Get("Allow"))
		}
	}
	require.Zero(t, a.calls)
	resp, _ := a.ask(t, http.MethodPost, "/state", "")
	require.Equal(t, http.StatusMethodNotAllowed, resp.StatusCode)
}

func TestAdmin_Pauses(t *testing.T) {
	a := startAdmin(t, secret.Of(adminToken))
	for body, want := range map[string]time.Duration{
		"": time.Hour, "{}": time.Hour, `{"for": "10m"}`: 10 * time.Minute, `{"for": "0s"}`: 0,
		` {"for":"1h30m"} ` + "\n": 90 * time.Minute,
	} {
		resp, answer := a.ask(t, http.MethodPost, "/pause", body)
		require.Equal(t, http.StatusOK, resp.StatusCode, answer)
		require.JSONEq(t, `{"phase": "paused"}`, answer)
		require.Equal(t, want, a.limit, body)
		require.Empty(t, a.reason)
	}
	resp, _ := a.ask(t, http.MethodPost, "/pause", `{"reason": "new brokers"}`)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Equal(t, "new brokers", a.reason)
	require.Contains(t, a.logged(), `"action":"pause","client":"127.0.0.1:`)
	require.Contains(t, a.logged(), `"reason":"new brokers"`)

	calls := a.calls
	for body, want := range map[string]int{
		`{"for": "soon"}`: http.StatusBadRequest, `{"for": "-1s"}`: http.StatusBadRequest,
		`{"for": 10}`:      http.StatusBadRequest,
		`{"until": "10m"}`: http.StatusBadRequest, `{} {}`: http.StatusBadRequest,
		`[]`: http.StatusBadRequest, `for=10m`: http.StatusBadRequest,
		`{"reason": "` + strings.Repeat("x", 201) + `"}`: http.StatusBadRequest, `{"reason": "` +
			strings.Repeat("x", 5000) + `"}`: http.StatusRequestEntityTooLarge,
	} {
		resp, answer := a.ask(t, http.MethodPost, "/pause", body)
		require.Equal(t, want, resp.StatusCode, "%.40s: %s", body, answer)
		var said AdminError
		require.NoError(t, json.Unmarshal([]byte(answer), &said))
		require.NotEmpty(t, said.Error)
	}
	require.Equal(t, calls, a.calls)

	a.fails = errors.New("the relay is stopping")
	resp, answer := a.ask(t, http.MethodPost, "/pause", "")
	require.Equal(t, http.StatusConflict, resp.StatusCode)
	require.Contains(t, answer, "the relay is stopping")
	require.Contains(t, a.logged(), `"refused":"the relay is stopping"`)
}

func TestAdmin_AnswersTheRest(t *testing.T) {
	a := startAdmin(t, secret.Of(adminToken))
	_, body := a.ask(t, http.MethodPost, "/resume", "")
	require.JSONEq(t, `{"was_paused": true}`, body)
	_, body = a.ask(t, http.MethodPost, "/log-level", `{"level": "debug"}`)
	require.JSONEq(t, `{"level": "debug", "was": "info"}`, body)
	resp, _ := a.ask(t, http.MethodPost, "/log-level", `{"level": "loud"}`)
	require.Equal(t, http.StatusBadRequest, resp.StatusCode)
	_, body = a.ask(t, http.MethodGet, "/state", "")
	require.JSONEq(t, `{"phase": "streaming"}`, body)
	_, body = a.ask(t, http.MethodGet, "/", "")
	for _, path := range []string{"/state", "/pause", "/resume", "/log-level", "/debug/pprof/"} {
		require.Contains(t, body, path)
	}
	resp, _ = a.ask(t, http.MethodGet, "/metrics", "")
	require.Equal(t, http.StatusNotFound, resp.StatusCode)
}

func TestAdmin_ShowsProfilesAndNoArguments(t *testing.T) {
	a := startAdmin(t, secret.Of(adminToken))
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap?debug=1",
		"/debug/pprof/goroutine?debug=2", "/debug/pprof/profile?seconds=1", "/debug/pprof/symbol"} {
		resp, body := a.ask(t, http.MethodGet, path, "")
		require.Equal(t, http.StatusOK, resp.StatusCode, path)
		require.NotEmpty(t, body)
	}
	_, body := a.ask(t, http.MethodGet, "/debug/pprof/cmdline", "")
	require.Equal(t, "postrider", body)
	require.Contains(t, a.logged(), `"action":"profile"`)

	// The other listener, which needs no token, has none of it.
	resp, _ := request(t, http.MethodGet, start(t, new(answers).handlers())+"/debug/pprof/")
	require.Equal(t, http.StatusNotFound, resp.StatusCode)
}

func TestAdmin_ReadsTheTokenAnew(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("first\n"), 0o600))
	a := startAdmin(t, secret.File(file))
	status := func(token string) int {
		resp, _ := a.ask(t, http.MethodGet, "/state", "", "Authorization", "Bearer "+token)
		return resp.StatusCode
	}
	require.Equal(t, http.StatusOK, status("first"))
	require.NoError(t, os.WriteFile(file, []byte("second\n"), 0o600))
	require.Equal(t, http.StatusUnauthorized, status("first"))
	require.Equal(t, http.StatusOK, status("second"))
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.Equal(t, http.StatusServiceUnavailable, status(""),
		"an empty file is no token that everybody knows")
	require.NoError(t, os.Remove(file))
	require.Equal(t, http.StatusServiceUnavailable, status("second"))
	require.Contains(t, a.logged(), "admin token not read")
}
