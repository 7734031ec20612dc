package monitor_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/postrider/postrider/slot/monitor"
	"github.com/postrider/postrider/test/parts/testdb"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/test/parts"
)

const patience = parts.Patience

// watched is a monitor that runs.
type watched struct {
	*monitor.Monitor
	t        *testing.T
	seen     chan monitor.Observation
	problems chan error
	stale    chan time.Time // when looks began after which nobody streamed: no problem of a test in which nobody wants to
}

// watch starts a monitor on a prepared database and waits for its first observation.
func watch(t *testing.T, p *place, need slot.Requirements) *watched {
	t.Helper()
	_, err := slot.Prepare(t.Context(), p.Conn, need, true, zerolog.Nop())
	require.NoError(t, err)
	w := newWatched(t, p.Postgres, need, quick())
	w.start()
	return w
}

// quick observes with each look.
func quick() monitor.Config {
	cfg := monitor.DefaultConfig()
	cfg.Interval = 200 * time.Millisecond // shorter than a configuration may have it
	return cfg
}

func newWatched(t *testing.T, pg postgres.Config, need slot.Requirements, cfg monitor.Config) *watched {
	w := &watched{t: t, seen: make(chan monitor.Observation, 1000), problems: make(chan error, 1000), stale: make(chan time.Time, 1000)}
	w.Monitor = monitor.New(pg, need, cfg, func(o monitor.Observation) {
		select {
		case w.seen <- o:
		default:
		}
	}, zerolog.Nop())
	return w
}

// run runs the monitor until the end of the test.
func (w *watched) run() {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		w.Run(ctx, func(err error, began time.Time) {
			if errors.Is(err, postgres.ErrStaleConnection) {
				select {
				case w.stale <- began:
				default:
				}
				return
			}
			select {
			case w.problems <- err:
			default:
			}
		})
	})
	w.t.Cleanup(func() { cancel(); running.Wait() })
}

// start is run, and the wait for a good observation.
func (w *watched) start() {
	w.t.Helper()
	w.run()
	w.until(func(s slot.Status) bool { return s.PublicationOK != nil && *s.PublicationOK })
}

func (w *watched) until(ok func(slot.Status) bool) slot.Status {
	w.t.Helper()
	return w.observes(func(o monitor.Observation) bool { return ok(o.Slot) }).Slot
}

// observes waits for an observation. A problem on the way is a failure.
func (w *watched) observes(ok func(monitor.Observation) bool) monitor.Observation {
	w.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case o := <-w.seen:
			if ok(o) {
				return o
			}
		case err := <-w.problems:
			require.Fail(w.t, "monitor found a problem", "%v", err)
		case <-deadline:
			require.Fail(w.t, "no such observation", "last %+v", w.Observation())
		}
	}
}

// settles waits until it has observed something, whatever happens on the way.
func (w *watched) settles(ok func(monitor.Observation) bool) monitor.Observation {
	w.t.Helper()
	require.Eventually(w.t, func() bool { return ok(w.Observation()) }, patience, 10*time.Millisecond)
	return w.Observation()
}

// events are the codes, the newest first.
func (w *watched) events() []string {
	var codes []string
	for _, e := range w.Observation().Events {
		codes = append(codes, e.Code)
	}
	return codes
}

// finds waits for a problem, no longer than the relay's promise.
func (w *watched) finds() error {
	w.t.Helper()
	select {
	case err := <-w.problems:
		return err
	case <-time.After(patience):
		require.Fail(w.t, "monitor finds nothing", "for %s, last %+v", patience, w.Status())
		return nil
	}
}

