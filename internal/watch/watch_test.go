package watch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/check"
	"github.com/postrider/postrider/internal/status"
	"github.com/postrider/postrider/internal/status/statustest"
	"github.com/postrider/postrider/slot/monitor"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/internal/history"
	"github.com/postrider/postrider/internal/secret"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/slot"
)

func sampleContent() content {
	o := monitor.Observation{Slot: statustest.Observed(nil),
		Others: []slot.Status{{Slot: slot.Slot{Name: "forgotten", Plugin: "pgoutput",
			WALStatus: "extended"}, RetainedBytes: new(int64(7 << 30))}}}
	o.Forecast.Loss = monitor.Estimate{Seconds: new(3600.0), Assumption: "at 1.0 MiB/s of WAL"}
	w := content{
		at: statustest.Now.Add(-time.Second), slot: o,
		verdict: health.Verdict{
			State: health.Degraded, Reason: "the slot keeps much", WAL: "7.0 GiB is kept",
			Next: "postrider check",
			Conditions: []health.Condition{{Name: "PostriderSlotNearLoss",
				Severity: health.Warning, Reason: "less than half is left",
				Since: statustest.Ago(time.Minute)}},
		},
		pipeline: status.Pipeline{
			Phase: relay.Streaming, Since: statustest.Ago(72 * time.Minute), Server: 0x2100,
			Received: 0x2000, Acked: 0x2000, Confirmed: 0x1f00, Restart: 0x1000,
			Distances: status.Distances{Received: new(int64(0x100)), Confirmed: new(int64(0x100)),
				Restart: new(int64(0xf00))},
			Rates: status.Rates{WAL: new(1e6), Published: 12.5},
		},
		topics: status.Topics{Topics: []status.Topic{{Topic: "outbox.event.order", Published: 42,
			PerSecond: 1.5, LastPublished: statustest.Ago(2 * time.Second),
			Warnings: []string{"partitions without leader"}}}},
		events: status.Events{Events: []relay.Published{{At: statustest.Ago(time.Second),
			Topic: "outbox.event.order", EventID: "e-1", LSN: "0/2000", LatencySeconds: .0021,
			Bytes: 300}}},
		errors: status.Errors{Errors: []status.Error{{Failure: relay.Failure{Reason: "broker_unreachable", Class: "retryable", Count: 3, FirstSeen: statustest.Ago(time.Hour), LastSeen: statustest.Ago(time.Minute), Text: "no broker\nanswers"}}}},
		check: check.Report{At: statustest.Ago(5 * time.Second),
			Findings: []check.Finding{{Severity: check.SeverityWarning,
				Code: "max_slot_wal_keep_size", Observed: "-1", Fix: "ALTER SYSTEM SET ..."}}},
		config: status.Config{Values: []config.Value{{Key: "slot.name", Value: "postrider",
			TOML: `"postrider"`, Origin: "default"}}},
		build: status.Build{Version: "v1.2.3"},
	}
	for i := range 100 {
		w.history.Samples = append(w.history.Samples,
			history.Sample{PublishedPerSecond: float64(i), LagBytes: new(int64(i % 10))})
	}
	return w
}

func sampleScreen(c content) screen {
	return screen{
		load: func(t tab) content { c.tab = t; return c }, every: time.Hour,
		now:     func() time.Time { return statustest.Now },
		content: c, width: 100, height: 40,
	}
}

func TestWatch_ShowsWhatThePageShows(t *testing.T) {
	for shown, want := range map[tab][]string{
		tabOverview: {
			"postrider degraded  streaming for 1h12m", "the slot keeps much",
			"next: postrider check",
			"warning PostriderSlotNearLoss  less than half is left  for 1m",
			"0/2100", "12.5 events/s", "256 B not yet confirmed",
			"slot postrider  reserved, 4.2 KiB retained, no limit",
			"lost in 1h0m: at 1.0 MiB/s of WAL", "██ up to 99.0",
		},
		tabSlots:  {"forgotten", "extended", "7.0 GiB"},
		tabTopics: {"outbox.event.order", "1.5/s", "2s ago", "partitions without leader"},
		tabEvents: {"e-1", "2.1 ms", "300 B"},
		tabErrors: {"broker_unreachable", "3", "1h0m", "no broker answers"},
		tabCheck:  {"checked 5s ago", "warning", "max_slot_wal_keep_size", "ALTER SYSTEM SET"},
		tabConfig: {"slot.name", `"postrider"`, "default"},
	} {
		s := sampleScreen(sampleContent())
		s.tab, s.content.tab = shown, shown
		text := ansi.Strip(s.text())
		for _, w := range want {
			require.Contains(t, text, w, "%s", tabNames[shown])
		}
	}
}

