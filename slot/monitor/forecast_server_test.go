package monitor

import (
	"context"
	"flag"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/test/parts"
)

// measured turns the quick test into the measurement of docs/decisions/0013-forecast-of-loss.md, which takes 3 to 12 minutes for each server:
//
//	go test ./slot/monitor -run TestForecast_OnRealServers -v -timeout 1h -forecast 17:inserts:1.5,18:messages:4
var measured = flag.String("forecast", "", "version:inserts|messages:megabytes a second[:setting=value...], or several with commas: measure the forecast with default settings")

// endangered is a server whose slot no session reads from.
type endangered struct {
	name    string
	version string
	load    string            // inserts or messages
	rate    float64           // bytes of WAL per second
	params  map[string]string // of the server
	every   time.Duration     // between two forecasts
	watched time.Duration     // before the first forecast
	byWAL   bool              // the slot is lost when so much WAL was written, whatever time that takes
	want    []string          // wal_status in this order; nil: any
}

// quickServer is a server that has a checkpoint for each segment of WAL, or each half a minute.
func quickServer(name, load string, rate float64, params map[string]string, want ...string) endangered {
	return endangered{name: name, version: name[:2], load: load, rate: rate, params: params, want: want, every: time.Second, watched: 3 * time.Second}
}

// measuredServers have the settings that PostgreSQL comes with, but for the limit.
func measuredServers(t *testing.T) []endangered {
	var servers []endangered
	for _, text := range strings.Split(*measured, ",") {
		part := strings.Split(text, ":")
		require.GreaterOrEqual(t, len(part), 3, "-forecast %s", *measured)
		rate, err := strconv.ParseFloat(part[2], 64)
		require.NoError(t, err, "-forecast %s", *measured)
		s := endangered{name: text, version: part[0], load: part[1], rate: rate * 1e6, every: DefaultConfig().Interval, watched: shortestSpan, params: map[string]string{
			"max_slot_wal_keep_size": "256MB", "full_page_writes": "on", "fsync": "on", "shared_buffers": "128MB",
		}}
		for _, setting := range part[3:] {
			name, value, _ := strings.Cut(setting, "=")
			s.params[name] = value
		}
		servers = append(servers, s)
	}
	return servers
}

// A slot that no session reads from is lost when the forecast says, on servers that lose theirs in each of the ways.
func TestForecast_OnRealServers(t *testing.T) {
	t.Parallel()
	var servers []endangered
	for _, version := range []string{"14", "16", "17", "18"} {
		e := quickServer(version+" by WAL", "inserts", 5e6, map[string]string{"max_slot_wal_keep_size": "64MB", "max_wal_size": "32MB"}, "reserved", "extended", "unreserved", "lost")
		e.byWAL = true
		servers = append(servers, e)
	}
	if *measured != "" {
		servers = measuredServers(t)
	}
	for _, e := range servers {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			runEndangered(t, e)
		})
	}
}

// The checkpoints of these two are half a minute apart, which is the least that a server allows. They are tests of their own so that
// others run meanwhile.
func TestForecast_OnARealServerByTime(t *testing.T) {
	t.Parallel()
	runEndangered(t, quickServer("17 by time", "messages", 6e6, map[string]string{"max_slot_wal_keep_size": "64MB", "checkpoint_timeout": "30s"}, "reserved", "unreserved", "lost"))
}

func TestForecast_OnARealServerByIdleness(t *testing.T) {
	t.Parallel()
	runEndangered(t, quickServer("18 by idleness", "messages", 1e6, map[string]string{"idle_replication_slot_timeout": "10s", "checkpoint_timeout": "30s"}, "reserved", "lost"))
}

// guess is a forecast that is held against what came.
type guess struct {
	at   time.Time
	wal  pglogrepl.LSN // written by then
	rate float64       // bytes a second, as it was believed then
	lost bool          // the slot was lost already: nothing is left to forecast
	Estimate
}

