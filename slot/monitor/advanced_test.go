package monitor_test

import (
	"context"
	"testing"
	"time"

	"github.com/postrider/postrider/slot/monitor"
	"github.com/postrider/postrider/test/parts/testdb"

	"github.com/jackc/pglogrepl"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/slot"
)

// confirms streams the slot until it is confirmed further than it was, without anything of the outbox.
func (p *place) confirms() (end pglogrepl.LSN) {
	pg, err := postgres.ReplicationConfig(p.Postgres)
	require.NoError(p.T, err)
	cfg := replication.DefaultConfig()
	cfg.StatusInterval = 100 * time.Millisecond
	s, err := replication.Open(p.T.Context(), pg, cfg, p.Name, zerolog.Nop())
	require.NoError(p.T, err)
	stopping, stop := context.WithCancel(p.T.Context())
	defer stop()
	out, ended := make(chan *replication.Batch, 1), make(chan error, 1)
	go func() { ended <- s.Run(p.T.Context(), stopping, out, s.ReceivedLSN) }() // waited for below
	go func() {                                                                 // ends with Run
		for b := range out {
			b.Release()
		}
	}()
	require.Eventually(p.T, func() bool {
		p.Exec("SELECT pg_switch_wal()")
		p.Exec("SELECT pg_create_restore_point('nothing of ours')")
		return s.ConfirmedFlushLSN() > s.SeedLSN()
	}, patience, 50*time.Millisecond)
	stop()
	require.NoError(p.T, <-ended)
	drained := make(chan struct{})
	close(drained)
	require.NoError(p.T, s.Finish(p.T.Context(), drained))
	return s.ConfirmedFlushLSN()
}

// A relay streams, another takes over and confirms that there was nothing, and the first one takes over again: no row is lost.
func TestAdvanced_TakesAnIdleSlotThatAnotherRelayHeld(t *testing.T) {
	p := onShared(t, "17")
	p.Outbox()
	w := watch(t, p, p.Need())
	streamed := time.Now()
	acked := p.confirms()
	end := p.confirms()
	require.Greater(t, end, acked)
	w.settles(func(o monitor.Observation) bool { return o.Slot.ConfirmedFlushLSN >= end })
	moved := func(held bool) error {
		return monitor.Advanced(t.Context(), p.Conn, w.Observation(), []string{"public.outbox"}, false, acked, end, streamed, held)
	}
	require.NoError(t, moved(true))
	require.ErrorIs(t, moved(false), replication.ErrSlotLost, "nobody else can have moved it on")

	// The same counters, of a slot that was recreated.
	require.NoError(t, slot.Drop(t.Context(), p.Conn, p.Name))
	w.settles(func(o monitor.Observation) bool { return o.Slot.WALStatus == "lost" })
	_, err := slot.Create(t.Context(), p.Conn, p.Config())
	require.NoError(t, err)
	w.settles(func(o monitor.Observation) bool {
		return o.Slot.WALStatus == "reserved" && o.Slot.ConfirmedFlushLSN > end
	})
	require.ErrorIs(t, moved(true), replication.ErrSlotLost, "the monitor has seen it")
}

// Rows may be deleted in the transaction that writes them: that none is there says nothing about what a slot that was recreated leaves out.
func TestAdvanced_RefusesAnotherSlotWhereNoRowIsLeft(t *testing.T) {
	t.Parallel()
	testdb.Versions(t, testdb.All, func(t *testing.T, version string) {
		p := onShared(t, version)
		p.Outbox()
		w := watch(t, p, p.Need())
		streamed := time.Now()
		p.Exec("INSERT INTO outbox VALUES (1); DELETE FROM outbox")
		acked := p.confirms()
		w.settles(func(o monitor.Observation) bool { return o.Decoding != nil && o.Decoding.TotalTransactions > 0 })
		last := w.Observation()
		require.NoError(t, slot.Drop(t.Context(), p.Conn, p.Name))
		p.Exec("INSERT INTO outbox VALUES (2); DELETE FROM outbox")
		made, err := slot.Create(t.Context(), p.Conn, p.Config())
		require.NoError(t, err)
		err = monitor.Advanced(t.Context(), p.Conn, last, []string{"public.outbox"}, false, acked, made.ConfirmedFlushLSN, streamed, false)
		require.ErrorIs(t, err, replication.ErrSlotLost)
	})
}

// Before 15 the counters are those of a file that may not be written at all.
func TestAdvanced_WaitsForNoCountersThatNeverCome(t *testing.T) {
	t.Parallel()
	p, _ := onOwn(t, "14", map[string]string{"stats_temp_directory": "missing"})
	last := monitor.Observation{Slot: slot.Status{Slot: slot.Slot{Name: p.Name}}}
	err := monitor.Advanced(t.Context(), p.Conn, last, []string{"public.outbox"}, false, 1, 2, time.Now(), false)
	require.ErrorIs(t, err, monitor.ErrStaleCounters)
}

// The events of the monitor are by our clock, and when the stream was opened is by the server's.
func TestAdvanced_KnowsARecreationWhereTheClocksDiffer(t *testing.T) {
	t.Parallel()
	p := onShared(t, "17")
	p.Outbox()
	made, err := slot.Create(t.Context(), p.Conn, p.Config())
	require.NoError(t, err)
	seen := time.Now()
	last := monitor.Observation{
		Slot: slot.Status{Slot: slot.Slot{Name: p.Name}}, Clock: &monitor.Clock{Skew: 3600},
		Events: []monitor.Event{{At: seen, Code: "slot_recreated"}},
	}
	moved := func(streamed time.Time) error {
		return monitor.Advanced(t.Context(), p.Conn, last, []string{"public.outbox"}, false, 1, made.ConfirmedFlushLSN,
			streamed.Add(time.Hour), true)
	}
	require.ErrorIs(t, moved(seen.Add(-time.Minute)), replication.ErrSlotLost, "recreated after the stream was opened")
	require.NoError(t, moved(seen.Add(time.Minute)), "recreated before")
}