func TestWatch_CommandsNoTerminal(t *testing.T) {
	const hostile = "a\x1b[2K\u202e\u009b\rb"
	c := sampleContent()
	c.verdict.Reason, c.verdict.WAL, c.verdict.Next, c.verdict.Conditions[0].Reason = hostile, hostile, hostile, hostile
	c.slot.Forecast.Loss.Assumption, c.slot.Others[0].Database = hostile, hostile
	c.slot.Notes, c.slot.Events = []monitor.Note{{Value: "x", Text: hostile}}, []monitor.Event{{Text: hostile}}
	c.topics.Topics[0].Topic, c.events.Events[0].EventID, c.errors.Errors[0].Text = hostile, hostile, hostile
	f := &c.check.Findings[0]
	f.Subject, f.Observed, f.Fix, c.config.Values[0].TOML = hostile, hostile, hostile, hostile
	for shown := range tabs {
		s := sampleScreen(c)
		s.tab, s.content.tab = shown, shown
		require.Contains(t, ansi.Strip(s.text()), "a [2K", "%s", tabNames[shown])
		require.False(t, strings.Contains(s.text(), "\x1b[2K") || strings.ContainsAny(s.text(), "\u202e\u009b\r"), "%s", tabNames[shown])
	}
}

func TestWatch_FitsTheTerminal(t *testing.T) {
	for _, size := range [][2]int{{20, 5}, {40, 12}, {80, 24}, {200, 60}} {
		for shown := range tabs {
			s := sampleScreen(sampleContent())
			s.tab, s.content.tab, s.width, s.height = shown, shown, size[0], size[1]
			lines := strings.Split(s.text(), "\n")
			require.Len(t, lines, max(size[1], frameLines+1), "%s at %v", tabNames[shown], size)
			for _, l := range lines {
				require.LessOrEqual(t, lipgloss.Width(l), size[0], "%s at %v: %q", tabNames[shown],
					size, l)
			}
		}
	}
}

func TestWatch_ScrollsNoFurtherThanThereIsText(t *testing.T) {
	var m tea.Model = sampleScreen(sampleContent())
	m, _ = m.Update(tea.WindowSizeMsg{Width: 80, Height: 10})
	for range 100 {
		m, _ = m.Update(tea.KeyPressMsg(tea.Key{Code: tea.KeyDown}))
	}
	s := m.(screen)
	require.Equal(t, s.lines()-(10-frameLines), s.scroll)
	require.Contains(t, ansi.Strip(s.text()), "retained bytes", "the last line")
	m, _ = m.Update(tea.KeyPressMsg(tea.Key{Code: tea.KeyHome}))
	require.Zero(t, m.(screen).scroll)
}

func TestWatch_FreezesWhatIsShown(t *testing.T) {
	var m tea.Model = sampleScreen(sampleContent())
	m, _ = press(m, 'p')
	next := sampleContent()
	next.verdict.State = health.OK
	m, _ = m.Update(refreshMsg(next))
	require.Contains(t, ansi.Strip(m.(screen).text()), "postrider degraded")
	require.Contains(t, ansi.Strip(m.(screen).text()), "frozen 1s ago")

	m, loads := press(m, '3')
	require.Nil(t, loads, "it would be of another time")
	require.Contains(t, ansi.Strip(m.(screen).text()), "overview is frozen: p continues")
	next.tab = tabTopics
	m, _ = m.Update(reloadMsg(next)) // of a tab that was opened before
	m, _ = press(m, '2')
	require.Contains(t, ansi.Strip(m.(screen).text()), "postrider degraded")
	require.Contains(t, ansi.Strip(m.(screen).text()), "forgotten", "the slots are part of every tab")
	m, _ = press(m, '3')

	m, loads = press(m, 'p')
	require.Contains(t, ansi.Strip(m.(screen).text()), "loading ...")
	m, _ = m.Update(loads())
	require.NotContains(t, ansi.Strip(m.(screen).text()), "frozen")
	require.Contains(t, ansi.Strip(m.(screen).text()), "outbox.event.order")
}

