package faults

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/test/parts"
)

var zooFor = flag.Duration("zoo", 0, "how long each course of TestZoo runs; 0: 40 s, and 30 minutes with -long")

func courseTime() time.Duration {
	if *zooFor > 0 {
		return *zooFor
	}
	if *long {
		return 30 * time.Minute
	}
	return 40 * time.Second
}

// course is a server under load. Seconds are those since its beginning.
type course struct {
	rate   func(second float64) float64 // events per second
	beside func(ctx context.Context, z *zoo, second int)
	params map[string]string // of the server

	version string // of the server in the short form; empty: none
	limit   string // the only one; empty: all in turn
}

func steady(perSecond float64) func(float64) float64 {
	return func(float64) float64 { return perSecond }
}

// The courses in which nothing is wrong. Short transactions of others run beside all of them.
var courses = map[string]course{
	"everything at once": {
		rate: func(s float64) float64 { return 500 + 4000*math.Max(0, math.Sin(s/5)) }, version: "18",
		beside: func(ctx context.Context, z *zoo, s int) { z.copies(ctx, s, 10, 50_000); z.vacuums(ctx, s, 15) },
		params: map[string]string{"max_wal_size": "64MB", "checkpoint_timeout": "30s"},
	},
	"steady":                     {rate: steady(3000), version: "14", params: map[string]string{"max_wal_size": "1GB"}},
	"ramp":                       {rate: func(s float64) float64 { return math.Min(10_000, s*10_000/courseTime().Seconds()) }},
	"steps":                      {rate: func(s float64) float64 { return []float64{0, 500, 8000, 100}[int(s/30)%4] }},
	"bursts":                     {rate: func(s float64) float64 { return map[bool]float64{true: 10_000, false: 50}[int(s)%60 < 10] }},
	"bulk copy of another table": {rate: steady(500), beside: func(ctx context.Context, z *zoo, s int) { z.copies(ctx, s, 600, 20_000_000) }},
	"bulk copy in one transaction": { // of 5 GB: below that it is a danger
		rate: steady(500), beside: func(ctx context.Context, z *zoo, s int) { z.copiesAtOnce(ctx, s, 600, 20_000_000) }, limit: "50GB",
	},
	"VACUUM FULL":                 {rate: steady(500), beside: func(ctx context.Context, z *zoo, s int) { z.vacuums(ctx, s, 60) }},
	"a checkpoint every 30 s":     {rate: steady(3000), params: map[string]string{"checkpoint_timeout": "30s"}},
	"checkpoints by max_wal_size": {rate: steady(5000), params: map[string]string{"max_wal_size": "64MB"}},
}

// zoo is a relay on a server of its own, and how long each condition held.
type zoo struct {
	*rig
	t      *testing.T
	server *embedded.Postgres
	relay  *process
	second *process     // stands by; nil in most courses
	proxy  *parts.Proxy // between relay and server
	wg     sync.WaitGroup

	held map[string]time.Duration
	said map[string]string // reason of each, as first seen
}

func newZoo(t *testing.T, version, limit string, params map[string]string, broker *parts.Broker) *zoo {
	all := map[string]string{"max_slot_wal_keep_size": limit, "max_prepared_transactions": "5"}
	maps.Copy(all, params)
	server := parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: version, Params: all})
	z := &zoo{t: t, server: server, held: map[string]time.Duration{}, said: map[string]string{}}
	z.rig = newRig(t, fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", server.Port()), broker)
	execute(t, z.dsn, "CREATE TABLE other (id bigint, payload text); CREATE TABLE short (id bigint)")
	if version >= "17" { // so that synchronized_standby_slots counts for it
		execute(t, z.dsn, "SELECT pg_drop_replication_slot('"+z.slot+"')")
		execute(t, z.dsn, "SELECT pg_create_logical_replication_slot('"+z.slot+"', 'pgoutput', failover => true)")
		z.settings["slot.failover"] = "true"
	}
	z.settings["relay.in_flight_messages"] = "10000"
	z.settings["admin.listen"], z.settings["admin.token"] = quote("127.0.0.1:0"), quote(zooToken)
	z.proxy = z.through(t)
	z.relay = z.started(t)
	return z
}

