package faults

import (
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Versions that copy slots to standbys.
var copying = []string{"17", "18"}

func TestFault08_PromotionLosesNothing(t *testing.T) {
	t.Parallel()
	for _, version := range copying {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, version)
			// Hosts of which one can be written to; or a name that leads to the standby, here in a file, before that is promoted.
			several := version == "17"
			repoint := func(string) {}
			if !several {
				repoint = p.secretFile(t)
				repoint(p.onPrimary)
			}
			delete(p.settings, "relay.backoff_max")
			// Neither the writers nor the relay get ahead of the standby.
			p.alter(t, "synchronous_standby_names", physicalSlot)
			p.alter(t, "synchronized_standby_slots", physicalSlot)
			relay := p.started(t)
			require.True(t, query[bool](t, p.onPrimary, "SELECT failover FROM pg_replication_slots WHERE slot_name = $1", p.slot), "as slot.failover says")
			l := p.load(t, rate())
			p.copied(t)
			l.more(t, 500)

			records := p.follow(t.Context(), t)
			require.NoError(t, p.primary.Kill())
			if !several {
				repoint(p.onStandby)
				eventually(t, time.Minute, "relay has found the standby", func() bool { return relay.ask().Relay.Reason == "not_writable" })
			}
			p.promote(t)
			began := time.Now()
			first := records.firstAfter(t, began)
			eventually(t, time.Minute, "relay follows the promotion", func() bool {
				relay.requireRunning(t)
				return relay.Log.Count(`"server was promoted`) > 0 && relay.ask().Relay.Phase == "streaming"
			})
			l.more(t, 500)
			p.drained(t, time.Minute)
			caughtUp := time.Since(began)
			l.end(t)
			p.drained(t, time.Minute)
			require.Zero(t, relay.ask().Relay.Phantoms.Messages)
			require.Zero(t, relay.Log.Count("consumers have messages of transactions that are not in the database"))
			// Else the monitor would not report the end of a session whose connection is half open.
			require.True(t, query[bool](t, p.onStandby, "SELECT synced FROM pg_replication_slots WHERE slot_name = $1", p.slot), "the promotion leaves it set")
			require.False(t, relay.ask().Slot.Synced, "the slot is a copy no more")
			relay.stop(t)
			v := p.judge(t)
			requireNothingLost(t, v)
			require.LessOrEqual(t, v.Duplicated, int64(repeats))
			how := "one address that changes before the promotion"
			if several {
				how = "several hosts"
			}
			matrix(t, 8, "", fmt.Sprintf("synchronous, %s: first row %.1f s after the promotion, caught up after %.1f s; %d repeated, none a phantom",
				how, first.Seconds(), caughtUp.Seconds(), v.Duplicated))
			requireSoon(t, times{first})
		})
	}
}

func TestFault08_PromotionWithoutTheEndReportsPhantoms(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		version     string
		exactlyOnce bool
	}{"17": {"17", false}, "18": {"18", false}, "exactly once": {"18", true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, c.version)
			if c.exactlyOnce {
				p.exactlyOnce(t)
			}
			relay := p.started(t)
			l := p.load(t, rate())
			p.copied(t)
			l.more(t, 300)
			l.end(t)
			p.drained(t, time.Minute)
			p.replayed(t)

			// What follows is published, and reaches no standby.
			const phantoms = 30
			p.link.Refuse()
			execute(t, p.onPrimary, fmt.Sprintf(`INSERT INTO outbox (aggregate_type, aggregate_id, payload, number)
				SELECT '%s', 'phantom-' || n, jsonb_build_object('key', 'phantom-' || n, 'number', 1), 1 FROM generate_series(1, %d) n`, p.topic, phantoms))
			eventually(t, 30*time.Second, "phantoms published", func() bool {
				return query[bool](t, p.onPrimary, "SELECT confirmed_flush_lsn >= $1::pg_lsn FROM pg_replication_slots WHERE slot_name = $2",
					currentLSN(t, p.onPrimary).String(), p.slot)
			})
			require.NoError(t, p.primary.Kill())
			p.promote(t)
			began := time.Now()
			eventually(t, time.Minute, "relay follows the promotion", func() bool {
				relay.requireRunning(t)
				return relay.ask().Relay.Phantoms.Messages > 0 && relay.ask().Relay.Phase == "streaming"
			})
			followed := time.Since(began)
			st := relay.ask()
			require.Equal(t, phantoms, st.Relay.Phantoms.Messages)
			require.Equal(t, int32(2), st.Relay.Phantoms.Timeline)
			require.NotZero(t, relay.Log.Count("consumers have messages of transactions that are not in the database"))
			require.InDelta(t, phantoms, relay.metric(t, "postrider_relay_phantom_messages_total"), 0)
			eventually(t, 30*time.Second, "condition", func() bool { return relay.ask().has("PostriderPhantomEvents") })

			// The positions of the old timeline are used again, for other rows.
			p.loads = 10
			l = p.load(t, rate())
			l.more(t, 500)
			l.end(t)
			p.drained(t, time.Minute)
			relay.stop(t)
			v := p.judge(t)
			require.Zero(t, v.Lost)
			require.Zero(t, v.OutOfOrder)
			require.Zero(t, v.Partial)
			require.EqualValues(t, phantoms, v.Phantom)
			require.LessOrEqual(t, v.Duplicated, int64(repeats))
			if c.exactlyOnce {
				require.Zero(t, v.Duplicated)
			}
			matrix(t, 8, "", fmt.Sprintf("asynchronous: streams %.1f s after the promotion; %d phantoms made, %d reported; %d repeated",
				followed.Seconds(), v.Phantom, st.Relay.Phantoms.Messages, v.Duplicated))
		})
	}
}

var blocked = regexp.MustCompile(`(?m)^postrider_slot_standby_gate_blocked\{.*\} 1$`)

func TestFault09_ListedStandbyDownHoldsTheStream(t *testing.T) {
	t.Parallel()
	for _, version := range copying {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, version)
			p.alter(t, "synchronized_standby_slots", physicalSlot)
			relay := p.started(t)
			l := p.load(t, rate())
			l.more(t, 300)
			require.NoError(t, p.standby.Stop(t.Context()))
			began := time.Now()
			eventually(t, time.Minute, "status says gated", func() bool {
				relay.requireRunning(t)
				metrics, _ := relay.get("/metrics")
				return relay.ask().has("PostriderStandbyGate") && blocked.Match(metrics)
			})
			told := time.Since(began)
			require.Equal(t, "failing", relay.ask().Verdict.State)
			// What it has may be acknowledged until now: only what it does not have is held.
			has := parseLSN(t, query[string](t, p.onPrimary, "SELECT restart_lsn::text FROM pg_replication_slots WHERE slot_name = $1", physicalSlot))
			l.more(t, 300)
			require.Equal(t, "streaming", relay.ask().Relay.Phase)
			require.LessOrEqual(t, p.confirmed(t), has, "confirmed what the standby does not have")
			l.end(t)

			require.NoError(t, p.standby.Start(t.Context()))
			began = time.Now()
			p.drained(t, time.Minute)
			back := time.Since(began)
			eventually(t, time.Minute, "status is well again", func() bool { return !relay.ask().has("PostriderStandbyGate") })
			relay.stop(t)
			requireExact(t, p.judge(t))
			matrix(t, 9, "", fmt.Sprintf("status says so after %.1f s; caught up %.1f s after the standby's return", told.Seconds(), back.Seconds()))
		})
	}
}