func TestWatch_ARefreshOfAnotherTabDoesNotReplaceTheOneThatIsOpen(t *testing.T) {
	s := sampleScreen(sampleContent())
	var m tea.Model = s
	underWay := s.refresh()
	m, opens := press(m, '3')
	require.Contains(t, ansi.Strip(m.(screen).text()), "loading ...")
	m, _ = m.Update(opens())
	require.Contains(t, ansi.Strip(m.(screen).text()), "outbox.event.order")
	m, next := m.Update(underWay())
	require.Contains(t, ansi.Strip(m.(screen).text()), "outbox.event.order")
	require.NotNil(t, next, "the refreshes go on")
}

// The relay leaves out of an answer what there is not.
func TestWatch_ShowsNothingThatIsOver(t *testing.T) {
	var shown atomic.Pointer[content]
	bad := sampleContent()
	bad.slot.Notes = []monitor.Note{{Value: "wal_directory", Text: "needs pg_monitor"}}
	bad.verdict.Conditions = append([]health.Condition{{Name: "PostriderPaused", Severity: health.Critical, Reason: "it is paused",
		Since: statustest.Ago(time.Hour)}}, bad.verdict.Conditions...)
	shown.Store(&bad)
	relay := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := shown.Load()
		part := map[string]any{"/api/slot": c.slot, "/api/verdict": c.verdict, "/api/topics": c.topics,
			"/status": statustest.Well()}[r.URL.Path]
		if part == nil {
			part = struct{}{}
		}
		if err := json.NewEncoder(w).Encode(part); err != nil {
			t.Error(err)
		}
	}))
	defer relay.Close()
	l := &config.Loaded{Config: config.Default()}
	l.Config.HTTP.Listen, l.Config.Slot.Name = strings.TrimPrefix(relay.URL, "http://"), "postrider"
	s := sampleScreen(content{})
	s.load = func(t tab) content { return load(context.Background(), l, new(status.Answers), t) }
	refresh := func(m tea.Model) tea.Model {
		m, _ = m.Update(m.(screen).refresh()())
		return m
	}
	for _, c := range []struct {
		tab  tab
		over []string
	}{
		{tabOverview, []string{"WAL:  7.0 GiB is kept", "next: postrider check", "PostriderPaused", "it is paused  for 1h0m", "PostriderSlotNearLoss", "lost in 1h0m"}},
		{tabSlots, []string{"forgotten", "needs pg_monitor"}},
		{tabTopics, []string{"2s ago", "partitions without leader"}},
	} {
		s.tab = c.tab
		shown.Store(&bad)
		before := refresh(s)
		well := sampleContent()
		well.verdict = health.Verdict{State: health.OK, Reason: "all is well", Conditions: []health.Condition{
			{Name: "PostriderClockSkew", Severity: health.Warning, Reason: "a clock is wrong"}}}
		well.slot.Others, well.slot.Forecast = nil, monitor.Forecast{}
		well.topics.Topics[0].LastPublished, well.topics.Topics[0].Warnings = time.Time{}, nil
		shown.Store(&well)
		after := ansi.Strip(refresh(before).(screen).text())
		for _, over := range c.over {
			require.Contains(t, ansi.Strip(before.(screen).text()), over, "what is on the screen stays as it is")
			require.NotContains(t, after, over, "%s", tabNames[c.tab])
		}
		require.Contains(t, after, "postrider ok")
		if c.tab == tabOverview {
			require.Regexp(t, `(?m)PostriderClockSkew  a clock is wrong *$`, after, "without what another condition had")
		}
	}
}

func press(m tea.Model, key rune) (tea.Model, tea.Cmd) {
	return m.Update(tea.KeyPressMsg(tea.Key{Code: key, Text: string(key)}))
}

func TestWatch_SaysWhoAnswersWhenTheRelayDoesNot(t *testing.T) {
	r := statustest.Well()
	r.Source, r.DaemonError, r.Relay = status.SourceDatabase, "connection refused", relay.State{}
	require.Contains(t, ansi.Strip(sampleScreen(content{at: statustest.Now, report: &r}).text()),
		"no answer: what follows comes from the database")
	require.Contains(t,
		sampleScreen(content{at: statustest.Now, err: errors.New("neither answers")}).text(),
		"neither answers")
	require.Contains(t, sampleScreen(content{}).text(), "connecting ...")
}

