package health

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/metrics"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/slot/monitor"
)

var now = time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

// streaming is a relay that is well, observed is its slot.
func streaming(change func(*relay.State)) relay.State {
	r := relay.State{
		Phase: relay.Streaming, Since: ago(72 * time.Minute), Sessions: 1, ReceivedLSN: 0x2000,
		AckedLSN:          0x2000,
		ConfirmedFlushLSN: 0x1f00, Published: 42, LastProgress: ago(time.Second),
	}
	if change != nil {
		change(&r)
	}
	return r
}

func observed(change func(*slot.Status)) slot.Status {
	s := slot.Status{
		Slot: slot.Slot{
			Name: "postrider", Plugin: "pgoutput", Database: "shop", Active: true, ActivePID: 4711,
			WALStatus:         "reserved",
			ConfirmedFlushLSN: 0x1f00, RestartLSN: 0x1000,
		},
		CurrentWALLSN: 0x2100, LagBytes: new(int64(0x200)), RetainedBytes: new(int64(0x1100)),
		PublicationOK: new(true),
		ObservedAt:    ago(2 * time.Second),
	}
	if change != nil {
		change(&s)
	}
	return s
}

// verdict is that of a condition of this name.
func verdict(name, state, reason, wal, next string) Verdict {
	return Verdict{State: state, Reason: reason, WAL: wal, Next: next, Runbook: strings.ToLower(name)}
}

