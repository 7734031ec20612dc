package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/internal/httpserver"
	"github.com/postrider/postrider/internal/status"
	"github.com/postrider/postrider/internal/status/statustest"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/slot/monitor"
	"github.com/postrider/postrider/test/parts"
)

// serveStatus runs a daemon that answers with r, and returns a configuration that asks it.
func serveStatus(t *testing.T, r func() any) string {
	t.Helper()
	port := serveHTTP(t, "127.0.0.1:0",
		httpserver.Handlers{Live: healthy, Ready: isReady, Status: r})
	return "[http]\nlisten = \"127.0.0.1:" + port + "\"\n"
}

func TestStatus_ShowsWhatTheDaemonSays(t *testing.T) {
	file := serveStatus(t, func() any { return statustest.Well() })
	code, stdout, stderr := command(t, file, "status")
	require.Equal(t, exit.OK, code, stderr)
	require.Empty(t, stderr)
	require.True(t, strings.HasPrefix(stdout, "ok: streaming for 1h12m\n\n"), stdout)
	for _, line := range []string{
		"sink          kafka at kafka-1:9092, kafka-2:9092",
		"slot          postrider in database shop, active for process 4711 of the database",
		"wal_status    reserved, max_slot_wal_keep_size sets no limit",
		"server        0/2100",
		"received      0/2000   256 B behind",
		"acked         0/2000   256 B behind",
		"confirmed     0/1F00   512 B behind",
		"restart       0/1000   4.2 KiB kept",
	} {
		require.Contains(t, stdout, "\n"+line+"\n")
	}
}

func TestStatus_ShowsEveryCondition(t *testing.T) {
	file := serveStatus(t, func() any {
		r := statustest.Well()
		paused := statustest.Streaming(func(s *relay.State) {
			s.Phase, s.Paused = relay.Paused,
				relay.Pause{Since: statustest.Now.Add(-2 * time.Minute), Reason: "deploy"}
		})
		r.Judge(statustest.Now, paused,
			monitor.Observation{Slot: statustest.Observed(func(s *slot.Status) {
				s.LagBytes = new(int64(2 << 30))
			})}, health.StartError{}, health.DefaultConfig())
		return r
	})
	code, stdout, stderr := command(t, file, "status")
	require.Equal(t, exit.OK, code, stderr)
	require.True(t, strings.HasPrefix(stdout, `degraded: the relay has been paused for 2m0s, until it is resumed: deploy
  WAL:  4.2 KiB is kept for slot "postrider", more with every write, until rows are confirmed again
  next: postrider resume
  also: warning, PostriderBacklog: 2.0 GiB of WAL behind the server: the relay has been paused for 2m0s, until it is resumed: deploy
        next: postrider resume

`), stdout)
}

func TestStatus_PrintsTheReportAsJSON(t *testing.T) {
	file := serveStatus(t, func() any { return statustest.Well() })
	code, stdout, stderr := command(t, file, "status", "--json")
	require.Equal(t, exit.OK, code, stderr)
	var got status.Report
	require.NoError(t, json.Unmarshal([]byte(stdout), &got))
	require.Equal(t, statustest.Well(), got)
}

func TestStatus_ExitsWithTheVerdict(t *testing.T) {
	for state, want := range map[string]int{health.OK: exit.OK, health.Standby: exit.OK,
		health.Degraded: exit.OK, health.Failing: exit.Runtime} {
		r := statustest.Well()
		r.Verdict = health.Verdict{State: state, Reason: "because", WAL: "1 GiB is kept",
			Next: "postrider check"}
		file := serveStatus(t, func() any { return r })
		code, stdout, stderr := command(t, file, "status")
		require.Equal(t, want, code)
		require.Empty(t, stderr)
		require.True(t,
			strings.HasPrefix(stdout,
				state+": because\n  WAL:  1 GiB is kept\n  next: postrider check\n\n"), stdout)
	}
}