const zooToken = "a token of the zoo"

var adminListening = regexp.MustCompile(`"listen":"([0-9.:]+)"[^\n]*"message":"admin listener started"`)

// asks has the relay do what its operator asks for: pause or resume.
func (z *zoo) asks(what string) {
	found := adminListening.FindStringSubmatch(z.relay.Log.String())
	require.NotNil(z.t, found)
	ask, err := http.NewRequestWithContext(z.t.Context(), http.MethodPost, "http://"+found[1]+"/"+what, nil)
	require.NoError(z.t, err)
	ask.Header.Set("Authorization", "Bearer "+zooToken)
	answer, err := z.relay.http.Do(ask)
	require.NoError(z.t, err)
	defer answer.Body.Close()
	require.Equal(z.t, http.StatusOK, answer.StatusCode)
}

// copies fills another table every so many seconds, as tools for it do: a transaction for each 100,000 rows, which are 30 MB of WAL.
func (z *zoo) copies(ctx context.Context, second, every, rows int) {
	if second%every == min(10, every/2) {
		z.background(ctx, "TRUNCATE other", fmt.Sprintf(`DO $$ BEGIN FOR i IN 1..%d LOOP
			INSERT INTO other SELECT n, repeat('x', 250) FROM generate_series(1, 100000) n; COMMIT; END LOOP; END $$`, (rows+99_999)/100_000))
	}
}

func (z *zoo) copiesAtOnce(ctx context.Context, second, every, rows int) {
	if second%every == min(10, every/2) {
		z.background(ctx, "TRUNCATE other", fmt.Sprintf("INSERT INTO other SELECT n, repeat('x', 250) FROM generate_series(1, %d) n", rows))
	}
}

func (z *zoo) vacuums(ctx context.Context, second, every int) {
	if second%every == every-1 {
		z.background(ctx, "VACUUM FULL other")
	}
}

func (z *zoo) background(ctx context.Context, statements ...string) {
	z.wg.Go(func() {
		conn, err := pgx.Connect(ctx, z.dsn)
		if err == nil {
			defer conn.Close(context.Background())
		}
		for _, sql := range statements {
			if err == nil {
				_, err = conn.Exec(ctx, sql)
			}
		}
		if err != nil && ctx.Err() == nil {
			z.t.Errorf("%s: %v", statements, err)
		}
	})
}