func TestMonitor_NoticesABrokenPublication(t *testing.T) {
	t.Parallel()
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		for _, c := range []struct{ name, sql, text string }{
			{"dropped", "DROP PUBLICATION postrider", "does not exist"},
			{"emptied", "ALTER PUBLICATION postrider DROP TABLE outbox", "is not in publication"},
			{"not inserts", "ALTER PUBLICATION postrider SET (publish = 'delete')", "inserts"},
			{"table dropped", "DROP TABLE outbox", "does not exist"},
			{"table recreated", "BEGIN; DROP TABLE outbox; CREATE TABLE outbox (id int PRIMARY KEY); COMMIT", "is not in publication"},
			{"table renamed", "ALTER TABLE outbox RENAME TO outbox_old", "does not exist"},
			{"table recreated and added", `BEGIN; DROP TABLE outbox; CREATE TABLE outbox (id int PRIMARY KEY);
				ALTER PUBLICATION postrider ADD TABLE outbox; COMMIT`, "recreated"},
			{"taken out and added", "BEGIN; ALTER PUBLICATION postrider DROP TABLE outbox; ALTER PUBLICATION postrider ADD TABLE outbox; COMMIT", "added again"},
			{"publication recreated", `BEGIN; DROP PUBLICATION postrider; CREATE PUBLICATION postrider FOR TABLE outbox
				WITH (publish = 'insert', publish_via_partition_root = true); COMMIT`, "recreated"},
			{"filtered", "ALTER PUBLICATION postrider SET TABLE outbox WHERE (id > 5)", "row filter"},
		} {
			if c.name == "filtered" && version == "14" {
				continue // which has no row filters
			}
			t.Run(c.name, func(t *testing.T) {
				p := onShared(t, version)
				p.Outbox()
				w := watch(t, p, p.Need())
				p.Exec(c.sql)
				err := w.finds()
				var problem *slot.PublicationError
				require.ErrorAs(t, err, &problem)
				require.ErrorIs(t, err, replication.ErrPublicationMissing)
				require.ErrorContains(t, err, c.text)
				_, fix := problem.Advice()
				require.Contains(t, fix, "postrider recover --from-xmin")
				require.NotZero(t, problem.From, "until when all was well")
				require.False(t, *w.Status().PublicationOK)
				require.Equal(t, err.Error(), w.Status().Error)
			})
		}
	})
}

func TestMonitor_TakesANewTableOfAPublicationOfAllTables(t *testing.T) {
	p := onShared(t, "17")
	p.Exec("CREATE TABLE outbox (id int PRIMARY KEY); CREATE PUBLICATION postrider FOR ALL TABLES")
	w := watch(t, p, p.Need())
	p.Exec("BEGIN; DROP TABLE outbox; CREATE TABLE outbox (id int PRIMARY KEY); COMMIT")
	changed := time.Now()
	w.until(func(s slot.Status) bool {
		return s.ObservedAt.After(changed.Add(p.Need().Slot.CheckInterval)) && *s.PublicationOK
	})
}

func TestMonitor_NoticesADroppedSlot(t *testing.T) {
	p := onShared(t, "17")
	p.Outbox()
	w := watch(t, p, p.Need())
	confirmed := w.Status().ConfirmedFlushLSN
	require.NoError(t, slot.Drop(t.Context(), p.Conn, p.Name))
	err := w.finds()
	var lost *slot.LostError
	require.ErrorAs(t, err, &lost)
	require.Equal(t, confirmed, lost.ConfirmedFlushLSN)
	require.ErrorIs(t, err, replication.ErrSlotLost)
	require.Equal(t, "lost", w.Status().WALStatus)
}

func TestMonitor_NoticesAShutdownAtOnce(t *testing.T) {
	t.Parallel()
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		p, s := onOwn(t, version, nil)
		p.Outbox()
		need := p.Need()
		need.Slot.CheckInterval = 10 * time.Second // what it notices, it does not notice by looking
		w := watch(t, p, need)
		stopped := make(chan error, 1)
		go func() { stopped <- s.Stop(context.Background()) }()
		err := w.finds()
		require.ErrorIs(t, err, postgres.ErrStopping)
		require.NoError(t, <-stopped)
		require.NotZero(t, w.Status().ConfirmedFlushLSN, "the last positions are kept")
	})
}