func TestStatus_AsksTheDatabaseWhenNoDaemonAnswers(t *testing.T) {
	pg, err := embedded.StartPostgres(t.Context(), embedded.PostgresConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pg.Close()) })
	stranger := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(stranger.Close)
	file := fmt.Sprintf("[postgres]\nurl = %q\n[slot]\nname = \"orders\"\n[http]\nlisten = %q\n",
		pg.DSN(), strings.TrimPrefix(stranger.URL, "http://"))

	code, stdout, stderr := command(t, file, "status")
	require.Equal(t, exit.Runtime, code, stderr)
	require.Contains(t, stdout,
		`failing: no relay is running, and none could stream: table public.outbox does not exist`)
	require.Contains(t, stdout, "  WAL:  there is no slot")
	require.Contains(t, stdout, "next: postrider init")

	conn, err := pgx.Connect(t.Context(), pg.DSN())
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(),
		"CREATE TABLE outbox (id int); CREATE PUBLICATION postrider FOR TABLE outbox")
	require.NoError(t, err)
	_, stdout, _ = command(t, file, "status")
	require.Contains(t, stdout, `failing: no relay is running, and slot "orders" does not exist`)
	require.Contains(t, stdout, "next: postrider run")

	_, err = conn.Exec(t.Context(),
		"SELECT pg_create_logical_replication_slot('orders', 'pgoutput')")
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))

	code, stdout, stderr = command(t, file, "status")
	require.Equal(t, exit.Runtime, code, stderr)
	require.Contains(t, stdout, "failing: no relay is running\n")
	require.Contains(t, stdout, "no answer: what follows comes from the database")
	require.Contains(t, stdout, "is it postrider that listens there?")
	require.Regexp(t, `\nslot +orders in database \w+, inactive\n`, stdout)
	require.Regexp(t, `\nconfirmed +[0-9A-F]+/[0-9A-F]+ +[0-9.]+ [KM]?i?B behind\n`, stdout)

	code, stdout, _ = command(t, file, "status", "--json")
	require.Equal(t, exit.Runtime, code)
	var got status.Report
	require.NoError(t, json.Unmarshal([]byte(stdout), &got))
	require.Equal(t, status.SourceDatabase, got.Source)
	require.Equal(t, relay.State{}, got.Relay)
	require.Equal(t, "orders", got.Slot.Name)
	require.NotEmpty(t, got.DaemonError)

	other := serveStatus(t, func() any { return statustest.Well() })
	code, stdout, _ = command(t, fmt.Sprintf("[postgres]\nurl = %q\n", pg.DSN())+other,
		"status", "--json", "--slot-name", "orders")
	require.Equal(t, exit.Runtime, code)
	got = status.Report{}
	require.NoError(t, json.Unmarshal([]byte(stdout), &got))
	require.Equal(t, status.SourceDatabase, got.Source)
	require.Equal(t, "orders", got.Slot.Name)
	require.Contains(t, got.DaemonError, `the relay of slot "postrider" answers`)
}

func TestStatus_FailsWhenNobodyAnswers(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	nobody := strings.TrimPrefix(gone.URL, "http://")
	gone.Close()
	const password = "hunter2-canary"
	file := fmt.Sprintf("[postgres]\nurl = "+
		"\"postgres://relay:%s@%s/shop?sslmode=disable\"\n[http]\nlisten = %q\n", password, nobody,
		nobody)
	code, stdout, stderr := command(t, file, "status")
	require.Equal(t, exit.Unavailable, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "the relay does not answer, and the database cannot be queried")
	require.Contains(t, stderr, "query the relay: ")
	require.Contains(t, stderr, "query the database: ")
	require.Contains(t, stderr, "next: start the server")
	require.NotContains(t, stderr, password)
}

