package relay_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/internal/metrics"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/memory"
	"github.com/postrider/postrider/test/parts"
)

func TestMain(m *testing.M) { parts.Main(m) }

const patience = parts.Patience

// setup is a relay between a real server and a broker in memory whose answers the test controls.
type setup struct {
	t      *testing.T
	ctx    context.Context
	db     *parts.Database
	conn   *pgx.Conn
	slot   string
	broker *memory.Broker
	cfg    relay.Config
	parts  relay.Parts
	pg     *pgconn.Config
	last   relay.Move // that the relay passed to Moved

	replication replication.Config
	router      router.Options
}

func newSetup(t *testing.T) *setup { return newSetupOn(t, parts.AnyVersion) }

func newSetupOn(t *testing.T, version string) *setup {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	db := parts.Postgres(t, version)
	x := &setup{replication: replication.DefaultConfig(), router: router.Options{Tables: []string{"public.outbox"}}, t: t, ctx: ctx, db: db, slot: parts.Unique("slot"), broker: memory.New(1), cfg: relay.DefaultConfig()}
	x.cfg.BackoffMin, x.cfg.BackoffMax = time.Millisecond, 10*time.Millisecond
	x.use(db.DSN())
	x.exec(outboxSQL)
	x.exec(`SELECT pg_create_logical_replication_slot('` + x.slot + `', 'pgoutput')`)
	x.parts = relay.Parts{
		Server: relay.Server{
			Prepare:    func(context.Context, bool) error { return nil },
			Watch:      func(ctx context.Context, _ func(error, time.Time)) { <-ctx.Done() },
			OpenStream: x.openStream,
		},
		Broker: relay.Broker{OpenSink: x.broker.Open},
		Rows: relay.Rows{Router: func() (*router.Router, error) {
			return router.New([]router.Config{router.DefaultConfig()}, router.DefaultFormat(), x.router)
		}},
		Metrics: metrics.New(prometheus.NewRegistry(), x.slot),
		Log:     zerolog.Nop(),
	}
	return x
}

const outboxSQL = `CREATE TABLE outbox (id bigint, aggregatetype text, aggregateid text, payload text);
	CREATE PUBLICATION postrider FOR TABLE outbox WITH (publish = 'insert')`

// use has the setup and its relays connect there.
func (x *setup) use(dsn string) {
	x.t.Helper()
	pg, err := pgconn.ParseConfig(dsn)
	require.NoError(x.t, err)
	pg.RuntimeParams["replication"] = "database"
	x.pg, x.conn = pg, parts.Connect(x.t, dsn)
}

func (x *setup) openStream(ctx context.Context) (*replication.Stream, error) {
	return replication.Open(ctx, x.pg, x.replication, x.slot, zerolog.Nop())
}

func (x *setup) exec(sql string, args ...any) {
	x.t.Helper()
	_, err := x.conn.Exec(x.ctx, sql, args...)
	require.NoError(x.t, err)
}

// insert commits rows first to last, in one transaction, and returns a position behind them and before its commit: between the commit and a look
// at the server's position others may write WAL, as the background writer does, which a relay that halts or stops need not have received.
func (x *setup) insert(first, last int) (written pglogrepl.LSN) {
	x.t.Helper()
	return x.lsn(`WITH written AS (INSERT INTO outbox SELECT n, 'Order', 'key', 'event ' || n FROM generate_series($1::int, $2::int) n RETURNING 1)
		SELECT pg_current_wal_insert_lsn()::text FROM (SELECT count(*) FROM written) AS all_of_them`, first, last)
}

func (x *setup) confirmed() pglogrepl.LSN {
	x.t.Helper()
	return x.lsn(`SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = '` + x.slot + `'`)
}

func (x *setup) current() pglogrepl.LSN {
	x.t.Helper()
	return x.lsn(`SELECT pg_current_wal_lsn()::text`)
}

func (x *setup) lsn(sql string, args ...any) pglogrepl.LSN {
	x.t.Helper()
	var text string
	require.NoError(x.t, x.conn.QueryRow(x.ctx, sql, args...).Scan(&text))
	lsn, err := pglogrepl.ParseLSN(text)
	require.NoError(x.t, err)
	return lsn
}

// running is a relay in Run.
type running struct {
	*relay.Relay
	x     *setup
	stop  context.CancelFunc
	kill  context.CancelFunc
	ended chan error
}

func (x *setup) run() *running {
	ctx, kill := context.WithCancel(x.ctx)
	stopping, stop := context.WithCancel(context.Background())
	r := &running{Relay: relay.New(x.cfg, x.parts), x: x, stop: stop, kill: kill, ended: make(chan error, 1)}
	go func() { r.ended <- r.Run(ctx, stopping) }()
	x.t.Cleanup(func() { stop(); kill() })
	return r
}