func TestMonitor_DoesNotHoldUpASmartShutdown(t *testing.T) {
	t.Parallel()
	p, s := onOwn(t, "17", nil)
	p.Outbox()
	_, err := slot.Create(t.Context(), p.Conn, p.Config())
	require.NoError(t, err)
	w := newWatched(t, p.Postgres, p.Need(), quick())
	w.RenewEvery(time.Second)
	w.start()
	stopped := make(chan error, 1)
	go func() { stopped <- s.StopMode(context.Background(), embedded.ShutdownMode(syscall.SIGTERM)) }()
	found := w.finds() // p.Conn holds the shutdown up: the monitor's next connection is refused, and not to a port that is closed
	require.ErrorIs(t, found, postgres.ErrStopping)
	require.Regexp(t, `^connect to 127\.0\.0\.1:\d+/\w+ as \w+: [^:]+$`, found.Error(), "one cause, once")
	require.NoError(t, p.Conn.Close(t.Context()))
	require.NoError(t, <-stopped)
}

func TestMonitor_OutlivesLostConnections(t *testing.T) {
	t.Parallel()
	p, s := onOwn(t, "17", nil)
	p.Outbox()
	_, err := slot.Prepare(t.Context(), p.Conn, p.Need(), true, zerolog.Nop())
	require.NoError(t, err)
	w := newWatched(t, p.Postgres, p.Need(), quick())
	w.ProbeFor(patience)
	w.start()

	terminate := `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'postrider' AND datname = $1`
	var ended int
	require.NoError(t, p.Conn.QueryRow(t.Context(), terminate, p.Name).Scan(&ended))
	require.Equal(t, 1, ended)
	after := time.Now()
	w.until(func(s slot.Status) bool { return s.Error == "" && s.ObservedAt.After(after) })
	require.Zero(t, w.Returns(), "the server was there all the time")

	// The crash of one backend ends all others; the server recovers without a restart.
	began := w.Observation().Server.StartedAt
	require.NoError(t, syscall.Kill(int(p.Conn.PgConn().PID()), syscall.SIGKILL)) //nolint:gosec // a pid
	returned, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, w.AwaitReturn(returned, 0))
	w.settles(func(o monitor.Observation) bool { return o.Slot.Error == "" })
	require.Equal(t, began, w.Observation().Server.StartedAt)
	require.Equal(t, 1, w.Returns())

	require.NoError(t, s.Kill())
	require.Eventually(t, func() bool { return w.Status().Error != "" }, patience, time.Millisecond)
	failed := w.Status()
	require.NotZero(t, failed.ConfirmedFlushLSN)
	require.False(t, failed.ObservedAt.IsZero())
	require.NoError(t, s.Start(t.Context()))
	for w.Status().Error != "" {
		select {
		case <-w.seen:
		case err := <-w.problems:
			// A backend that sees its postmaster die says the same as one that is shut down.
			require.ErrorIs(t, err, postgres.ErrStopping)
		}
	}
	require.Equal(t, 2, w.Returns())
	require.NoError(t, w.AwaitReturn(returned, 1))
	cancel()
	require.ErrorIs(t, w.AwaitReturn(returned, 2), context.Canceled)
}

func TestMonitor_HasOneConnectionAtMost(t *testing.T) {
	t.Parallel()
	p := onShared(t, "17")
	p.Outbox()
	_, err := slot.Create(t.Context(), p.Conn, p.Config())
	require.NoError(t, err)
	w := newWatched(t, p.Postgres, p.Need(), quick())
	w.RenewEvery(time.Millisecond)
	w.start()
	for pids := map[int32]bool{}; len(pids) < 10; {
		rows, err := p.Conn.Query(t.Context(), ours, p.Name)
		require.NoError(t, err)
		now, err := pgx.CollectRows(rows, pgx.RowTo[int32])
		require.NoError(t, err)
		require.LessOrEqual(t, len(now), 1)
		for _, pid := range now {
			pids[pid] = true
		}
	}
	require.Empty(t, w.events(), "nothing has happened")
}

