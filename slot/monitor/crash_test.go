package monitor_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/slot/monitor"
	"github.com/postrider/postrider/test/parts"
)

// A server that crashed counts from zero, and does not say so of the slot.
func TestMonitor_TakesACrashForNoOtherSlot(t *testing.T) {
	t.Parallel()
	p, s := onOwn(t, "17", nil)
	p.Outbox()
	_, err := slot.Create(t.Context(), p.Conn, p.Config())
	require.NoError(t, err)
	p.Exec("INSERT INTO outbox VALUES (1, 'x')")
	p.Exec("SELECT pg_logical_slot_get_binary_changes($1, NULL, NULL, 'proto_version', '1', 'publication_names', 'postrider')", p.Name)
	cfg := quick()
	cfg.Interval = 3 * time.Second // the slot is looked at before the counters are
	w := newWatched(t, p.Postgres, p.Need(), cfg)
	w.start()
	before := w.observes(func(o monitor.Observation) bool { return o.Decoding != nil && o.Decoding.TotalTransactions > 0 })
	require.NoError(t, s.Kill())
	require.NoError(t, s.Start(t.Context()))
	o := w.settles(func(o monitor.Observation) bool { // one of its looks may have found no server
		return o.Server.StartedAt.After(before.Server.StartedAt) && o.Slot.Error == ""
	})
	require.NotContains(t, w.events(), "slot_recreated")
	require.Contains(t, w.events(), "server_restarted")

	// The relay may not take it for another slot either, from whichever observation.
	conn := parts.Connect(t, p.DSN)
	_, err = conn.Exec(t.Context(), "INSERT INTO outbox VALUES (2, 'x')")
	require.NoError(t, err)
	for _, last := range []monitor.Observation{before, o} {
		require.NoError(t, monitor.Advanced(t.Context(), conn, last, []string{"public.outbox"}, false, 1, 2, before.Slot.ObservedAt, false))
	}
	require.ErrorIs(t, monitor.Advanced(t.Context(), conn, o, []string{"public.outbox"}, false, 1, 2, time.Now().Add(time.Minute), false), replication.ErrSlotLost, "no crash since then")
}
