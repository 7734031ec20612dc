package health

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/metrics"
)

// watched is a Watcher with its log.
type watched struct {
	*Watcher
	t   *testing.T
	reg *prometheus.Registry
	log bytes.Buffer
}

func newWatched(t *testing.T) *watched {
	w := &watched{t: t, reg: prometheus.NewRegistry()}
	w.Watcher = NewWatcher(metrics.New(w.reg, "postrider"), zerolog.New(&w.log))
	return w
}

// at is a verdict at that many seconds, with what it logs: "level message condition severity".
func (w *watched) at(seconds int, conditions ...Condition) (Verdict, []string) {
	w.t.Helper()
	w.log.Reset()
	v := Verdict{State: OK, Conditions: conditions}
	if len(conditions) > 0 {
		v.apply(conditions[0])
	}
	v = w.Update(now.Add(time.Duration(seconds)*time.Second), v)
	var lines []string
	for line := range strings.Lines(w.log.String()) {
		var fields struct{ Level, Message, Condition, Severity string }
		require.NoError(w.t, json.Unmarshal([]byte(line), &fields))
		lines = append(lines, strings.TrimSpace(strings.Join([]string{
			fields.Level, fields.Message, fields.Condition, fields.Severity,
		}, " ")))
	}
	return v, lines
}

func TestWatcher_LogsWhatBeginsChangesAndEndsOnce(t *testing.T) {
	w := newWatched(t)
	lost := Condition{
		Name: SlotLost, Severity: Critical, Reason: "gone", WAL: "none", Next: "postrider check",
		Cause: "max_slot_wal_keep_size",
	}
	extended := Condition{Name: SlotExtended, Severity: Info}
	gate := Condition{Name: StandbyGate, Severity: Warning}
	for _, step := range []struct {
		seconds    int
		conditions []Condition
		want       []string
	}{
		{0, nil, nil},
		{1, []Condition{extended}, []string{"info condition began PostriderSlotExtended info"}},
		{2, []Condition{extended}, nil},
		{3, []Condition{gate, extended}, []string{"warn condition began PostriderStandbyGate warning"}},
		{4, []Condition{lost, gate}, []string{"error condition began PostriderSlotLost critical"}},
		{5, []Condition{lost, {Name: StandbyGate, Severity: Critical}},
			[]string{"error condition changed PostriderStandbyGate critical"}},
		{12, []Condition{lost}, nil},
		{13, []Condition{lost}, []string{"info condition ended PostriderSlotExtended"}},
		{15, []Condition{lost}, []string{"info condition ended PostriderStandbyGate"}},
		{16, []Condition{lost}, nil},
		{26, nil, []string{"info condition ended PostriderSlotLost"}},
		{27, []Condition{lost}, []string{"error condition began PostriderSlotLost critical"}},
	} {
		_, lines := w.at(step.seconds, step.conditions...)
		require.Equal(t, step.want, lines, "second %d", step.seconds)
	}
	require.JSONEq(t, `{"level":"error","condition":"PostriderSlotLost","severity":"critical","since":"2026-05-06T07:08:36Z","reason":"gone",
		"culprit":"max_slot_wal_keep_size","wal":"none","next":"postrider check","message":"condition began"}`, w.log.String())
}

// A session that ends, and one that is silent for a moment, are no lines of their own.
func TestWatcher_LeavesOutOfTheLogWhatIsOverInAMoment(t *testing.T) {
	w := newWatched(t)
	backingOff := Condition{Name: NotReady, Severity: Critical, For: time.Minute}
	for second := range 4 {
		_, lines := w.at(second, backingOff)
		require.Empty(t, lines)
	}
	_, lines := w.at(20)
	require.Empty(t, lines)
	w.at(30, backingOff)
	_, lines = w.at(35, backingOff)
	require.Equal(t, []string{"error condition began PostriderNotReady critical"}, lines)
}

func TestWatcher_AConditionThatComesAndGoesIsOne(t *testing.T) {
	w := newWatched(t)
	c := Condition{Name: Backlog, Severity: Warning}
	logged := 0
	for second := range 60 {
		var v Verdict
		var lines []string
		if second%2 == 0 {
			v, lines = w.at(second, c)
			require.Equal(t, now, v.Conditions[0].Since)
		} else {
			_, lines = w.at(second)
		}
		logged += len(lines)
	}
	require.Equal(t, 1, logged)
}

func TestWatcher_KeepsSinceWhereTheDataHaveNone(t *testing.T) {
	w := newWatched(t)
	without, with := Condition{Name: Backlog, Severity: Warning},
		Condition{Name: Paused, Severity: Warning, Since: ago(time.Hour)}
	given := []Condition{without, with}
	w.at(0, given...)
	v, _ := w.at(7, given...)
	require.Equal(t, now, v.Conditions[0].Since)
	require.Equal(t, ago(time.Hour), v.Conditions[1].Since)
	require.Zero(t, given[0].Since, "what was given stays as it is")

	between := w.Fill(Verdict{Conditions: []Condition{without, {Name: LagHigh}}})
	require.Equal(t, now, between.Conditions[0].Since)
	require.Zero(t, between.Conditions[1].Since, "nobody has seen it yet")
}

// A relay that backs off begins a phase with each attempt.
func TestWatcher_KeepsSinceOfTheFirstAttempt(t *testing.T) {
	w := newWatched(t)
	var v Verdict
	for attempt := range 5 {
		v, _ = w.at(8*attempt, Condition{
			Name: NotReady, Severity: Critical, Since: now.Add(time.Duration(8*attempt-2) * time.Second),
		})
	}
	require.Equal(t, now.Add(-2*time.Second), v.Conditions[0].Since, "as the first attempt had it")
}

func TestWatcher_ExportsStateAndConditions(t *testing.T) {
	w := newWatched(t)
	want := func(text string) {
		t.Helper()
		require.NoError(t, testutil.GatherAndCompare(w.reg, strings.NewReader(text),
			"postrider_health_state", "postrider_health_condition"))
	}
	const stateHelp = "# HELP postrider_health_state 1 for the verdict of /status, 0 for the " +
		"others. failing: rows are not relayed, or will be lost.\n# TYPE postrider_health_state gauge\n"
	const conditionHelp = "# HELP postrider_health_condition 1 for each condition that holds; its " +
		"name is that of an alert and of a heading in docs/RUNBOOKS.md.\n# TYPE " +
		"postrider_health_condition gauge\n"
	w.at(0, Condition{Name: SlotLost, Severity: Critical},
		Condition{Name: ClockSkew, Severity: Warning})
	want(conditionHelp + `postrider_health_condition{condition="PostriderClockSkew",severity="warning",slot="postrider"} 1
postrider_health_condition{condition="PostriderSlotLost",severity="critical",slot="postrider"} 1
` + stateHelp + `postrider_health_state{slot="postrider",state="degraded"} 0
postrider_health_state{slot="postrider",state="failing"} 1
postrider_health_state{slot="postrider",state="ok"} 0
postrider_health_state{slot="postrider",state="standby"} 0
`)
	w.at(1)
	want(stateHelp + `postrider_health_state{slot="postrider",state="degraded"} 0
postrider_health_state{slot="postrider",state="failing"} 0
postrider_health_state{slot="postrider",state="ok"} 1
postrider_health_state{slot="postrider",state="standby"} 0
`)
}