func (r *running) end() error {
	r.x.t.Helper()
	select {
	case err := <-r.ended:
		return err
	case <-r.x.ctx.Done():
		require.Fail(r.x.t, "the relay did not end")
		return nil
	}
}

func (r *running) waitPhase(p relay.Phase) {
	r.x.t.Helper()
	require.Eventually(r.x.t, func() bool { return r.State().Phase == p }, patience, time.Millisecond)
}

func (x *setup) payloads() (texts []string) {
	for _, m := range x.broker.Messages() {
		texts = append(texts, string(m.Value))
	}
	return texts
}

func events(first, last int) (texts []string) {
	for n := first; n <= last; n++ {
		texts = append(texts, fmt.Sprintf("event %d", n))
	}
	return texts
}

func TestRelay_StopDrainsConfirmsAndRepeatsNothing(t *testing.T) {
	x := newSetup(t)
	r := x.run()
	r.waitPhase(relay.Streaming)
	x.broker.Hold()
	written := x.insert(1, 50)
	end := x.current()
	require.NoError(t, x.broker.WaitPublished(x.ctx, 50))
	r.stop()
	r.waitPhase(relay.Draining)
	require.Less(t, x.confirmed(), end, "nothing is acknowledged yet")
	x.broker.Release(-1)
	require.NoError(t, r.end())
	require.Greater(t, x.confirmed(), written)

	again := x.run()
	again.waitPhase(relay.Streaming)
	x.insert(51, 60)
	require.NoError(t, x.broker.WaitFor(x.ctx, 60))
	again.stop()
	require.NoError(t, again.end())
	require.Equal(t, events(1, 60), x.payloads())
}

func TestRelay_ConfirmsNothingBehindAPendingMessage(t *testing.T) {
	x := newSetup(t)
	r := x.run()
	r.waitPhase(relay.Streaming)
	before := x.confirmed()
	x.broker.Hold()
	x.insert(1, 1)
	x.insert(2, 2)
	require.NoError(t, x.broker.WaitPublished(x.ctx, 2))
	st := r.State()
	require.Equal(t, 2, st.InFlight)
	require.False(t, st.OldestUnacked.IsZero())
	r.kill()
	require.ErrorIs(t, r.end(), relay.ErrSecondSignal)
	require.LessOrEqual(t, x.confirmed(), st.AckedLSN)
	require.GreaterOrEqual(t, x.confirmed(), before)

	x.broker.Release(-1)
	again := x.run()
	require.NoError(t, x.broker.WaitFor(x.ctx, 2))
	again.stop()
	require.NoError(t, again.end())
	got := x.payloads()
	require.Equal(t, events(1, 2), got[len(got)-2:], "read again from the slot, in order")
}

func TestRelay_SaysSinceWhenTheSinkAcknowledgesNothing(t *testing.T) {
	x := newSetup(t)
	r := x.run()
	r.waitPhase(relay.Streaming)
	require.Zero(t, r.State().WaitingSince)
	x.broker.Hold()
	before := time.Now()
	x.insert(1, 2)
	require.NoError(t, x.broker.WaitPublished(x.ctx, 2))
	first := r.State().WaitingSince
	require.False(t, first.Before(before), "since something is in flight, not since the last acknowledgement long ago")
	x.insert(3, 3)
	require.NoError(t, x.broker.WaitPublished(x.ctx, 3))
	require.Equal(t, first, r.State().WaitingSince, "more in flight is no progress")
	x.broker.Release(1)
	require.NoError(t, x.broker.WaitFor(x.ctx, 1))
	require.Eventually(t, func() bool { return r.State().WaitingSince.After(first) }, patience, time.Millisecond, "an acknowledgement is")
	x.broker.Release(-1)
	require.Eventually(t, func() bool { return r.State().WaitingSince.IsZero() }, patience, time.Millisecond)
	r.stop()
	require.NoError(t, r.end())
}

func TestRelay_ALongDrainIsProgress(t *testing.T) {
	t.Parallel()
	x := newSetup(t)
	r := x.run()
	r.waitPhase(relay.Streaming)
	x.broker.Hold()
	x.insert(1, 3)
	require.NoError(t, x.broker.WaitPublished(x.ctx, 3))
	r.stop()
	r.waitPhase(relay.Draining)
	began := time.Now()
	require.Eventually(t, func() bool { return r.State().LastProgress.Sub(began) > 2*time.Second }, patience, 10*time.Millisecond,
		"the watchdog would end it in the middle otherwise")
	require.Equal(t, relay.Draining, r.State().Phase)
	x.broker.Release(-1)
	require.NoError(t, r.end())
}