// left is how long it was until the loss. Where that is a matter of WAL the writer is the clock: a machine that is busy with other things stops it for
// a while, or lets it catch up, and no forecast knows of that.
func (g guess) left(e endangered, lost time.Time, wal pglogrepl.LSN) float64 {
	if e.byWAL && g.rate > 0 {
		return float64(wal-g.wal) / g.rate
	}
	return lost.Sub(g.at).Seconds()
}

// faster is by how much the writer was faster after the forecast than was believed then: on a busy machine it starves, and catches up.
func (g guess) faster(e endangered, lost time.Time, wal pglogrepl.LSN) float64 {
	if e.byWAL || g.rate <= 0 || e.params["max_slot_wal_keep_size"] == "" {
		return 1
	}
	return float64(wal-g.wal) / lost.Sub(g.at).Seconds() / g.rate
}

func runEndangered(t *testing.T, e endangered) {
	params := map[string]string{"full_page_writes": "on"}
	maps.Copy(params, e.params)
	server := parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: e.version, Params: params})
	conn := parts.Connect(t, server.DSN())
	_, err := conn.Exec(t.Context(), `CREATE TABLE outbox (id bigserial PRIMARY KEY, payload text)`)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), `SELECT pg_create_logical_replication_slot('forgotten', 'pgoutput')`)
	require.NoError(t, err)
	writeSteadily(t, server.DSN(), e)

	w := newOnlooker(conn, e.watched)
	var guesses []guess
	var statuses []string
	poll := time.NewTicker(min(e.every/10, 250*time.Millisecond))
	defer poll.Stop()
	for {
		s, err := slot.Get(t.Context(), conn, "forgotten")
		require.NoError(t, err)
		if s.Lost() && s.WALStatus != "lost" {
			<-poll.C // the checkpointer holds the slot for as long as it takes to give it up, and what is held shows as unreserved
			continue
		}
		if len(statuses) == 0 || statuses[len(statuses)-1] != s.WALStatus {
			statuses = append(statuses, s.WALStatus)
		}
		if s.Lost() {
			break
		}
		if n := len(guesses); n == 0 || s.ObservedAt.Sub(guesses[n-1].at) >= e.every {
			if g := w.look(t); !g.lost { // it can be lost between the status above and this look
				guesses = append(guesses, g)
			}
		}
		<-poll.C
	}
	lost, began := time.Now(), guesses[0].at
	var text string
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT pg_current_wal_lsn()::text").Scan(&text))
	wal, err := pglogrepl.ParseLSN(text)
	require.NoError(t, err)
	t.Logf("lost %.0f s after the first look, by way of %s", lost.Sub(began).Seconds(), strings.Join(statuses, ", "))
	if e.want != nil { // a status can be over between two looks, but none comes out of turn
		require.Equal(t, e.want[0], statuses[0])
		require.Equal(t, "lost", statuses[len(statuses)-1])
		rest := e.want
		for _, s := range statuses {
			at := slices.Index(rest, s)
			require.GreaterOrEqual(t, at, 0, "%s in %v", s, statuses)
			rest = rest[at+1:]
		}
	}
	if *measured != "" {
		t.Logf("RESULT %s: lost after %.0f s; %.1f %% off 5 minutes ahead, %.1f %% at 30 %% left", e.name,
			lost.Sub(began).Seconds(), offAt(guesses, lost, 300), offAt(guesses, lost, 0.3*lost.Sub(began).Seconds()))
	}
	known := 0
	for _, g := range guesses {
		left, faster := g.left(e, lost, wal), g.faster(e, lost, wal)
		if g.Seconds == nil {
			t.Logf("%5.0f s left: %s", left, g.Assumption)
			continue
		}
		known++
		t.Logf("%5.0f s left, forecast %5.0f, off by %4.0f %%, from %.0f to %.0f, the writer %.2f times as fast: %s", left, *g.Seconds, 100*math.Abs(*g.Seconds-left)/left, *g.Earliest, *g.Latest, faster, g.Assumption)
		require.LessOrEqual(t, 0.8**g.Earliest/max(1, faster), left, g.Assumption)
		require.GreaterOrEqual(t, *g.Latest/min(1, faster), left, g.Assumption)
	}
	require.Positive(t, known, "the slot was lost before there was a forecast")
}