func TestMonitor_KeepsItsConnectionWhileItWaits(t *testing.T) {
	t.Parallel()
	p, _ := onOwn(t, "17", nil)
	p.Outbox()
	p.Exec("ALTER DATABASE " + p.Name + " SET idle_session_timeout = '100ms'")
	w := watch(t, p, p.Need())
	var first, later int
	require.NoError(t, p.Conn.QueryRow(t.Context(), ours, p.Name).Scan(&first))
	seen := w.Status().ObservedAt
	w.until(func(s slot.Status) bool { return s.ObservedAt.After(seen.Add(time.Second)) })
	require.NoError(t, p.Conn.QueryRow(t.Context(), ours, p.Name).Scan(&later))
	require.Equal(t, first, later)
}

func TestMonitor_WaitsForALockedTable(t *testing.T) {
	t.Parallel()
	p := onShared(t, "18")
	p.Outbox()
	w := watch(t, p, p.Need())
	locker := parts.Connect(t, p.DSN)
	_, err := locker.Exec(t.Context(), "BEGIN; LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE")
	require.NoError(t, err)
	locked := time.Now()
	w.until(func(s slot.Status) bool { return s.ObservedAt.After(locked.Add(time.Second)) && s.Error == "" })
	_, err = locker.Exec(t.Context(), "COMMIT")
	require.NoError(t, err)
}

func TestMonitor_GoesOnAfterThePublicationWasBroken(t *testing.T) {
	t.Parallel()
	p := onShared(t, "17")
	p.Exec(testdb.PartitionedSQL + "CREATE PUBLICATION postrider FOR TABLE outbox WITH (publish = 'insert', publish_via_partition_root = true)")
	w := watch(t, p, p.Need())
	p.Exec("CREATE FOREIGN DATA WRAPPER nowhere; CREATE SERVER nowhere FOREIGN DATA WRAPPER nowhere; " +
		"CREATE FOREIGN TABLE outbox_far PARTITION OF outbox FOR VALUES FROM (90) TO (99) SERVER nowhere")
	var problem *slot.PublicationError
	require.ErrorAs(t, w.finds(), &problem)
	require.ErrorAs(t, w.finds(), &problem, "it says so for as long as that is so")
	p.Exec("DROP FOREIGN TABLE outbox_far")
	w.settles(func(o monitor.Observation) bool { return *o.Slot.PublicationOK && o.Slot.Error == "" })
	require.Equal(t, []string{"publication_repaired", "publication_broken"}, w.events())
}

// What was not sent is missing, also when the publication is as it was again.
func TestMonitor_DoesNotForgetABrokenPublicationThatIsRepaired(t *testing.T) {
	p := onShared(t, "17")
	p.Outbox()
	w := watch(t, p, p.Need())
	p.Exec("ALTER PUBLICATION postrider SET (publish = 'delete')")
	require.ErrorContains(t, w.finds(), "does not publish inserts")
	p.Exec("ALTER PUBLICATION postrider SET (publish = 'insert')")
	w.settles(func(o monitor.Observation) bool {
		return strings.Contains(o.Slot.Error, "the publication was altered between")
	})
	require.Equal(t, []string{"publication_broken"}, w.events())
}

func TestMonitor_GoesOnWhenTheSlotIsDroppedAndMade(t *testing.T) {
	t.Parallel()
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		p := onShared(t, version)
		p.Outbox()
		w := watch(t, p, p.Need())
		var server int
		require.NoError(t, p.Conn.QueryRow(t.Context(), ours, p.Name).Scan(&server))
		require.NoError(t, slot.Drop(t.Context(), p.Conn, p.Name))
		var lost *slot.LostError
		require.ErrorAs(t, w.finds(), &lost)
		require.ErrorAs(t, w.finds(), &lost)
		gone := w.Observation()
		require.True(t, gone.Slot.Lost())
		require.Nil(t, gone.Slot.RetainedBytes, "what does not exist retains nothing")
		require.NotZero(t, gone.Slot.ConfirmedFlushLSN, "that is where the gap begins")
		require.NotEmpty(t, gone.Server.Version)

		made, err := slot.Create(t.Context(), p.Conn, p.Config())
		require.NoError(t, err)
		o := w.settles(func(o monitor.Observation) bool { return !o.Slot.Lost() && o.Slot.Error == "" })
		require.Equal(t, made.ConfirmedFlushLSN, o.Slot.ConfirmedFlushLSN)
		require.Equal(t, []string{"slot_created", "slot_missing"}, w.events(), "one for each change")
		var now int
		require.NoError(t, p.Conn.QueryRow(t.Context(), ours, p.Name).Scan(&now))
		require.Equal(t, server, now, "all over one connection")
	})
}

