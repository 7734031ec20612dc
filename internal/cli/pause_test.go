package cli

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/daemon"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/httpserver"
	"github.com/postrider/postrider/internal/secret"
	"github.com/postrider/postrider/internal/status"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/test/parts"
)

const pauseToken = "canary-of-the-admin-token"

// serveAdmin runs an admin listener until the test ends and returns a configuration that leads to
// it.
func serveAdmin(t *testing.T, h httpserver.AdminHandlers) (configuration string) {
	t.Helper()
	h.Log = zerolog.Nop()
	s := httpserver.NewAdmin(httpserver.Admin{Listen: "127.0.0.1:0", Token: secret.Of(pauseToken)},
		h)
	require.NoError(t, s.Listen())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	return adminFile(t, s.Addr().String(), pauseToken)
}

func adminFile(t *testing.T, listen, token string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte(token+"\n"), 0o600))
	return "[admin]\nlisten = \"" + listen + "\"\ntoken_file = \"" + file + "\"\n"
}

// state is what GET /state says of a relay.
func state(phase relay.Phase, p relay.Pause) any {
	return daemon.StateDump{Status: status.Report{Source: status.SourceDaemon,
		Relay: relay.State{Phase: phase, Since: time.Now(), Paused: p}}}
}

func TestPause_ReturnsWhenTheSlotIsFree(t *testing.T) {
	since := time.Now()
	var asked struct {
		limit  time.Duration
		reason string
	}
	var looks atomic.Int32
	p := relay.Pause{Since: since, Until: since.Add(10 * time.Minute)}
	file := serveAdmin(t, httpserver.AdminHandlers{
		Pause: func(limit time.Duration, reason string) (any, error) {
			asked.limit, asked.reason = limit, reason
			return status.AdminAnswer{Phase: relay.Streaming, Paused: p}, nil
		},
		State: func() any {
			if looks.Add(1) < 3 {
				return state(relay.Draining, p)
			}
			return state(relay.Paused, p)
		},
	})
	code, stdout, stderr := command(t, file, "pause", "--for", "10m", "--reason", "new brokers")
	require.Equal(t, exit.OK, code, stderr)
	require.Regexp(t,
		`^paused until ..:..:.., for (10m0s|9m\d+s); PostgreSQL keeps WAL for the slot meanwhile\nnext: postrider resume\n$`, stdout)
	require.Equal(t, 10*time.Minute, asked.limit)
	require.Equal(t, "new brokers", asked.reason)
	require.Equal(t, int32(3), looks.Load())

	code, stdout, _ = command(t, file, "pause", "--json")
	require.Equal(t, exit.OK, code)
	var answer status.AdminAnswer
	require.NoError(t, json.Unmarshal([]byte(stdout), &answer))
	require.Equal(t, relay.Paused, answer.Phase)
	require.Equal(t, time.Hour, asked.limit, "a pause that is forgotten ends")
	code, _, _ = command(t, file, "pause", "--for", "0")
	require.Equal(t, exit.OK, code)
	require.Zero(t, asked.limit)
}

func TestPause_SaysThatItWasTakenBack(t *testing.T) {
	file := serveAdmin(t, httpserver.AdminHandlers{
		Pause: func(time.Duration, string) (any, error) {
			return status.AdminAnswer{Phase: relay.Draining,
				Paused: relay.Pause{Since: time.Now()}}, nil
		},
		State: func() any { return state(relay.Starting, relay.Pause{}) },
	})
	code, stdout, stderr := command(t, file, "pause")
	require.Equal(t, exit.OK, code, stderr)
	require.Equal(t, "the relay was resumed meanwhile: it is starting\n", stdout)
}

func TestResume_SaysWhetherThereWasAPause(t *testing.T) {
	was := true
	file := serveAdmin(t,
		httpserver.AdminHandlers{Resume: func() any {
			return status.AdminAnswer{Phase: relay.Streaming, WasPaused: was}
		}})
	code, stdout, stderr := command(t, file, "resume")
	require.Equal(t, exit.OK, code, stderr)
	require.Equal(t, "resumed\n", stdout)
	was = false
	_, stdout, _ = command(t, file, "resume")
	require.Equal(t, "the relay was not paused: it is streaming\n", stdout)
	_, stdout, _ = command(t, file, "resume", "--json")
	require.JSONEq(t, `{"phase": "streaming"}`, stdout)
}

func TestPause_ExitsWithWhatIsWrong(t *testing.T) {
	refusing := serveAdmin(t,
		httpserver.AdminHandlers{Pause: func(time.Duration, string) (any, error) {
			return nil, relay.ErrStopping
		}})
	other := &http.Server{Handler: http.NotFoundHandler()}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() {
		if err := other.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			panic(err)
		}
	}()
	defer other.Close()
	for name, c := range map[string]struct {
		file string
		args []string
		code int
		says string
	}{
		"stopping": {refusing, nil, exit.Temporary,
			"the relay refused: the relay is stopping"},
		"wrong token": {refusing, []string{"--set", "admin.token_file=" + tokenFile(t, "wrong")},
			exit.Permission, "admin.token_file that the relay has"},
		"no token file": {refusing, []string{"--set", "admin.token_file=/nowhere"},
			exit.Permission, "admin.token_file: read secret"},
		"negative":    {refusing, []string{"--for", "-1s"}, exit.Usage, "for is"},
		"no listener": {"", nil, exit.Config, "admin.listen is empty"},
		"any port":    {adminFile(t, "127.0.0.1:0", "x"), nil, exit.Config, "has port 0"},
		"nobody": {adminFile(t, parts.Nobody(t), "x"), nil, exit.Unavailable,
			"query the relay"},
		"somebody else": {adminFile(t, listener.Addr().String(), "x"), nil, exit.Runtime,
			"is it postrider that listens there?"},
		"no token": {"[admin]\nlisten = \"127.0.0.1:1\"\n", nil, exit.Config,
			"admin.token is not set"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := command(t, c.file, append([]string{"pause"}, c.args...)...)
			require.Equal(t, c.code, code, stderr)
			require.Empty(t, stdout)
			require.Contains(t, stderr, c.says)
			require.NotContains(t, stderr, "canary")
		})
	}
}

func tokenFile(t *testing.T, token string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte(token), 0o600))
	return file
}