func TestJudge_NamesReasonConsequenceAndNextStep(t *testing.T) {
	safe := func(n int64) func(*slot.Status) { return func(s *slot.Status) { s.SafeWALSize = &n } }
	phase := func(p relay.Phase, reason string) relay.State {
		return streaming(func(r *relay.State) { r.Phase, r.Error = p, reason })
	}
	for _, c := range []struct {
		name  string
		relay relay.State
		slot  slot.Status
		want  Verdict
	}{
		{
			"all is well", streaming(nil), observed(nil),
			Verdict{State: "ok", Reason: "streaming for 1h12m"},
		},
		{
			"well, before the slot was observed", streaming(nil), slot.Status{},
			Verdict{State: "ok", Reason: "streaming for 1h12m"},
		},
		{
			"well, with messages in flight",
			streaming(func(r *relay.State) { r.OldestUnacked = ago(3 * time.Second) }),
			observed(safe(1 << 30)),
			Verdict{State: "ok", Reason: "streaming for 1h12m"},
		},
		{
			"slot lost, whatever the relay says", phase(relay.Halted, "slot lost"),
			observed(func(s *slot.Status) {
				s.WALStatus = "lost"
			}),
			verdict(
				SlotLost, "failing", `slot "postrider" is lost: PostgreSQL removed WAL that had not been delivered`,
				"none is kept for it any more; what was committed after 0/1F00 has not been published",
				`postrider recover   # then docs/RUNBOOKS.md, "slot_lost"`,
			),
		},
		{
			"slot invalidated", streaming(nil), observed(func(s *slot.Status) {
				s.WALStatus, s.InvalidationReason = "reserved", "idle_timeout"
			}),
			verdict(
				SlotLost, "failing", `slot "postrider" is lost: idle_timeout`,
				"none is kept for it any more; what was committed after 0/1F00 has not been published",
				`postrider recover   # then docs/RUNBOOKS.md, "slot_lost"`,
			),
		},
		{
			"slot unreserved", streaming(nil), observed(func(s *slot.Status) {
				s.WALStatus, s.RetainedBytes = "unreserved", new(int64(3<<30))
			}),
			verdict(
				SlotNearLoss, "failing", `slot "postrider" is over max_slot_wal_keep_size and can be lost at the next checkpoint: the relay keeps up, and no open transaction is seen that would hold restart_lsn back`,
				`what has not been delivered by then is lost with it; 3.0 GiB is kept for slot "postrider", more with every write, until rows are confirmed again`,
				findTransactions,
			),
		},
		{
			"no safe WAL left, before wal_status says so", streaming(nil), observed(safe(-16 << 20)),
			verdict(
				SlotNearLoss, "failing", `slot "postrider" is over max_slot_wal_keep_size and can be lost at the next checkpoint: the relay keeps up, and no open transaction is seen that would hold restart_lsn back`,
				`what has not been delivered by then is lost with it; 4.2 KiB is kept for slot "postrider", more with every write, until rows are confirmed again`,
				findTransactions,
			),
		},
		{
			"halted", phase(relay.Halted, "route row 3: no topic"), observed(nil),
			verdict(
				NotReady, "failing", "route row 3: no topic",
				`4.2 KiB is kept for slot "postrider", more with every write, until rows are confirmed again`,
				"postrider check",
			),
		},
		{
			"halted with a cap on WAL", phase(relay.Halted, "slot missing"), observed(safe(1 << 30)),
			verdict(
				NotReady, "failing", "slot missing",
				`4.2 KiB is kept for slot "postrider", more with every write, until rows are confirmed again; 1.0 GiB until the slot can be lost`,
				"postrider check",
			),
		},
		{
			"no relay, nothing known of the slot", relay.State{}, slot.Status{},
			verdict(
				NotReady, "failing", "no relay is running",
				"PostgreSQL keeps WAL for the slot, more with every write, until rows are confirmed again",
				"postrider run",
			),
		},
		{
			"no relay", relay.State{}, observed(func(s *slot.Status) { s.Active, s.ActivePID = false, 0 }),
			verdict(
				NotReady, "failing", "no relay is running",
				`4.2 KiB is kept for slot "postrider", more with every write, until rows are confirmed again`,
				"postrider run",
			),
		},
		{
			"no relay here, but somewhere", relay.State{}, observed(nil),
			verdict(
				NotReady, "degraded", `slot "postrider" is held by process 4711 of the database, and no relay answers at http.listen`,
				keptElsewhere,
				"postrider status --http-listen HOST:PORT   # where the relay runs",
			),
		},
		{
			"the loop hangs", streaming(func(r *relay.State) { r.LastProgress = ago(2 * time.Minute) }),
			observed(nil),
			verdict(
				Stuck, "failing", "the session loop has not run for 2m0s",
				`4.2 KiB is kept for slot "postrider", more with every write, until rows are confirmed again`,
				"systemctl restart postrider   # or however it was started; report it with the log of the "+
					"last minutes",
			),
		},
		{
			"publication broken", streaming(nil), observed(func(s *slot.Status) {
				s.PublicationOK = new(false)
			}),
			verdict(
				PublicationBroken, "failing", "the publication does not publish every row",
				"rows inserted meanwhile are not in the stream, and do not come once it is repaired",
				"postrider check",
			),
		},
		{
			"backing off", streaming(func(r *relay.State) {
				r.Phase, r.Error, r.NextAttempt = relay.BackingOff, "broker unreachable",
					now.Add(4*time.Second)
			}), observed(nil),
			verdict(
				NotReady, "failing", "broker unreachable; next attempt within 4s",
				`4.2 KiB is kept for slot "postrider", more with every write, until rows are confirmed again`,
				"postrider check",
			),
		},
		{
			"backing off, due", phase(relay.BackingOff, "broker unreachable"), slot.Status{},
			verdict(
				NotReady, "failing", "broker unreachable; the next attempt is due",
				"PostgreSQL keeps WAL for the slot, more with every write, until rows are confirmed again",
				"postrider check",
			),
		},
		{
			"standby", phase(relay.Standby, "slot in use"), observed(nil),
			Verdict{
				State: "standby", Reason: "process 4711 of the database streams from the slot; this relay takes over " +
					"when it disconnects",
				WAL:  "none beyond the usual: the process that holds the slot confirms what it publishes",
				Next: "postrider slot show postrider   # nothing has to be done",
			},
		},
		{
			"standby, slot not observed", phase(relay.Standby, "slot in use"), slot.Status{},
			Verdict{
				State: "standby", Reason: "another process streams from the slot; this relay takes over " +
					"when it disconnects",
				WAL:  "none beyond the usual: the process that holds the slot confirms what it publishes",
				Next: "postrider slot list   # nothing has to be done",
			},
		},
		{
			"starting", streaming(func(r *relay.State) {
				r.Phase, r.Since = relay.Starting,
					ago(2*time.Second)
			}), slot.Status{},
			Verdict{
				State: "degraded", Reason: "the first session is not open yet",
				WAL: "PostgreSQL keeps WAL for the slot, more with every write, until rows are confirmed " +
					"again", Next: "postrider check   # if it stays so",
			},
		},
		{
			"starting for too long", phase(relay.Starting, ""), slot.Status{},
			verdict(
				NotReady, "degraded", "the first session is not open after 1h12m",
				"PostgreSQL keeps WAL for the slot, more with every write, until rows are confirmed again",
				"postrider check",
			),
		},
		{
			"draining", streaming(func(r *relay.State) { r.Phase, r.InFlight = relay.Draining, 17 }),
			observed(nil),
			Verdict{
				State: "degraded", Reason: "stopping: waits for 17 messages in flight",
				WAL:  "what is not acknowledged by the end is kept, and published again by the next start",
				Next: "postrider status --watch   # it ends within relay.drain_timeout",
			},
		},
		{
			"draining for a pause", streaming(func(r *relay.State) {
				r.Phase, r.InFlight,
					r.Paused.Since = relay.Draining, 17, ago(time.Second)
			}), observed(nil),
			Verdict{
				State: "degraded", Reason: "about to pause: waits for 17 messages in flight",
				WAL:  `4.2 KiB is kept for slot "postrider", more with every write, until rows are confirmed again`,
				Next: "postrider status --watch   # postrider resume cancels the pause",
			},
		},
		{
			"stopped, a while ago", streaming(func(r *relay.State) {
				r.Phase,
					r.LastProgress = relay.Stopped, ago(time.Hour)
			}), observed(nil),
			Verdict{
				State: "degraded", Reason: "stopped", Next: "postrider run",
				WAL: `4.2 KiB is kept for slot "postrider", more with every write, until rows are confirmed again`,
			},
		},
		{
			"late", streaming(func(r *relay.State) { r.OldestUnacked = ago(31 * time.Second) }),
			observed(nil),
			verdict(
				LagHigh, "degraded", "the oldest transaction in flight was committed 31s ago",
				`4.2 KiB is kept for slot "postrider", more with every write, until rows are confirmed again`,
				"postrider check   # is the broker slow, or is a backlog being worked off?",
			),
		},
		{
			"very late", streaming(func(r *relay.State) { r.OldestUnacked = ago(6 * time.Minute) }),
			observed(nil),
			verdict(
				LagHigh, "failing", "the oldest transaction in flight was committed 6m0s ago",
				`4.2 KiB is kept for slot "postrider", more with every write, until rows are confirmed again`,
				"postrider check   # is the broker slow, or is a backlog being worked off?",
			),
		},
		{
			"half of the cap used", streaming(nil), observed(safe(1000)),
			verdict(
				SlotNearLoss, "failing", "18 % of max_slot_wal_keep_size is left: 1000 B until the slot can "+
					"be lost: the relay keeps up, and no open transaction is seen that would hold restart_lsn "+
					"back",
				`4.2 KiB is kept for slot "postrider", more with every write, until rows are confirmed again; 1000 B until the slot can be lost`,
				findTransactions,
			),
		},
		{
			"far behind", streaming(nil), observed(func(s *slot.Status) {
				s.LagBytes, s.RetainedBytes = new(int64(5<<30)), new(int64(6<<30))
			}),
			verdict(
				Backlog, "degraded", "5.0 GiB of WAL behind the server",
				`6.0 GiB is kept for slot "postrider", more with every write, until rows are confirmed again`,
				"postrider status --watch   # does it shrink?",
			),
		},
		{
			"observation old", streaming(nil), observed(func(s *slot.Status) {
				s.ObservedAt, s.Error = ago(2*time.Minute), "read slot: connection lost"
			}),
			Verdict{
				State: "degraded", WAL: "not known since then", Next: "postrider check",
				Runbook: "postriderobservationold",
				Reason: "the slot was last observed 2m0s ago: lag and retention are not known; read slot: " +
					"connection lost",
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Judge(Input{
				Now: now, Relay: c.relay, Observation: monitor.Observation{Slot: c.slot}, Config: DefaultConfig(),
			})
			got.Conditions = nil // theirs are the tests of the conditions
			require.Equal(t, c.want, got)
		})
	}
}