// ours is the process of the monitor on the server.
const ours = `SELECT pid FROM pg_stat_activity WHERE application_name = 'postrider' AND backend_type = 'client backend' AND datname = $1`

func TestMonitor_NoticesASlotRecreatedBetweenTwoLooks(t *testing.T) {
	t.Parallel()
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		p, _ := onOwn(t, version, nil) // the creation waits for no transaction of another test
		p.Outbox()
		_, err := slot.Create(t.Context(), p.Conn, p.Config())
		require.NoError(t, err)
		// What the slot has decoded is what tells one from the other.
		p.Exec("INSERT INTO outbox VALUES (1, 'x')")
		p.Exec("SELECT pg_logical_slot_get_binary_changes($1, NULL, NULL, 'proto_version', '1', 'publication_names', 'postrider')", p.Name)
		require.Eventually(t, func() bool {
			d := observe(t, p.Conn, p.Name, quick()).Decoding
			return d != nil && d.TotalTransactions > 0
		}, patience, 10*time.Millisecond)
		need := p.Need()
		need.Slot.CheckInterval = 3 * time.Second
		cfg := quick()
		cfg.Interval = 3 * time.Second
		w := newWatched(t, p.Postgres, need, cfg)
		w.start()
		require.NoError(t, slot.Drop(t.Context(), p.Conn, p.Name))
		made, err := slot.Create(t.Context(), p.Conn, p.Config())
		require.NoError(t, err)
		w.settles(func(o monitor.Observation) bool {
			return len(o.Events) > 0 && o.Slot.ConfirmedFlushLSN == made.ConfirmedFlushLSN
		})
		if len(w.events()) > 1 { // a look came while it was being created
			require.Equal(t, []string{"slot_created", "slot_missing"}, w.events())
			return
		}
		require.Equal(t, []string{"slot_recreated"}, w.events())
	})
}

func TestMonitor_ObservesBeforeThereIsASlot(t *testing.T) {
	p := onShared(t, "17")
	w := newWatched(t, p.Postgres, p.Need(), quick())
	w.run()
	require.ErrorIs(t, w.finds(), replication.ErrSlotLost)
	o := w.settles(func(o monitor.Observation) bool { return o.Slot.Error != "" })
	require.True(t, o.Slot.ObservedAt.IsZero())
	require.False(t, o.Slot.Lost(), "it may be made yet")
	require.Contains(t, o.Slot.Error, "does not exist")
	require.NotEmpty(t, o.Server.Version)
	require.NotZero(t, o.Limit.MaxWALSize)
	p.Outbox()
	_, err := slot.Create(t.Context(), p.Conn, p.Config())
	require.NoError(t, err)
	w.settles(func(o monitor.Observation) bool { return o.Slot.Error == "" && o.Slot.ConfirmedFlushLSN != 0 })
	require.Empty(t, w.events(), "nothing has changed that was there before")
}

