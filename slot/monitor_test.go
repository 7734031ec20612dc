package slot_test

import (
	"context"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"postrider/embedded"
	"postrider/metrics"
	"postrider/postgres"
	"postrider/replication"
	"postrider/slot"
	"postrider/test/parts"
)

// noticeLimit is what the relay promises.
const noticeLimit = 10 * time.Second

// watched is a monitor that runs.
type watched struct {
	*slot.Monitor
	t        *testing.T
	seen     chan slot.Observation
	problems chan error
}

// watch starts a monitor on a prepared database and waits for its first observation.
func watch(t *testing.T, p *place, need slot.Requirements) *watched {
	t.Helper()
	_, err := slot.Prepare(t.Context(), p.conn, need, true, zerolog.Nop())
	require.NoError(t, err)
	w := newWatched(t, p.cfg, need, quick())
	w.start()
	return w
}

// quick observes with each look.
func quick() slot.MonitorConfig {
	cfg := slot.DefaultMonitorConfig()
	cfg.Interval = 200 * time.Millisecond // shorter than a configuration may have it
	return cfg
}

func newWatched(t *testing.T, pg postgres.Config, need slot.Requirements, cfg slot.MonitorConfig) *watched {
	w := &watched{t: t, seen: make(chan slot.Observation, 1000), problems: make(chan error, 1000)}
	w.Monitor = slot.NewMonitor(pg, need, cfg, func(o slot.Observation) {
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
	return w.observes(func(o slot.Observation) bool { return ok(o.Slot) }).Slot
}

// observes waits for an observation, no longer than the relay's promise. A problem on the way is a failure.
func (w *watched) observes(ok func(slot.Observation) bool) slot.Observation {
	w.t.Helper()
	deadline := time.After(noticeLimit)
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

// finds waits for a problem, no longer than the relay's promise.
func (w *watched) finds(within time.Duration) error {
	w.t.Helper()
	select {
	case err := <-w.problems:
		return err
	case <-time.After(within):
		require.Fail(w.t, "monitor finds nothing", "for %s, last %+v", within, w.Status())
		return nil
	}
}

func TestMonitor_NoticesABrokenPublication(t *testing.T) {
	versions(t, oldAndNew, func(t *testing.T, version string) {
		for _, c := range []struct{ name, sql, text string }{
			{"dropped", "DROP PUBLICATION postrider", "does not exist"},
			{"emptied", "ALTER PUBLICATION postrider DROP TABLE outbox", "does not contain"},
			{"not inserts", "ALTER PUBLICATION postrider SET (publish = 'delete')", "inserts"},
			{"table dropped", "DROP TABLE outbox", "does not exist"},
			{"table created anew", "BEGIN; DROP TABLE outbox; CREATE TABLE outbox (id int PRIMARY KEY); COMMIT", "does not contain"},
			{"table renamed", "ALTER TABLE outbox RENAME TO outbox_old", "does not exist"},
			{"table created anew and added", `BEGIN; DROP TABLE outbox; CREATE TABLE outbox (id int PRIMARY KEY);
				ALTER PUBLICATION postrider ADD TABLE outbox; COMMIT`, "created anew"},
			{"taken out and added", "BEGIN; ALTER PUBLICATION postrider DROP TABLE outbox; ALTER PUBLICATION postrider ADD TABLE outbox; COMMIT", "added again"},
			{"publication created anew", `BEGIN; DROP PUBLICATION postrider; CREATE PUBLICATION postrider FOR TABLE outbox
				WITH (publish = 'insert', publish_via_partition_root = true); COMMIT`, "created anew"},
			{"filtered", "ALTER PUBLICATION postrider SET TABLE outbox WHERE (id > 5)", "row filter"},
		} {
			if c.name == "filtered" && version == "14" {
				continue // which has no row filters
			}
			t.Run(c.name, func(t *testing.T) {
				p := onShared(t, version)
				p.outbox()
				w := watch(t, p, p.need())
				p.exec(c.sql)
				err := w.finds(noticeLimit)
				var problem *slot.PublicationError
				require.ErrorAs(t, err, &problem)
				require.ErrorIs(t, err, replication.ErrPublicationMissing)
				require.ErrorContains(t, err, c.text)
				require.NotEmpty(t, problem.SQL)
				require.False(t, *w.Status().PublicationOK)
				require.Equal(t, err.Error(), w.Status().Error)
			})
		}
	})
}

func TestMonitor_TakesANewTableOfAPublicationOfAllTables(t *testing.T) {
	p := onShared(t, "17")
	p.exec("CREATE TABLE outbox (id int PRIMARY KEY); CREATE PUBLICATION postrider FOR ALL TABLES")
	w := watch(t, p, p.need())
	p.exec("BEGIN; DROP TABLE outbox; CREATE TABLE outbox (id int PRIMARY KEY); COMMIT")
	changed := time.Now()
	w.until(func(s slot.Status) bool {
		return s.ObservedAt.After(changed.Add(p.need().Slot.CheckInterval)) && *s.PublicationOK
	})
}

func TestMonitor_NoticesADroppedSlot(t *testing.T) {
	p := onShared(t, "17")
	p.outbox()
	w := watch(t, p, p.need())
	confirmed := w.Status().ConfirmedFlushLSN
	require.NoError(t, slot.Drop(t.Context(), p.conn, p.name))
	err := w.finds(noticeLimit)
	var lost *slot.LostError
	require.ErrorAs(t, err, &lost)
	require.Equal(t, confirmed, lost.ConfirmedFlushLSN)
	require.ErrorIs(t, err, replication.ErrSlotLost)
	require.Equal(t, "lost", w.Status().WALStatus)
}

func TestMonitor_NoticesAShutdownAtOnce(t *testing.T) {
	versions(t, oldAndNew, func(t *testing.T, version string) {
		p, s := onOwn(t, version, nil)
		p.outbox()
		need := p.need()
		need.Slot.CheckInterval = 10 * time.Second // what it notices, it does not notice by looking
		w := watch(t, p, need)
		stopped := make(chan error, 1)
		go func() { stopped <- s.Stop(context.Background()) }()
		err := w.finds(3 * time.Second)
		require.ErrorIs(t, err, postgres.ErrStopping)
		require.NoError(t, <-stopped)
		require.NotZero(t, w.Status().ConfirmedFlushLSN, "the last positions are kept")
	})
}

func TestMonitor_DoesNotHoldUpASmartShutdown(t *testing.T) {
	p, s := onOwn(t, "17", nil)
	p.outbox()
	_, err := slot.Create(t.Context(), p.conn, p.config())
	require.NoError(t, err)
	w := newWatched(t, p.cfg, p.need(), quick())
	w.RenewEvery(time.Second)
	w.start()
	require.NoError(t, p.conn.Close(t.Context()))
	stopped := make(chan error, 1)
	go func() { stopped <- s.StopMode(context.Background(), embedded.ShutdownMode(syscall.SIGTERM)) }()
	require.ErrorIs(t, w.finds(15*time.Second), postgres.ErrStopping)
}

func TestMonitor_OutlivesLostConnections(t *testing.T) {
	p, s := onOwn(t, "17", nil)
	p.outbox()
	w := watch(t, p, p.need())

	terminate := `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'postrider' AND datname = $1`
	var ended int
	require.NoError(t, p.conn.QueryRow(t.Context(), terminate, p.name).Scan(&ended))
	require.Equal(t, 1, ended)
	after := time.Now()
	w.until(func(s slot.Status) bool { return s.Error == "" && s.ObservedAt.After(after) })

	require.NoError(t, s.Kill())
	require.Eventually(t, func() bool { return w.Status().Error != "" }, noticeLimit, time.Millisecond)
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
}

func TestMonitor_WaitsForALockedTable(t *testing.T) {
	p := onShared(t, "18")
	p.outbox()
	w := watch(t, p, p.need())
	locker := parts.Connect(t, p.dsn)
	_, err := locker.Exec(t.Context(), "BEGIN; LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE")
	require.NoError(t, err)
	locked := time.Now()
	w.until(func(s slot.Status) bool { return s.ObservedAt.After(locked.Add(time.Second)) && s.Error == "" })
	_, err = locker.Exec(t.Context(), "COMMIT")
	require.NoError(t, err)
}

func TestExport_KeepsPositionsWhileTheServerIsGone(t *testing.T) {
	registry := prometheus.NewRegistry()
	observe := slot.Export(metrics.New(registry, "postrider"))
	lag := int64(7)
	s := slot.Status{Slot: slot.Slot{Active: true, WALStatus: "reserved", ConfirmedFlushLSN: 10}, CurrentWALLSN: 17, LagBytes: &lag, ObservedAt: time.Unix(5, 0)}
	observe(slot.Observation{Slot: s})
	s.Error = "server gone"
	observe(slot.Observation{Slot: s})
	got := map[string]float64{}
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		m := f.GetMetric()[0]
		got[f.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
	}
	require.InDelta(t, 7, got["postrider_slot_lag_bytes"], 0)
	require.InDelta(t, 10, got["postrider_slot_confirmed_flush_lsn"], 0)
	require.InDelta(t, 5, got["postrider_slot_observed_timestamp_seconds"], 0)
	require.InDelta(t, 1, got["postrider_slot_observe_errors_total"], 0)
	require.NotContains(t, got, "postrider_slot_safe_wal_bytes")
}