// What waits for a person is told from what comes back by itself.
func TestStatus_ExitsAsTheDatabaseRefuses(t *testing.T) {
	db := parts.Postgres(t, "17")
	stranger := strings.Replace(db.DSN(), "postgres://postgres", "postgres://stranger", 1)
	require.NotEqual(t, db.DSN(), stranger)
	for name, c := range map[string]struct {
		postgres string
		code     int
		next     string
	}{
		"a login that is refused":         {fmt.Sprintf("url = %q", stranger), exit.Permission, "user and password in postgres.url"},
		"a database that is not there":    {fmt.Sprintf("url = %q", strings.Replace(db.DSN(), "/"+db.Name, "/nothing", 1)), exit.Config, "postgres.url"},
		"a configuration that is no good": {`connect_timeout = "-1s"`, exit.Config, "postrider config validate"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := command(t, "[postgres]\n"+c.postgres+"\n[http]\nlisten = \"\"\n", "status")
			require.Equal(t, c.code, code, stderr)
			require.Empty(t, stdout)
			require.Contains(t, stderr, "the relay does not answer, and the database cannot be queried")
			_, next, found := strings.Cut(stderr, "next: ")
			require.True(t, found, stderr)
			require.Contains(t, next, c.next)
		})
	}
}

func TestStatus_DoesNotShowTheRelayOfAnotherSlot(t *testing.T) {
	file := "[postgres]\nurl = \"postgres://127.0.0.1:1/shop\"\n" +
		serveStatus(t, func() any { return statustest.Well() })
	code, stdout, stderr := command(t, file, "status", "--slot-name", "billing")
	require.Equal(t, exit.Unavailable, code, stdout)
	require.Empty(t, stdout)
	require.Regexp(t, `the relay of slot "postrider" answers at http.listen \(127.0.0.1:\d+\), and not `+
		`that of "billing"`, stderr)
	require.Contains(t, stderr, "query the database: ")

	file = "[postgres]\nurl = \"postgres://127.0.0.1:1/crm\"\n" +
		serveStatus(t, func() any { return statustest.Well() })
	code, stdout, stderr = command(t, file, "status")
	require.Equal(t, exit.Unavailable, code, stdout)
	require.Regexp(t, `the relay of slot "postrider" in another database \(shop\) answers at http.listen`,
		stderr)

	file = "[postgres]\nurl = \"postgres://127.0.0.1:1/shop\"\n" +
		serveStatus(t, func() any { return status.Report{Source: status.SourceDaemon} })
	code, _, stderr = command(t, file, "status", "--slot-name", "billing")
	require.Equal(t, exit.OK, code, "a relay that has named no slot: %s", stderr)
}

// cancelAfter ends a watch after so many lines.
type cancelAfter struct {
	bytes.Buffer
	lines  int
	cancel context.CancelFunc
}

func (c *cancelAfter) Write(p []byte) (int, error) {
	n, err := c.Buffer.Write(p)
	if bytes.Count(c.Bytes(), []byte("\n")) >= c.lines {
		c.cancel()
	}
	return n, err
}

func TestStatus_WatchWritesALineForEachRefresh(t *testing.T) {
	var asked atomic.Uint64
	port := serveHTTP(t, "127.0.0.1:0",
		httpserver.Handlers{Live: healthy, Ready: isReady, Status: func() any {
			r := statustest.Well()
			r.Relay.Published = asked.Add(1)
			return r
		}})
	l := &config.Loaded{Config: config.Default()}
	l.Config.HTTP.Listen = "127.0.0.1:" + port
	for _, asJSON := range []bool{false, true} {
		asked.Store(0)
		ctx, cancel := context.WithCancel(t.Context())
		out := &cancelAfter{lines: 3, cancel: cancel}
		a := &app{Process: Process{Stdout: out}, json: asJSON}
		require.NoError(t, a.watchStatus(ctx, l, time.Millisecond))
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		require.Len(t, lines, 3)
		for i, line := range lines {
			if asJSON {
				var r status.Report
				require.NoError(t, json.Unmarshal([]byte(line), &r))
				require.EqualValues(t, i+1, r.Relay.Published)
				continue
			}
			require.Contains(t, line,
				fmt.Sprintf(" ok phase=streaming published=%d in_flight=0 lag=\"512 B\" "+
					"retained=\"4.2 KiB\" streaming for", i+1))
		}
	}
}