// Whoever creates a slot waits for transactions that run, and may give up. Neither is a loss: there was no slot yet.
func TestMonitor_CallsNoSlotLostThatIsBeingCreated(t *testing.T) {
	t.Parallel()
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		p := onShared(t, version)
		p.Outbox()
		before, err := p.Conn.Begin(t.Context())
		require.NoError(t, err)
		_, err = before.Exec(t.Context(), "SELECT pg_current_xact_id()")
		require.NoError(t, err)
		maker, err := pgx.Connect(t.Context(), p.DSN)
		require.NoError(t, err)
		ctx, giveUp := context.WithCancel(t.Context())
		made := make(chan error, 1)
		go func() {
			_, err := maker.Exec(ctx, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", p.Name)
			made <- err
		}()
		look := func() (unfinished, exists bool) {
			var waits, there int
			row := before.QueryRow(t.Context(), "SELECT count(*) FILTER (WHERE confirmed_flush_lsn IS NULL), count(*) FROM pg_replication_slots WHERE slot_name = $1", p.Name)
			require.NoError(t, row.Scan(&waits, &there))
			return waits > 0, there > 0
		}
		require.Eventually(t, func() bool { waits, _ := look(); return waits }, patience, 10*time.Millisecond)

		w := newWatched(t, p.Postgres, p.Need(), quick())
		w.run()
		unseen := func() {
			t.Helper()
			for range 3 {
				var o monitor.Observation
				select {
				case o = <-w.seen:
				case <-time.After(patience):
					require.Fail(t, "no look")
				}
				require.True(t, o.Slot.ObservedAt.IsZero())
				require.False(t, o.Slot.Lost())
				require.Contains(t, o.Slot.Error, "does not exist")
			}
		}
		unseen()
		giveUp()
		require.Error(t, <-made)
		require.Eventually(t, func() bool { _, there := look(); return !there }, patience, 10*time.Millisecond)
		for len(w.seen) > 0 {
			<-w.seen
		}
		unseen()
		require.Empty(t, w.events())
		require.NoError(t, before.Rollback(t.Context()))
		_, err = slot.Create(t.Context(), p.Conn, p.Config())
		require.NoError(t, err)
		w.settles(func(o monitor.Observation) bool { return o.Slot.Error == "" && o.Slot.ConfirmedFlushLSN != 0 })
		require.Empty(t, w.events())
	})
}

func TestMonitor_WaitsForAServerThatIsNotThereYet(t *testing.T) {
	t.Parallel()
	p, s := onOwn(t, "17", nil)
	p.Outbox()
	_, err := slot.Create(t.Context(), p.Conn, p.Config())
	require.NoError(t, err)
	require.NoError(t, s.Stop(t.Context()))
	w := newWatched(t, p.Postgres, p.Need(), quick())
	w.run()
	w.settles(func(o monitor.Observation) bool { return o.Slot.Error != "" })
	require.NoError(t, s.Start(t.Context()))
	w.settles(func(o monitor.Observation) bool { return o.Slot.Error == "" && o.Slot.ConfirmedFlushLSN != 0 })
}

// A password command that takes longer than the monitor gives a host.
func TestMonitor_WaitsForASlowPassword(t *testing.T) {
	t.Parallel()
	p := onShared(t, "17")
	p.Outbox()
	_, err := slot.Prepare(t.Context(), p.Conn, p.Need(), true, zerolog.Nop())
	require.NoError(t, err)
	pg := p.Postgres
	pg.PasswordCommand = []string{"/bin/sh", "-c", "sleep 5; echo x"}
	require.NoError(t, pg.Validate())
	w := newWatched(t, pg, p.Need(), quick())
	w.start()
	_, err = p.Conn.Exec(t.Context(), "ALTER PUBLICATION postrider DROP TABLE public.outbox")
	require.NoError(t, err)
	var broken *slot.PublicationError
	require.ErrorAs(t, w.finds(), &broken)
}

func TestMonitor_SaysOnceThatItSeesNothing(t *testing.T) {
	t.Parallel()
	p, s := onOwn(t, "17", nil)
	p.Outbox()
	_, err := slot.Create(t.Context(), p.Conn, p.Config())
	require.NoError(t, err)
	require.NoError(t, s.Stop(t.Context()))
	need := p.Need()
	need.Slot.CheckInterval = 50 * time.Millisecond
	lines := make(chan string, 1000)
	log := zerolog.New(writerFunc(func(b []byte) { lines <- string(b) })).Level(zerolog.InfoLevel)
	failures := make(chan struct{}, 1000)
	m := monitor.New(p.Postgres, need, quick(), func(o monitor.Observation) {
		if o.Slot.Error != "" {
			failures <- struct{}{}
		}
	}, log)
	m.Hint = func(hint string) string { return hint + " --config p.toml" }
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { m.Run(ctx, func(error, time.Time) {}) })
	line := <-lines
	require.Contains(t, line, `"next":"postrider check --config p.toml"`)
	require.Contains(t, line, `"level":"warn"`)
	require.Contains(t, line, "not observed since the start")
	require.Contains(t, line, "connection refused")
	for range 5 {
		<-failures
	}
	require.NoError(t, s.Start(t.Context()))
	line = <-lines
	require.Contains(t, line, `"level":"info"`)
	require.Contains(t, line, "observed now")
}

