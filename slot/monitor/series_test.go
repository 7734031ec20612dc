package monitor_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/metrics"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/slot/monitor"
)

// series are the values of what begins with postrider_slot_, by name and the value of the label that is not the slot's.
func series(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	got := map[string]float64{}
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		name, ours := strings.CutPrefix(f.GetName(), "postrider_slot_")
		if !ours {
			continue
		}
		for _, m := range f.GetMetric() {
			key := name
			for _, l := range m.GetLabel() {
				if l.GetName() != "slot" {
					key += " " + l.GetValue()
				}
			}
			got[key] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return got
}

func everything() monitor.Observation {
	at := time.Unix(1000, 0)
	s := slot.Status{
		Slot: slot.Slot{
			Name: "postrider", RestartLSN: 10, ConfirmedFlushLSN: 12, WALStatus: "unreserved", SafeWALSize: new(int64(3)), Failover: true, Synced: true,
			InactiveSince: at,
		},
		CurrentWALLSN: 17, LagBytes: new(int64(5)), RetainedBytes: new(int64(7)), PublicationOK: new(false), ObservedAt: at.Add(time.Minute),
	}
	other := slot.Status{Slot: slot.Slot{Name: "other", Active: true, SafeWALSize: new(int64(4))}, RetainedBytes: new(int64(6))}
	return monitor.Observation{
		Slot: s, Limit: monitor.Limit{Effective: new(int64(256))}, CatalogXminAge: new(int64(8)),
		Decoding: &monitor.Decoding{SpillBytes: 21, SpillTransactions: 22, StreamBytes: 23, TotalBytes: 24},
		Blockers: []monitor.Blocker{{Kind: monitor.BlockerTransaction, Since: at}, {Kind: monitor.BlockerPrepared, Since: at.Add(time.Second)}, {Kind: monitor.BlockerTransaction, Since: at.Add(time.Minute)}},
		Standbys: []monitor.StandbySlot{{Name: "a"}, {Name: "b", Blocks: true}}, Others: []slot.Status{other},
		Rates:    monitor.Rates{WAL5m: new(31.0), WAL1h: new(32.0), Drain5m: new(33.0), Drain1h: new(34.0)},
		Forecast: monitor.Forecast{Loss: monitor.Estimate{Seconds: new(41.0)}, DiskFull: monitor.Estimate{Seconds: new(42.0)}, CatchUp: monitor.Estimate{Seconds: new(43.0)}},
		Clock:    &monitor.Clock{Skew: 0.5},
	}
}

func TestExport_BringsEverything(t *testing.T) {
	registry := prometheus.NewRegistry()
	export := monitor.Export(metrics.New(registry, "postrider"))
	export(everything())
	got := series(t, registry)
	require.Equal(t, map[string]float64{
		"active": 0, "inactive_since_timestamp_seconds": 1000, "conflicting": 0, "failover": 1, "synced": 1, "publication_ok": 0,
		"wal_status reserved": 0, "wal_status extended": 0, "wal_status unreserved": 1, "wal_status lost": 0,
		"confirmed_flush_lsn": 12, "restart_lsn": 10, "server_wal_lsn": 17, "lag_bytes": 5, "retained_bytes": 7, "safe_wal_bytes": 3, "wal_limit_bytes": 256,
		"catalog_xmin_age": 8, "standby_gate_blocked": 1, "held_since_timestamp_seconds transaction": 1000, "held_since_timestamp_seconds prepared_transaction": 1001,
		"spill_bytes_total": 21, "spill_transactions_total": 22, "stream_bytes_total": 23, "decoded_bytes_total": 24,
		"wal_rate_bytes_per_second 5m": 31, "wal_rate_bytes_per_second 1h": 32, "drain_rate_bytes_per_second 5m": 33, "drain_rate_bytes_per_second 1h": 34,
		"time_to_loss_seconds": 41, "time_to_disk_full_seconds": 42, "catch_up_seconds": 43,
		"other_active other": 1, "other_retained_bytes other": 6, "other_safe_wal_bytes other": 4,
		"clock_skew_seconds": 0.5, "observed_timestamp_seconds": 1060, "observe_errors_total": 0,
	}, got)
}

// What else is true of a lost slot is for nobody to act on: it keeps no WAL, its catalog_xmin holds VACUUM back no more, and it is lost already.
func TestExport_OfALostSlotIsTheLossAlone(t *testing.T) {
	registry := prometheus.NewRegistry()
	export := monitor.Export(metrics.New(registry, "postrider"))
	o := everything()
	export(o)
	before := series(t, registry)
	o.Slot.WALStatus, o.Slot.InvalidationReason, o.Slot.Conflicting = "lost", "idle_timeout", true
	export(o)
	got := series(t, registry)
	for _, name := range []string{
		"lag_bytes", "retained_bytes", "catalog_xmin_age", "time_to_loss_seconds", "held_since_timestamp_seconds transaction", "held_since_timestamp_seconds prepared_transaction",
	} {
		require.Contains(t, before, name)
		require.NotContains(t, got, name)
		delete(before, name)
	}
	before["wal_status unreserved"], before["wal_status lost"], before["invalidated idle_timeout"], before["conflicting"] = 0, 1, 1, 1
	require.Equal(t, before, got)
}

func TestExport_ClearsWhatIsNotKnownAnyMore(t *testing.T) {
	registry := prometheus.NewRegistry()
	export := monitor.Export(metrics.New(registry, "postrider"))
	export(everything())
	export(monitor.Observation{Slot: slot.Status{Slot: slot.Slot{Name: "postrider", Active: true, WALStatus: "reserved"}, ObservedAt: time.Unix(2000, 0)}})
	got := series(t, registry)
	require.Equal(t, map[string]float64{
		"active": 1, "conflicting": 0, "failover": 0, "synced": 0, "wal_status reserved": 1, "wal_status extended": 0, "wal_status unreserved": 0, "wal_status lost": 0,
		"observed_timestamp_seconds": 2000, "observe_errors_total": 0,
		"publication_ok": 0, "clock_skew_seconds": 0.5, // not looked at again: they stay
	}, got)
}

func TestExport_KeepsWhatWasKnownWhileTheServerIsGone(t *testing.T) {
	registry := prometheus.NewRegistry()
	export := monitor.Export(metrics.New(registry, "postrider"))
	o := everything()
	export(o)
	before := series(t, registry)
	o.Slot.Error = "server gone"
	o.Slot.LagBytes, o.Clock, o.Others = nil, nil, nil
	export(o)
	after := series(t, registry)
	require.InDelta(t, 1, after["observe_errors_total"], 0)
	delete(after, "observe_errors_total")
	delete(before, "observe_errors_total")
	require.Equal(t, before, after)
}

// A lost slot keeps nothing, though PostgreSQL 18 leaves restart_lsn with one that was idle for too long; a synchronized copy on a standby is inactive
// until the failover. Neither is for an alert.
func TestExport_LeavesOutOtherSlotsThatNeedNobody(t *testing.T) {
	registry := prometheus.NewRegistry()
	export := monitor.Export(metrics.New(registry, "postrider"))
	other := func(s slot.Slot) slot.Status {
		s.RestartLSN, s.SafeWALSize = 10, new(int64(4))
		return slot.Status{Slot: s, RetainedBytes: new(int64(6))}
	}
	export(monitor.Observation{
		Slot: slot.Status{Slot: slot.Slot{Name: "postrider", Active: true, WALStatus: "reserved"}, ObservedAt: time.Unix(2000, 0)},
		Others: []slot.Status{
			other(slot.Slot{Name: "invalidated", WALStatus: "lost", InvalidationReason: "idle_timeout"}),
			other(slot.Slot{Name: "synced", WALStatus: "reserved", Synced: true}),
			other(slot.Slot{Name: "forgotten", WALStatus: "extended"}),
		},
	})
	got := series(t, registry)
	maps.DeleteFunc(got, func(name string, _ float64) bool { return !strings.HasPrefix(name, "other_") })
	require.Equal(t, map[string]float64{"other_active forgotten": 0, "other_retained_bytes forgotten": 6, "other_safe_wal_bytes forgotten": 4}, got)
}