func TestWatch_DoesNotShowTheRelayOfAnotherSlot(t *testing.T) {
	shown := sampleContent()
	relays := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any = struct{}{}
		switch r.URL.Path {
		case "/api/slot":
			answer = shown.slot
		case "/api/verdict":
			answer = shown.verdict
		case "/status":
			answer = statustest.Well()
		}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	defer relays.Close()
	l := &config.Loaded{Config: config.Default()}
	l.Config.HTTP.Listen = strings.TrimPrefix(relays.URL, "http://")
	for shows := range tabs {
		l.Config.Postgres.URL = secret.Of("postgres://127.0.0.1:1/shop")
		l.Config.Slot.Name = "postrider"
		c := load(t.Context(), l, new(status.Answers), shows)
		require.NoError(t, c.err)
		require.Equal(t, shown.verdict.Reason, c.verdict.Reason, "%s", tabNames[shows])
		l.Config.Slot.Name = "billing"
		c = load(t.Context(), l, new(status.Answers), shows)
		require.ErrorContains(t, c.err, `the relay of slot "postrider" answers`, "%s", tabNames[shows])
		require.Empty(t, c.verdict)
		l.Config.Slot.Name = "postrider"
		l.Config.Postgres.URL = secret.Of("postgres://127.0.0.1:1/crm")
		c = load(t.Context(), l, new(status.Answers), shows)
		require.ErrorContains(t, c.err, `the relay of slot "postrider" in another database (shop) answers`)
		require.Empty(t, c.verdict)
	}
}

func TestWatch_EndsWithAKeyOrASignal(t *testing.T) {
	l := &config.Loaded{Config: config.Default()}
	l.Config.HTTP.Listen = "" // nobody is asked
	l.Config.Postgres.URL = secret.Of("postgres://127.0.0.1:1/none")
	ended := func(ctx context.Context, input io.Reader) error {
		var out bytes.Buffer
		return Screen(ctx, l, func(hint string) string { return hint }, time.Millisecond, input, &out, []string{"TERM=xterm"},
			tea.WithWindowSize(80, 24))
	}
	require.NoError(t, ended(t.Context(), strings.NewReader("q")))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	never, close := io.Pipe()
	defer close.Close()
	require.NoError(t, ended(ctx, never))
}

// Its hints are typed in the same place as those of status without --watch.
func TestWatch_HintsAreThoseOfTheCommand(t *testing.T) {
	hint := func(hint string) string {
		return strings.ReplaceAll(hint, "postrider check", "postrider check --config p.toml")
	}
	for name, c := range map[string]content{
		"the relay": {at: statustest.Now, verdict: health.Verdict{Next: "postrider check",
			Conditions: []health.Condition{{Next: "postrider check"}}},
			check: check.Report{Findings: []check.Finding{{Fix: "postrider check"}}}},
		"the database": {at: statustest.Now, report: &status.Report{Verdict: health.Verdict{Next: "postrider check"}}},
		"nobody":       {at: statustest.Now, err: &exit.Error{Err: errors.New("no answer"), Next: "postrider check"}},
	} {
		c.changeHints(hint)
		s := sampleScreen(c)
		require.Contains(t, ansi.Strip(s.text()), "next: postrider check --config p.toml", name)
		if c.check.Findings != nil {
			require.Equal(t, "postrider check --config p.toml", c.verdict.Conditions[0].Next)
			require.Equal(t, "postrider check --config p.toml", c.check.Findings[0].Fix)
		}
	}

	l := &config.Loaded{Config: config.Default()}
	l.Config.HTTP.Listen = "" // nobody is asked
	l.Config.Postgres.URL = secret.Of("postgres://127.0.0.1:1/none")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var asked atomic.Bool
	hint = func(hint string) string { asked.Store(true); cancel(); return hint }
	never, close := io.Pipe()
	defer close.Close()
	require.NoError(t, Screen(ctx, l, hint, time.Millisecond, never, io.Discard, []string{"TERM=xterm"},
		tea.WithWindowSize(80, 24)))
	require.True(t, asked.Load())
}

func TestSparkline_LeavesOutWhatIsNotKnown(t *testing.T) {
	bars, high := sparkline([]*float64{new(9.0), nil, new(0.0), new(4.0), new(8.0)}, 4)
	require.Equal(t, " ▁▅█", bars)
	require.Equal(t, 8.0, high, "of what is shown")
}