type writerFunc func([]byte)

func (f writerFunc) Write(b []byte) (int, error) { f(b); return len(b), nil }

func TestMonitor_TellsOfARestartAndOfAPromotion(t *testing.T) {
	t.Parallel()
	p, s := onOwn(t, "17", nil)
	p.Outbox()
	w := watch(t, p, p.Need())
	before := w.settles(func(o monitor.Observation) bool { return o.Server.Timeline == 1 })
	require.NoError(t, s.Stop(t.Context()))
	w.settles(func(o monitor.Observation) bool { return o.Slot.Error != "" })
	require.Equal(t, before.Slot.ConfirmedFlushLSN, w.Observation().Slot.ConfirmedFlushLSN, "the last known values stay")
	require.Equal(t, before.Limit.MaxWALSize, w.Observation().Limit.MaxWALSize)

	// A standby of nobody: it reads the WAL it has, and waits for more.
	require.NoError(t, os.WriteFile(filepath.Join(s.DataDir(), "standby.signal"), nil, 0o666))
	require.NoError(t, s.Start(t.Context()))
	o := w.settles(func(o monitor.Observation) bool { return o.Slot.Error == "" && o.Server.Standby })
	require.True(t, o.Server.StartedAt.After(before.Server.StartedAt))
	require.EqualValues(t, 1, o.Server.Timeline)
	require.NotZero(t, o.Slot.CurrentWALLSN)
	require.Equal(t, []string{"connection_back", "server_restarted", "connection_lost"}, w.events())

	conn := parts.Connect(t, p.DSN)
	_, err := conn.Exec(t.Context(), "SELECT pg_promote()")
	require.NoError(t, err)
	o = w.settles(func(o monitor.Observation) bool { return !o.Server.Standby })
	require.EqualValues(t, 2, o.Server.Timeline, "at once, before there is a checkpoint of it")
	require.Equal(t, []string{"promoted", "connection_back", "server_restarted", "connection_lost"}, w.events(), "each once")
}

// A standby has copies of some slots at most, and an address can lead to one before it is promoted.
func TestMonitor_DoesNotMissTheSlotOnAStandby(t *testing.T) {
	t.Parallel()
	p, s := onOwn(t, "17", nil)
	p.Outbox()
	w := watch(t, p, p.Need())
	w.settles(func(o monitor.Observation) bool { return o.Server.Timeline == 1 })
	require.NoError(t, s.Stop(t.Context()))
	require.NoError(t, os.RemoveAll(filepath.Join(s.DataDir(), "pg_replslot", p.Name)))
	require.NoError(t, os.WriteFile(filepath.Join(s.DataDir(), "standby.signal"), nil, 0o666))
	require.NoError(t, s.Start(t.Context()))
	o := w.settles(func(o monitor.Observation) bool { return strings.Contains(o.Slot.Error, "is a standby") })
	require.NotEqual(t, "lost", o.Slot.WALStatus)
	require.NotContains(t, w.events(), "slot_missing")
	for len(w.problems) > 0 {
		require.NotErrorIs(t, <-w.problems, replication.ErrSlotLost)
	}

	conn := parts.Connect(t, p.DSN)
	_, err := conn.Exec(t.Context(), "SELECT pg_promote()")
	require.NoError(t, err)
	require.ErrorIs(t, w.finds(), replication.ErrSlotLost, "the primary does not have it")
}