// A broker that hangs gets requests for a new topic for up to four times read_timeout, two minutes.
func TestRelay_ASinkThatWaitsIsProgress(t *testing.T) {
	t.Parallel()
	x := newSetup(t)
	x.broker.Capacity(1)
	x.broker.Hold()
	x.insert(1, 3)
	r := x.run()
	require.NoError(t, x.broker.WaitPublished(x.ctx, 1))
	began := time.Now()
	require.Eventually(t, func() bool { return r.State().LastProgress.Sub(began) > 2*time.Second }, patience, 10*time.Millisecond)
	require.Equal(t, 1, x.broker.Published())
	x.broker.Release(-1)
	require.NoError(t, x.broker.WaitFor(x.ctx, 3))
	r.stop()
	require.NoError(t, r.end())
}

func TestRelay_DrainTimeoutEndsAStopThatWaitsForTheBroker(t *testing.T) {
	x := newSetup(t)
	x.cfg.DrainTimeout = 50 * time.Millisecond
	r := x.run()
	r.waitPhase(relay.Streaming)
	x.broker.Hold()
	x.insert(1, 3)
	end := x.current()
	require.NoError(t, x.broker.WaitPublished(x.ctx, 3))
	r.stop()
	require.ErrorIs(t, r.end(), relay.ErrDrainTimeout)
	require.Less(t, x.confirmed(), end, "nothing was acknowledged")
}

func TestRelay_StartsAgainFromTheSlotWhenTheSinkFails(t *testing.T) {
	x := newSetup(t)
	r := x.run()
	r.waitPhase(relay.Streaming)
	x.insert(1, 10)
	require.NoError(t, x.broker.WaitFor(x.ctx, 10))
	x.broker.FailNext(fmt.Errorf("produce: %w", sink.ErrUnreachable))
	x.insert(11, 20)
	x.insert(21, 30)
	require.Eventually(t, func() bool {
		got := x.payloads()
		return len(got) >= 30 && got[len(got)-1] == "event 30"
	}, patience, time.Millisecond)
	require.Equal(t, 2, x.broker.Sessions())
	r.stop()
	require.NoError(t, r.end())
	first := map[string]bool{}
	var order []string
	for _, p := range x.payloads() {
		if !first[p] {
			first[p] = true
			order = append(order, p)
		}
	}
	require.Equal(t, events(1, 30), order)
}

func TestRelay_AMissingTopicRepeatsTheBeginningOfItsTransactionOnce(t *testing.T) {
	x := newSetup(t)
	x.broker.Topics("outbox.event.Order")
	x.exec(`BEGIN`)
	x.insert(1, 100)
	x.exec(`INSERT INTO outbox VALUES (101, 'Missing', 'key', 'event 101')`)
	x.exec(`COMMIT`)
	attempts := make(chan struct{}, 1000)
	x.parts.Server.Prepare = func(context.Context, bool) error { attempts <- struct{}{}; return nil }
	r := x.run()
	for range 10 {
		<-attempts
	}
	require.Equal(t, 100, x.broker.Published(), "later sessions find the topic missing before they publish anything")
	x.broker.Topics("outbox.event.Order", "outbox.event.Missing")
	require.NoError(t, x.broker.WaitFor(x.ctx, 201))
	r.stop()
	require.NoError(t, r.end())
	require.Equal(t, append(events(1, 100), events(1, 101)...), x.payloads())
}

func TestRelay_HaltsInFrontOfARowThatCannotBeRouted(t *testing.T) {
	x := newSetup(t)
	r := x.run()
	r.waitPhase(relay.Streaming)
	good := x.insert(1, 5)
	x.exec(`INSERT INTO outbox VALUES (6, 'Order', NULL, 'no key')`)
	x.insert(7, 8)
	err := r.end()
	var row *router.RowError
	require.ErrorAs(t, err, &row)
	require.Equal(t, "6", row.EventID)
	require.Equal(t, relay.Halted, r.State().Phase)
	require.Equal(t, "null_key", r.State().Reason)
	require.Equal(t, events(1, 5), x.payloads(), "everything before it is delivered, nothing behind it")
	require.Greater(t, x.confirmed(), good, "and confirmed")

	halted := x.run()
	require.ErrorAs(t, halted.end(), &row, "it stays in front of the row")
}

func TestRelay_AnErrorNobodyKnowsIsRetried(t *testing.T) {
	x := newSetup(t)
	for range 5 {
		x.broker.FailOpen(errors.New("the moon is in the wrong phase"))
	}
	r := x.run()
	x.insert(1, 3)
	require.NoError(t, x.broker.WaitFor(x.ctx, 3))
	r.stop()
	require.NoError(t, r.end())
}