// offAt is the error in per cent of the last forecast that was made at least so many seconds before the loss; not a number: there was none.
func offAt(guesses []guess, lost time.Time, seconds float64) float64 {
	off := math.NaN()
	for _, g := range guesses {
		if left := lost.Sub(g.at).Seconds(); left >= seconds && g.Seconds != nil {
			off = 100 * (*g.Seconds - left) / left
		}
	}
	return off
}

// writeSteadily writes WAL at the rate in the background until the test ends, in small transactions.
func writeSteadily(t *testing.T, dsn string, e endangered) {
	sql := map[string]string{
		"messages": `SELECT pg_logical_emit_message(false, 'forecast', repeat('x', 4000))::text`,
		"inserts": `WITH inserted AS (INSERT INTO outbox (payload) SELECT repeat(md5(random()::text), 30) FROM generate_series(1, 16))
			SELECT pg_current_wal_insert_lsn()::text`,
	}[e.load]
	require.NotEmpty(t, sql, "load %q", e.load)
	conn := parts.Connect(t, dsn)
	_, err := conn.Exec(t.Context(), `SET synchronous_commit = off`) // or the disk sets the pace
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- writePaced(ctx, conn, sql, e.rate) }()
	t.Cleanup(func() {
		stop()
		require.ErrorIs(t, <-done, context.Canceled)
	})
}

// writePaced is the writer's goroutine; it ends with ctx. What a busy machine keeps it from writing it makes up for within a second or not
// at all, so that the rate is steady and never much higher.
func writePaced(ctx context.Context, conn *pgx.Conn, sql string, rate float64) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	var last pglogrepl.LSN
	ahead, at := 0.0, time.Now() // bytes that were written early
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		now := time.Now()
		ahead = max(-rate, ahead-rate*now.Sub(at).Seconds())
		at = now
		for ahead < 0 {
			var text string
			if err := conn.QueryRow(ctx, sql).Scan(&text); err != nil {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				return err
			}
			lsn, err := pglogrepl.ParseLSN(text)
			if err != nil {
				return err
			}
			if last != 0 {
				ahead += float64(lsn - last)
			}
			last = lsn
		}
	}
}

// onlooker is a monitor that looks when it is told to.
type onlooker struct {
	*Monitor
	conn   *pgx.Conn
	window time.Duration // before rates are believed; less than the monitor's own half minute on a server that loses its slot sooner
	first  reading
}

func newOnlooker(conn *pgx.Conn, window time.Duration) *onlooker {
	return &onlooker{Monitor: &Monitor{need: slot.Requirements{Slot: slot.Config{Name: "forgotten"}}, cfg: DefaultConfig()}, conn: conn, window: window}
}

func (w *onlooker) look(t *testing.T) guess {
	t.Helper()
	s, err := w.observe(t.Context(), w.conn)
	require.NoError(t, err)
	o := w.Observation()
	o.Slot = s
	last := w.readings[len(w.readings)-1]
	if w.first.at.IsZero() {
		w.first = last
	}
	if passed := last.at.Sub(w.first.at); w.window < shortestSpan && passed >= w.window {
		o.Rates.WAL5m = new(float64(last.wal-w.first.wal) / passed.Seconds())
		o.Rates.Pages5m = new(float64(*last.pages-*w.first.pages) / passed.Seconds())
		o.Forecast = forecast(o)
	}
	g := guess{at: last.at, wal: s.CurrentWALLSN, lost: s.Lost(), Estimate: o.Forecast.Loss}
	if o.Rates.WAL5m != nil {
		g.rate = *o.Rates.WAL5m
	}
	return g
}
