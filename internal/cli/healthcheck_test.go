package cli

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/httpserver"
	"github.com/postrider/postrider/test/parts"
)

// serveHTTP runs the daemon's HTTP server on listen until the test ends and returns the port.
func serveHTTP(t *testing.T, listen string, h httpserver.Handlers) string {
	t.Helper()
	h.Metrics, h.Log = prometheus.NewRegistry(), zerolog.Nop()
	s := httpserver.New(httpserver.Config{Listen: listen}, h)
	require.NoError(t, s.Listen())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	_, port, err := net.SplitHostPort(s.Addr().String())
	require.NoError(t, err)
	return port
}

// command runs one command line with a configuration file of the given text.
func command(t *testing.T, configuration string, args ...string) (code int, stdout,
	stderr string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "postrider.toml")
	require.NoError(t, os.WriteFile(path, []byte(configuration), 0o600))
	r := execute(t, nil, append(args, "--config", path)...)
	// of hints
	without := func(s string) string { return strings.ReplaceAll(s, " --config "+path, "") }
	return r.code, without(r.stdout), without(r.stderr)
}

func healthy() error { return nil }

func isReady() (string, error) { return "streaming", nil }

func TestHealthcheck_IsSilentWhenAlive(t *testing.T) {
	notReady := func() (string, error) {
		return "backing_off", &httpserver.Reason{Code: "backing_off", Text: "broker unreachable"}
	}
	for _, listen := range []string{"127.0.0.1", "0.0.0.0", ""} {
		t.Run("listens on "+listen, func(t *testing.T) {
			port := serveHTTP(t, listen+":0", httpserver.Handlers{Live: healthy, Ready: notReady})
			file := "[http]\nlisten = \"" + listen + ":" + port + "\"\n"

			code, stdout, stderr := command(t, file, "healthcheck")
			require.Equal(t, exit.OK, code, stderr)
			require.Empty(t, stdout+stderr)

			code, stdout, stderr = command(t, file, "healthcheck", "--ready")
			require.Equal(t, exit.Runtime, code)
			require.Empty(t, stdout)
			require.Equal(t, "postrider: /readyz: backing_off: broker unreachable\n", stderr)
		})
	}
}

func TestHealthcheck_TakesTheAddressFromAFlag(t *testing.T) {
	port := serveHTTP(t, "127.0.0.1:0", httpserver.Handlers{Live: healthy, Ready: isReady})
	code, _, stderr := command(t, "", "healthcheck", "--ready", "--http-listen", "127.0.0.1:"+port)
	require.Equal(t, exit.OK, code, stderr)
}

// A relay keeps the configuration that it has read. A probe that fails because the file was changed since ends a relay that cannot be
// started again.
func TestHealthcheck_WarnsOfAConfigurationThatCannotBeUsed(t *testing.T) {
	port := serveHTTP(t, "127.0.0.1:0", httpserver.Handlers{Live: healthy, Ready: isReady})
	listen := "[http]\nlisten = \"127.0.0.1:" + port + "\"\n"
	for _, c := range []struct{ name, file, want string }{
		{"a typo", listen + "[slot]\nnmae = \"orders\"\n", "slot.nmae: unknown key"},
		{"a variable that is not set", "[postgres]\nurl = \"${NOPE}\"\n" + listen,
			"environment variable NOPE is not set"},
		{"no TOML, behind", "# x\n" + listen + "[slot]\nname = \"orders\n", "basic strings"},
		{"no TOML, before", "[slot]\nname = \"orders\n[http] # here\n\n  listen='127.0.0.1:" + port + "'",
			"basic strings"},
		{"no TOML, and a dotted key", "http.listen = \"127.0.0.1:" + port + "\"\n[slot\n", "toml"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, args := range [][]string{{"healthcheck"}, {"healthcheck", "--ready"}} {
				code, stdout, stderr := command(t, c.file, args...)
				require.Equal(t, exit.OK, code, stderr)
				require.Empty(t, stdout)
				require.Contains(t, stderr, "postrider: warning: configuration: ")
				require.Contains(t, stderr, c.want)
			}
		})
	}
	gone := filepath.Join(t.TempDir(), "gone.toml")
	for name, r := range map[string]result{
		"flag": execute(t, []string{"POSTRIDER_HTTP_LISTEN=127.0.0.1:1"}, "healthcheck", "--config", gone,
			"--http-listen", "127.0.0.1:"+port),
		"environment": execute(t, []string{"POSTRIDER_HTTP_LISTEN=127.0.0.1:" + port}, "healthcheck",
			"--config", gone),
	} {
		require.Equal(t, exit.OK, r.code, "%s: %s", name, r.stderr)
		require.Contains(t, r.stderr, "no such file")
	}
	code, _, stderr := command(t, "[http]\nlisten = \"127.0.0.1:1\"\n[slot]\nnmae = \"orders\"\n",
		"healthcheck")
	require.Equal(t, exit.Runtime, code, "nothing answers")
	require.Contains(t, stderr, "slot.nmae: unknown key")
	require.Contains(t, stderr, "connection refused")
}

func TestHealthcheck_FailsWithOne(t *testing.T) {
	nobody := parts.Nobody(t)
	hung := serveHTTP(t, "127.0.0.1:0",
		httpserver.Handlers{Live: func() error {
			return errors.New("loop has not turned for 1m0s")
		}, Ready: isReady})
	stranger := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(stranger.Close)
	release := make(chan struct{})
	mute := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(mute.Close)
	t.Cleanup(func() { close(release) })

	for _, c := range []struct{ name, listen, timeout, want string }{
		{"nobody listens", nobody, "20s", "connection refused"},
		{"not alive", "127.0.0.1:" + hung, "20s", "loop has not turned"},
		{"somebody else listens", strings.TrimPrefix(stranger.URL, "http://"), "20s",
			"is it postrider"},
		{"no answer", strings.TrimPrefix(mute.URL, "http://"), "200ms", "deadline"},
		{"no server configured", "", "20s", "http.listen is empty"},
		{"a wrong address", "nonsense", "20s", "http.listen"},
	} {
		t.Run(c.name, func(t *testing.T) {
			began := time.Now()
			code, stdout, stderr := command(t, "[http]\nlisten = \""+c.listen+"\"\n",
				"healthcheck", "--timeout", c.timeout)
			require.Equal(t, exit.Runtime, code)
			require.Empty(t, stdout)
			require.Contains(t, stderr, c.want)
			require.Less(t, time.Since(began), 20*time.Second)
		})
	}
}