func TestRelay_WatchEndsTheSession(t *testing.T) {
	x := newSetup(t)
	broken := make(chan struct{})
	old := errors.New("seen before the session was prepared")
	began := time.Now()
	x.parts.Server.Watch = func(ctx context.Context, problem func(error, time.Time)) {
		select {
		case <-broken:
			problem(old, began)
			problem(fmt.Errorf("table was dropped: %w", replication.ErrPublicationMissing), time.Now())
		case <-ctx.Done():
		}
	}
	r := x.run()
	r.waitPhase(relay.Streaming)
	close(broken)
	err := r.end()
	require.ErrorIs(t, err, replication.ErrPublicationMissing)
	require.NotErrorIs(t, err, old)
	require.Equal(t, relay.Halted, r.State().Phase)
}

func TestRelay_StartsAgainWhenTheServerHasForgottenIt(t *testing.T) {
	x := newSetup(t)
	forgotten, began := make(chan struct{}), time.Now()
	x.parts.Server.Watch = func(ctx context.Context, problem func(error, time.Time)) {
		<-forgotten
		problem(fmt.Errorf("seen before there was a stream: %w", postgres.ErrStaleConnection), began)
		problem(fmt.Errorf("seen now: %w", postgres.ErrStaleConnection), time.Now())
		<-ctx.Done()
	}
	r := x.run()
	r.waitPhase(relay.Streaming)
	close(forgotten)
	x.insert(1, 3)
	require.NoError(t, x.broker.WaitFor(x.ctx, 3))
	require.Eventually(t, func() bool { return r.State().Sessions == 2 }, patience, 10*time.Millisecond)
	r.stop()
	require.NoError(t, r.end())
}

func TestRelay_StandsByForASlotThatIsHeld(t *testing.T) {
	x := newSetup(t)
	leader := x.run()
	leader.waitPhase(relay.Streaming)
	standby := x.run()
	standby.waitPhase(relay.Standby)
	x.insert(1, 3)
	require.NoError(t, x.broker.WaitFor(x.ctx, 3))
	leader.stop()
	require.NoError(t, leader.end())
	standby.waitPhase(relay.Streaming)
	x.insert(4, 6)
	require.NoError(t, x.broker.WaitFor(x.ctx, 6))
	standby.stop()
	require.NoError(t, standby.end())
	require.Equal(t, events(1, 6), x.payloads())
}

func TestRelay_StopEndsABackOffAtOnce(t *testing.T) {
	x := newSetup(t)
	x.cfg.BackoffMin, x.cfg.BackoffMax = time.Hour, time.Hour
	x.parts.Server.Prepare = func(context.Context, bool) error { return errors.New("not yet; come back") }
	x.parts.Explain = func(error, relay.State) (what, wal, next string) { return "not yet", "none", "come back" }
	r := x.run()
	r.waitPhase(relay.BackingOff)
	st := r.State()
	require.Equal(t, []string{"other", "not yet", "come back"}, []string{st.Reason, st.Error, st.Next})
	r.stop()
	require.NoError(t, r.end())
	require.Equal(t, relay.Stopped, r.State().Phase)
	st = r.State()
	require.Empty(t, st.Reason+st.Error+st.Next)
}

func TestRelay_PublishesBeforeALargeTransactionIsReadToItsEnd(t *testing.T) {
	x := newSetup(t)
	x.cfg.InFlightMessages = 100
	r := x.run()
	r.waitPhase(relay.Streaming)
	x.broker.Hold()
	x.insert(1, 20000)
	require.NoError(t, x.broker.WaitPublished(x.ctx, 100))
	require.Equal(t, 100, x.broker.Published(), "the window is full, the rest of the transaction waits in the WAL")
	x.broker.Release(-1)
	require.NoError(t, x.broker.WaitFor(x.ctx, 20000))
	r.stop()
	require.NoError(t, r.end())
	require.Equal(t, events(1, 20000), x.payloads())
}

func TestRelay_LetsGoOfAnotherServer(t *testing.T) {
	x := newSetup(t)
	ids := 0
	x.parts.Server.OpenStream = func(ctx context.Context) (*replication.Stream, error) {
		ids++
		if ids == 1 {
			return x.openStream(ctx)
		}
		other := *x
		db := parts.ExclusivePostgres(t, embedded.PostgresConfig{OwnIdentity: true})
		pg, err := pgconn.ParseConfig(db.DSN())
		require.NoError(t, err)
		pg.RuntimeParams["replication"] = "database"
		other.conn, other.pg = parts.Connect(t, db.DSN()), pg
		other.exec(`SELECT pg_create_logical_replication_slot('` + x.slot + `', 'pgoutput')`)
		return other.openStream(ctx)
	}
	r := x.run()
	r.waitPhase(relay.Streaming)
	id, err := postgres.SystemIdentifier(x.ctx, x.conn)
	require.NoError(t, err)
	require.Equal(t, id, r.State().SystemID)
	x.exec(`SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '` + x.slot + `'`)
	require.ErrorIs(t, r.end(), replication.ErrIdentityChanged)
	require.Equal(t, id, r.State().SystemID)
}