// Whatever the phase, somebody who reads that it is not well is told what it means and what to
// type.
func TestJudge_GivesConsequenceAndNextStepWheneverItIsNotWell(t *testing.T) {
	for _, p := range []relay.Phase{
		relay.Starting, relay.Snapshotting, relay.Streaming, relay.Standby, relay.BackingOff,
		relay.Paused, relay.Draining, relay.Stopped, relay.Halted, "",
	} {
		for _, status := range []string{"reserved", "extended", "unreserved", "lost"} {
			for _, publicationOK := range []bool{true, false} {
				r := streaming(func(r *relay.State) { r.Phase = p })
				if p == "" {
					r = relay.State{}
				}
				v := Judge(Input{Now: now, Relay: r,
					Observation: monitor.Observation{Slot: observed(func(s *slot.Status) {
						s.WALStatus,
							s.PublicationOK = status, &publicationOK
					})}, Config: DefaultConfig()})
				require.NotEmpty(t, v.Reason)
				require.Contains(t, []string{OK, Degraded, Failing, Standby}, v.State)
				if v.State != OK {
					require.NotEmpty(t, v.Next, "%s %s %v", p, status, publicationOK)
					require.NotEmpty(t, v.WAL, "%s %s %v", p, status, publicationOK)
				}
			}
		}
	}
}

