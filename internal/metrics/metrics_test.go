package metrics

import (
	"flag"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite testdata/series.golden")

// filled is a registry in which every series has a value.
func filled(t *testing.T) (*Set, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	s := New(reg, "orders")
	RegisterBuild(reg, "1.2.3")
	at := time.Date(2026, 1, 2, 3, 4, 5, 600_000_000, time.UTC)
	for _, o := range []*Optional{
		s.AckedLSN, s.ReceivedLSN, s.ConfirmedFlushLSN, s.SlotConfirmedFlushLSN, s.SlotRestartLSN,
		s.SlotServerWALLSN,
	} {
		o.SetLSN(0x1_0000_0010)
	}
	for _, o := range []*Optional{
		s.OldestUnacked, s.LastProgress, s.ConfigLoaded, s.SlotObserved, s.SnapshotEstimated,
		s.SnapshotCompleted, s.ParkedKeys, s.PruneLastRun, s.WriteBackLastSweep,
	} {
		o.SetTime(at)
	}
	for _, o := range []*Optional{s.SlotLagBytes, s.SlotRetainedBytes, s.SlotSafeWALBytes} {
		o.Set(-7)
	}
	for _, o := range []*Optional{
		s.ConfigReloaded, s.SlotWALLimitBytes, s.SlotTimeToLoss, s.SlotTimeToDiskFull, s.SlotCatchUp,
		s.SlotInactiveSince, s.SlotConflicting,
		s.SlotFailover, s.SlotSynced, s.SlotStandbyBlocked, s.SlotCatalogXminAge, s.SlotSpillBytes,
		s.SlotSpillTransactions, s.SlotStreamBytes,
		s.SlotDecodedBytes, s.SlotClockSkew,
	} {
		o.Set(1)
	}
	for _, v := range []*OptionalVec{
		s.SlotWALRate, s.SlotDrainRate, s.SlotInvalidated, s.SlotOldestBlocker, s.SlotOtherActive,
		s.SlotOtherRetained, s.SlotOtherSafeWAL, s.RateLimitRows, s.RateLimitBytes,
		s.PruneGaps, s.PruneOldestRow, s.PruneDeadRows, s.PruneAutovacuum,
	} {
		v.Replace(Sample(1, "5m"))
	}
	s.HealthCondition.Replace(Sample(1, "PostriderSlotLost", "critical"))
	s.HealthState.Set("ok")
	s.AlertsSent.WithLabelValues("webhook").Inc()
	s.AlertsFailed.WithLabelValues("webhook").Inc()
	s.DeadLetters.WithLabelValues("not_routable").Inc()
	s.DeadLetterSkipped.WithLabelValues("too_large").Inc()
	s.PruneRows.WithLabelValues("public.outbox").Inc()
	s.RateWaited.WithLabelValues("relay.max_rate").Inc()
	s.WriteBackRows.WithLabelValues("published").Inc()
	s.SlotActive.SetBool(true)
	s.SlotPublicationOK.SetBool(false)
	s.Phase.Set("streaming")
	s.SlotWALStatus.Set("reserved")
	s.SessionsEnded.WithLabelValues("connection_lost").Inc()
	s.PublishErrors.WithLabelValues("too_large").Inc()
	s.Topic("outbox.event.order").Published.Inc()
	return s, reg
}

func TestSet_PassesTheLinter(t *testing.T) {
	_, reg := filled(t)
	problems, err := testutil.GatherAndLint(reg)
	require.NoError(t, err)
	require.Empty(t, problems)
}

func TestSet_ExportsTheSeriesOfTheGoldenFile(t *testing.T) {
	_, reg := filled(t)
	got := describe(t, reg)
	const golden = "testdata/series.golden"
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), got, "dashboards and alerts use these names; after a change on "+
		"purpose: go test ./internal/metrics -update")
}

// describe prints one block per family: type, name, labels, help.
func describe(t *testing.T, reg prometheus.Gatherer) string {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	var b strings.Builder
	for _, f := range families {
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		fmt.Fprintf(&b, "%s %s{%s}\n    %s\n", strings.ToLower(f.GetType().String()), f.GetName(),
			strings.Join(labels, ","), f.GetHelp())
		if h := f.GetMetric()[0].GetHistogram(); h != nil {
			fmt.Fprintf(&b, "    buckets %s\n", buckets(h))
		}
	}
	return b.String()
}

func buckets(h *dto.Histogram) string {
	var bounds []string
	for _, b := range h.GetBucket() {
		bounds = append(bounds, fmt.Sprint(b.GetUpperBound()))
	}
	return strings.Join(bounds, " ")
}

func TestSet_HasNoLabelBeyondTheBoundedOnes(t *testing.T) {
	_, reg := filled(t)
	families, err := reg.Gather()
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				seen[l.GetName()] = true
			}
		}
	}
	var names []string
	for n := range seen {
		names = append(names, n)
	}
	sort.Strings(names)
	require.Equal(t, []string{
		"cause", "condition", "go_version", "holder", "limit", "other_slot", "phase", "reason",
		"receiver", "relation", "result", "severity", "slot", "state", "status", "topic", "version", "window",
	}, names)
}