func TestMonitor_TellsOfALostSlot(t *testing.T) {
	t.Parallel()
	testdb.Versions(t, versionsObserved, func(t *testing.T, version string) {
		p, _ := onOwn(t, version, map[string]string{"max_slot_wal_keep_size": "16MB", "max_wal_size": "32MB", "min_wal_size": "32MB"})
		p.Outbox()
		w := watch(t, p, p.Need())
		for range 4 {
			p.Exec("SELECT pg_switch_wal() FROM (SELECT pg_logical_emit_message(false, 'x', repeat('x', 1000))) x")
		}
		p.Exec("CHECKPOINT")
		require.ErrorIs(t, w.finds(), replication.ErrSlotLost)
		o := w.Observation()
		require.Equal(t, []string{"slot_invalidated"}, w.events())
		require.Equal(t, "lost", o.Slot.WALStatus)
		require.Zero(t, *o.Forecast.Loss.Seconds)

		require.NoError(t, slot.Drop(t.Context(), p.Conn, p.Name))
		_, err := slot.Create(t.Context(), p.Conn, p.Config())
		require.NoError(t, err)
		w.settles(func(o monitor.Observation) bool { return o.Slot.WALStatus == "reserved" && o.Slot.Error == "" })
	})
}

func TestMonitor_LearnsHowLongACheckpointTook(t *testing.T) {
	t.Parallel()
	p, _ := onOwn(t, "17", nil)
	p.Outbox()
	w := watch(t, p, p.Need())
	before := w.settles(func(o monitor.Observation) bool { return o.Limit.Checkpoint != nil })
	require.Zero(t, before.Limit.Checkpoint.Took, "it was over before anybody looked")
	p.Exec("INSERT INTO outbox SELECT i, 'x' FROM generate_series(1, 1000) i")
	p.Exec("CHECKPOINT")
	o := w.settles(func(o monitor.Observation) bool { return o.Limit.Checkpoint.RedoLSN > before.Limit.Checkpoint.RedoLSN })
	require.False(t, o.Limit.Checkpoint.StartedAt.Before(before.Limit.Checkpoint.StartedAt))
	require.LessOrEqual(t, o.Limit.Checkpoint.Took.Duration(), time.Minute)
}

// Whoever streamed may wait on a connection that the server has closed: the network did not tell him.
func TestMonitor_TellsThatNobodyStreamsAnyMore(t *testing.T) {
	p := onShared(t, "17")
	p.Outbox()
	w := watch(t, p, p.Need())
	reader := p.Reads(p.Postgres, p.Name)
	began := time.Now()
	w.until(func(s slot.Status) bool { return s.Active })
	require.NoError(t, reader.Close(t.Context()))
	w.forgets(began)
}

// The stream may have ended before the monitor has looked for the first time.
func TestMonitor_TellsThatNobodyStreamsWhoWasNeverSeenTo(t *testing.T) {
	p := onShared(t, "17")
	p.Outbox()
	began := time.Now()
	watch(t, p, p.Need()).forgets(began)
}

func TestMonitor_LooksAgainSoonWhenNobodyStreams(t *testing.T) {
	p := onShared(t, "17")
	p.Outbox()
	need, cfg := p.Need(), monitor.DefaultConfig()
	_, err := slot.Prepare(t.Context(), p.Conn, need, true, zerolog.Nop())
	require.NoError(t, err)
	need.Slot.CheckInterval, cfg.Interval = 2*patience, 2*patience
	w := newWatched(t, p.Postgres, need, cfg)
	began := time.Now()
	w.start()
	w.forgets(began)
}

// forgets waits until the monitor has found that no session streams, and has found so before in a look that began after a time.
func (w *watched) forgets(after time.Time) {
	w.t.Helper()
	for deadline := time.After(patience); ; {
		select {
		case began := <-w.stale:
			if began.After(after) {
				return
			}
		case <-deadline:
			require.Fail(w.t, "monitor does not find that no session streams", "for %s, last %+v", patience, w.Status())
		}
	}
}