// transactions of others that stay open for 20 s, each begun in the middle of the one before.
func (z *zoo) transactions(ctx context.Context) {
	for i := range 2 {
		z.wg.Go(func() {
			conn, err := pgx.Connect(ctx, z.dsn)
			if err != nil {
				z.t.Error(err)
				return
			}
			defer conn.Close(context.Background())
			for wait := time.Duration(i) * 10 * time.Second; ; wait = 0 {
				if !pause(ctx, wait) {
					return
				}
				if _, err := conn.Exec(ctx, "BEGIN; INSERT INTO short VALUES (1)"); err != nil && ctx.Err() == nil {
					z.t.Error(err)
				}
				if !pause(ctx, 20*time.Second) {
					return
				}
				if _, err := conn.Exec(ctx, "COMMIT"); err != nil && ctx.Err() == nil {
					z.t.Error(err)
				}
			}
		})
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// writes commits events at a rate, ten transactions a second.
func (z *zoo) writes(ctx context.Context, rate func(float64) float64) {
	z.wg.Go(func() {
		conn, err := pgx.Connect(ctx, z.dsn)
		if err != nil {
			z.t.Error(err)
			return
		}
		defer conn.Close(context.Background())
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for began := time.Now(); ; {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			_, err := conn.Exec(ctx, `INSERT INTO outbox (aggregate_type, aggregate_id, payload, number)
				SELECT $1, (n % 100)::text, jsonb_build_object('pad', repeat('x', 200)), n FROM generate_series(1, $2::int) n`,
				z.topic, int(rate(time.Since(began).Seconds())/10))
			if err != nil && ctx.Err() == nil {
				z.t.Error(err)
				return
			}
		}
	})
}

func (z *zoo) verdict() (v health.Verdict, err error) {
	body, _ := z.relay.get("/api/verdict")
	if err := json.Unmarshal(body, &v); err != nil {
		return v, fmt.Errorf("verdict: %w in %q", err, body)
	}
	return v, nil
}

// looks asks the relay for its verdict each second, until done says so or the time is over. It reports whether done did, and after how long.
func (z *zoo) looks(d time.Duration, each func(second int), done func(health.Verdict) bool) (time.Duration, bool) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	began := time.Now()
	for second := 0; time.Since(began) < d; second++ {
		<-tick.C
		if each != nil {
			each(second)
		}
		v, err := z.verdict()
		if err != nil {
			z.t.Error(err)
			return time.Since(began), false
		}
		for _, c := range v.Conditions {
			name := string(c.Severity) + " " + c.Name
			z.held[name] += time.Second
			if z.said[name] == "" {
				z.said[name] = c.Reason
			}
		}
		if done != nil && done(v) {
			return time.Since(began), true
		}
	}
	return d, false
}

// table is how long each condition held, the longest first.
func (z *zoo) table() string {
	var b strings.Builder
	for _, name := range slices.SortedFunc(maps.Keys(z.held), func(a, b string) int { return int(z.held[b] - z.held[a]) }) {
		fmt.Fprintf(&b, "\n  %6.0f s  %s: %s", z.held[name].Seconds(), name, z.said[name])
	}
	if b.Len() == 0 {
		return " no condition"
	}
	return b.String()
}

// A relay that keeps up has nothing to report, whatever the server does beside it. The full form runs every course on each version, with the limits in turn.
func TestZoo_NothingIsReportedWhileAllIsWell(t *testing.T) {
	t.Parallel()
	limits := []string{"512MB", "4GB", "50GB", "-1"}
	versions := []string{"14", "16", "17", "18"}
	for at, name := range slices.Sorted(maps.Keys(courses)) {
		c := courses[name]
		for i, version := range versions {
			if !*long && version != c.version {
				continue
			}
			limit := limits[0]
			if *long {
				limit = limits[(at+i)%len(limits)]
			}
			if c.limit != "" {
				limit = c.limit
			}
			t.Run(name+"/"+version+"/"+limit, func(t *testing.T) {
				t.Parallel()
				z := newZoo(t, version, limit, c.params, parts.RealKafka(t))
				ctx, cancel := context.WithCancel(t.Context())
				defer z.wg.Wait()
				defer cancel()
				z.transactions(ctx)
				z.writes(ctx, c.rate)
				z.looks(courseTime(), func(second int) {
					if c.beside != nil {
						c.beside(ctx, z, second)
					}
				}, nil)
				t.Logf("%s on %s with a limit of %s for %s:%s", name, version, limit, courseTime(), z.table())
				for condition := range z.held {
					require.True(t, strings.HasPrefix(condition, string(health.Info)+" "), "%s", z.table())
				}
			})
		}
	}
}

// danger is something that ends in the loss of the slot, and what the relay has to say of it.
type danger struct {
	since  string                                    // version that has it first; empty: all
	begin  func(z *zoo, rate float64) (named string) // part of the culprit or the reason
	within time.Duration
	short  string // version of the short form; empty: none
}

var dangers = map[string]danger{
	"a transaction holds": {short: "18", within: time.Minute, begin: func(z *zoo, _ float64) string {
		conn := parts.Connect(z.t, z.dsn)
		_, err := conn.Exec(z.t.Context(), "BEGIN; INSERT INTO short VALUES (1)")
		require.NoError(z.t, err)
		return fmt.Sprintf("transaction of pid %d", conn.PgConn().PID())
	}},
	"a prepared transaction holds": {short: "14", within: time.Minute, begin: func(z *zoo, _ float64) string {
		execute(z.t, z.dsn, "BEGIN; INSERT INTO short VALUES (1); PREPARE TRANSACTION 'left behind'")
		z.t.Cleanup(func() {
			conn, err := pgx.Connect(context.Background(), z.dsn)
			require.NoError(z.t, err)
			defer conn.Close(context.Background())
			_, err = conn.Exec(context.Background(), "ROLLBACK PREPARED 'left behind'")
			require.NoError(z.t, err)
		})
		return "left behind"
	}},
	"the broker takes nothing": {within: time.Minute, begin: func(z *zoo, _ float64) string {
		z.broker.Pause(z.t)
		return "kafka at"
	}},
	"a standby holds": {short: "17", since: "17", within: time.Minute, begin: func(z *zoo, _ float64) string {
		execute(z.t, z.dsn, "SELECT pg_create_physical_replication_slot('"+z.slot+"_standby', true)")
		execute(z.t, z.dsn, "ALTER SYSTEM SET synchronized_standby_slots = '"+z.slot+"_standby'")
		execute(z.t, z.dsn, "SELECT pg_reload_conf()")
		return z.slot + "_standby"
	}},
	"the reader has half the pace": {within: 2 * time.Minute, begin: func(z *zoo, rate float64) string {
		z.proxy.Pace(int(rate * 1e6 * rowSent / rowWAL / 2))
		return "are confirmed"
	}},
	// A statement at work may end at any moment: its end is foreseen no further ahead than 8 times its age.
	"a bulk load in one transaction": {within: 2 * time.Minute, begin: func(z *zoo, rate float64) string {
		conn := parts.Connect(z.t, z.dsn)
		pid := conn.PgConn().PID()
		ended := make(chan struct{})
		z.t.Cleanup(func() { <-ended })
		go func() { // until the test's context ends
			defer close(ended)
			_, err := conn.Exec(z.t.Context(), fmt.Sprintf(`DO $$ BEGIN LOOP
				INSERT INTO other SELECT n, repeat('x', 250) FROM generate_series(1, %d) n; PERFORM pg_sleep(0.1); END LOOP; END $$`, int(rate*1e5/rowCopied)))
			if err != nil && z.t.Context().Err() == nil {
				z.t.Errorf("bulk load: %v", err)
			}
		}()
		return fmt.Sprintf("transaction of pid %d", pid)
	}},
	"nobody reads": {within: time.Minute, begin: func(z *zoo, _ float64) string {
		z.asks("pause")
		return "paused"
	}},
}

// Bytes that a row of writes takes of the WAL, and of the stream, and one of other of the WAL.
const rowWAL, rowSent, rowCopied = 700, 330, 320

// What ends in the loss of the slot is announced, and named, as soon as it can be known.
func TestZoo_DangerIsAnnounced(t *testing.T) {
	t.Parallel()
	for _, name := range slices.Sorted(maps.Keys(dangers)) {
		d := dangers[name]
		for _, version := range []string{"14", "16", "17", "18"} {
			for _, rate := range []float64{0.7, 4, 20} { // MB of WAL per second
				if version < d.since || !*long && (version != d.short || rate != 4) {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%g MB per second", name, version, rate), func(t *testing.T) {
					t.Parallel()
					broker := parts.RealKafka(t)
					if name == "the broker takes nothing" {
						broker = parts.ExclusiveKafka(t, parts.KafkaConfig{})
					}
					z := newZoo(t, version, "512MB", nil, broker)
					ctx, cancel := context.WithCancel(t.Context())
					defer z.wg.Wait()
					defer cancel()
					z.writes(ctx, steady(rate*1e6/rowWAL))
					z.looks(15*time.Second, nil, nil)
					require.NotContains(t, z.table(), string(health.Critical), "before anything is wrong")
					named := d.begin(z, rate)
					said := ""
					within := d.within
					if !*long { // how soon is measured on a machine that does nothing else
						within = max(within, parts.Patience)
					}
					after, announced := z.looks(within, nil, func(v health.Verdict) bool {
						for _, c := range v.Conditions {
							loss := c.Name == health.TimeToLoss || c.Name == health.SlotNearLoss
							if loss && c.Severity == health.Critical && strings.Contains(c.Cause+" "+c.Reason, named) {
								said = fmt.Sprintf("%s %s: %s (%s)", c.Severity, c.Name, c.Reason, c.Cause)
								return true
							}
						}
						return false
					})
					require.True(t, announced, "no loss because of %q is announced within %s:%s", named, within, z.table())
					t.Logf("%s on %s at %g MB/s: after %.0f s: %s", name, version, rate, after.Seconds(), said)
				})
			}
		}
	}
}