// metrics must not import relay, so the names of the phases stand there twice.
func TestPhases_AreThoseOfTheMetric(t *testing.T) {
	reg := prometheus.NewRegistry()
	set := metrics.New(reg, "postrider")
	phases := []relay.Phase{
		relay.Starting, relay.Snapshotting, relay.Streaming, relay.Standby, relay.BackingOff,
		relay.Paused, relay.Draining, relay.Stopped, relay.Halted,
	}
	for _, p := range phases {
		set.Phase.Set(string(p))
		n, err := testutil.GatherAndCount(reg, "postrider_relay_phase")
		require.NoError(t, err)
		require.Equal(t, len(phases), n, "the metric does not declare %s, or declares one too many", p)
	}
}

// Whole segments are removed: more than the setting can be left.
func TestLossLimit_IsNeverLessThanWhatIsLeft(t *testing.T) {
	of := func(limit, left, kept int64) monitor.Observation {
		return monitor.Observation{
			Limit: monitor.Limit{Effective: &limit},
			Slot:  slot.Status{Slot: slot.Slot{SafeWALSize: &left}, RetainedBytes: &kept},
		}
	}
	require.EqualValues(t, 64<<20, LossLimit(of(64<<20, 60<<20, 20<<20)), "the setting")
	require.EqualValues(t, 80<<20, LossLimit(of(64<<20, 78<<20, 2<<20)))
	require.EqualValues(t, 80<<20, LossLimit(monitor.Observation{Slot: of(0, 78<<20, 2<<20).Slot}),
		"the setting is not known")
	require.Zero(t, LossLimit(monitor.Observation{}))
}