func TestSet_LeavesOutWhatIsNotKnown(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	s := New(reg, "orders")
	absent := []string{
		"postrider_relay_acked_lsn", "postrider_relay_oldest_unacked_timestamp_seconds",
		"postrider_slot_active",
		"postrider_slot_safe_wal_bytes", "postrider_slot_wal_status",
		"postrider_slot_observed_timestamp_seconds",
	}
	n, err := testutil.GatherAndCount(reg, absent...)
	require.NoError(t, err)
	require.Zero(t, n)

	s.SlotSafeWALBytes.Set(0)
	n, err = testutil.GatherAndCount(reg, "postrider_slot_safe_wal_bytes")
	require.NoError(t, err)
	require.Equal(t, 1, n, "a zero that was set is a value")

	s.SlotSafeWALBytes.Clear()
	n, err = testutil.GatherAndCount(reg, "postrider_slot_safe_wal_bytes")
	require.NoError(t, err)
	require.Zero(t, n)
}

func TestOptional_ConvertsPositionsAndTimes(t *testing.T) {
	s := New(prometheus.NewRegistry(), "orders")
	s.AckedLSN.SetLSN(pglogrepl.LSN(0x2_0000_0001))
	require.Equal(t, float64(0x2_0000_0001), testutil.ToFloat64(s.AckedLSN))
	s.OldestUnacked.SetTime(time.Unix(1_700_000_000, 250_000_000))
	require.Equal(t, 1_700_000_000.25, testutil.ToFloat64(s.OldestUnacked))

	s.AckedLSN.SetLSN(0)
	s.OldestUnacked.SetTime(time.Time{})
	require.Zero(t, testutil.CollectAndCount(s.AckedLSN))
	require.Zero(t, testutil.CollectAndCount(s.OldestUnacked))
}

// Rules and dashboards that read a series by its former name still do.
func TestSet_ExportsARenamedSeriesUnderBothNames(t *testing.T) {
	reg := prometheus.NewRegistry()
	s := New(reg, "orders")
	s.DeadLetters.WithLabelValues("parked").Add(2)
	s.DeadLetters.WithLabelValues("too_large").Inc()
	for _, name := range []string{"postrider_dead_letters_total",
		"postrider_deadletter_letters_total"} {
		help := "Deprecated: renamed to postrider_dead_letters_total."
		if name == "postrider_dead_letters_total" {
			help = helps()["dead_letters_total"]
		}
		require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP `+name+` `+help+`
# TYPE `+name+` counter
`+name+`{cause="parked",slot="orders"} 2
`+name+`{cause="too_large",slot="orders"} 1
`), name))
	}
}

func TestEnum_HasExactlyOneValueThatHolds(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	s := New(reg, "orders")
	for _, phase := range append([]string{"phase of a newer version"}, s.Phase.values...) {
		s.Phase.Set(phase)
		families, err := reg.Gather()
		require.NoError(t, err)
		var holding []string
		for _, f := range families {
			if f.GetName() != "postrider_relay_phase" {
				continue
			}
			for _, m := range f.GetMetric() {
				if m.GetGauge().GetValue() == 1 {
					holding = append(holding, m.GetLabel()[0].GetValue())
				}
			}
		}
		require.Equal(t, []string{phase}, holding)
	}
}

func TestTopic_BoundsTheLabel(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	s := New(reg, "orders")
	for i := range maxTopics + 50 {
		s.Topic(fmt.Sprintf("topic-%03d", i)).Published.Inc()
	}
	s.Topic("topic-007").Published.Inc()

	n, err := testutil.GatherAndCount(reg, "postrider_sink_published_total")
	require.NoError(t, err)
	require.Equal(t, maxTopics+1, n)
	require.Equal(t, 2.0, testutil.ToFloat64(s.Topic("topic-007").Published),
		"a topic within the bound keeps its own series")
	require.Equal(t, 50.0, testutil.ToFloat64(s.Topic("one more").Published))
}

// The bound is on the label, whatever the rows say: a topic that is really called "other" shares
// its series.
func TestTopic_CalledOtherSharesTheSeries(t *testing.T) {
	s := New(prometheus.NewPedanticRegistry(), "orders")
	s.Topic("other").Published.Inc()
	for i := range maxTopics {
		s.Topic(fmt.Sprint(i)).Published.Inc()
	}
	require.Equal(t, 2.0, testutil.ToFloat64(s.Topic("beyond").Published))
}

func TestTopic_CountsEveryMessageOfConcurrentCallers(t *testing.T) {
	s := New(prometheus.NewPedanticRegistry(), "orders")
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for i := range maxTopics {
				s.Topic(fmt.Sprint(i)).Published.Inc()
			}
		})
	}
	callers.Wait()
	for i := range maxTopics {
		require.Equal(t, 4.0, testutil.ToFloat64(s.Topic(fmt.Sprint(i)).Published))
	}
}

func TestSet_DoesNotAllocateOnTheHotPath(t *testing.T) {
	s := New(prometheus.NewRegistry(), "orders")
	s.Topic("outbox.event.order")
	now := time.Now()
	allocs := testing.AllocsPerRun(100, func() {
		s.ReceivedBytes.Add(100)
		s.Transactions.Inc()
		s.EventsRouted.Inc()
		s.InFlight.Set(3)
		s.InFlightBytes.Set(300)
		s.AckedLSN.SetLSN(42)
		s.OldestUnacked.SetTime(now)
		s.CommitToAck.Observe(.002)
		s.PublishSeconds.Observe(.001)
		topic := s.Topic("outbox.event.order")
		topic.Published.Inc()
		topic.Bytes.Add(100)
	})
	require.Zero(t, allocs)
}
