package watch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/postrider/postrider/internal/status"
	"github.com/postrider/postrider/slot/monitor"

	tea "charm.land/bubbletea/v2"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/internal/httpserver"
)

// watched is what status --watch has last seen: the parts of the status page, or what the database says when no relay answers.
type watched struct {
	at       time.Time
	verdict  health.Verdict
	pipeline status.Pipeline
	slot     monitor.Observation
	history  status.History
	topics   status.Topics
	events   status.Events
	errors   status.Errors
	check    status.Check
	config   status.Config
	build    status.Build

	database *status.Report // set if the relay did not answer: all but this and at is zero
	err      error          // set if nobody answered
}

// look asks for the parts that a tab shows. The others keep what before has.
func look(ctx context.Context, l *config.Loaded, before watched, t tab) watched {
	w := before
	w.database, w.err = nil, nil
	parts := map[string]any{"verdict": &w.verdict, "build": &w.build, "pipeline": &w.pipeline}
	switch t {
	case tabOverview:
		parts["slot"], parts["history"] = &w.slot, &w.history
	case tabSlots:
		parts["slot"] = &w.slot
	case tabTopics:
		parts["topics"] = &w.topics
	case tabEvents:
		parts["events"] = &w.events
	case tabErrors:
		parts["errors"] = &w.errors
	case tabCheck:
		parts["check"] = &w.check
	case tabConfig:
		parts["config"] = &w.config
	}
	for name, into := range parts {
		if err := askPart(ctx, l.Config.HTTP, name, into); err != nil {
			return lookElsewhere(ctx, l)
		}
	}
	w.at = time.Now()
	return w
}

// lookElsewhere is for a relay that does not answer, or is one without parts: /status, else the database.
func lookElsewhere(ctx context.Context, l *config.Loaded) watched {
	r, err := status.Status(ctx, l)
	if err != nil {
		return watched{at: time.Now(), err: err}
	}
	return watched{at: time.Now(), database: &r}
}

func askPart(ctx context.Context, c httpserver.Config, name string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, status.DaemonTimeout)
	defer cancel()
	code, body, err := status.Get(ctx, c, "/api/"+name)
	if err != nil {
		return err
	}
	if code != http.StatusOK {
		return fmt.Errorf("ask the relay: %s/api/%s answered %d", c.LocalURL(), name, code)
	}
	return json.Unmarshal(body, into)
}

// tab is one screen of status --watch.
type tab int

const (
	tabOverview tab = iota
	tabSlots
	tabTopics
	tabEvents
	tabErrors
	tabCheck
	tabConfig
	tabs
)

var tabNames = [tabs]string{"overview", "slots", "topics", "events", "errors", "check", "config"}

// screen is the model of status --watch on a terminal.
type screen struct {
	look   func(before watched, t tab) watched
	every  time.Duration
	now    func() time.Time
	seen   watched
	tab    tab
	scroll int
	frozen bool
	asking bool // an answer is under way
	width  int
	height int
}

type (
	answer watched // of a look
	due    struct{}
)

// Init implements tea.Model.
func (s screen) Init() tea.Cmd { return s.ask() }

func (s screen) ask() tea.Cmd {
	before, t := s.seen, s.tab
	return func() tea.Msg { return answer(s.look(before, t)) }
}

// Update implements tea.Model.
func (s screen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		s.width, s.height = msg.Width, msg.Height
	case answer:
		s.asking = false
		if !s.frozen {
			s.seen = watched(msg)
		}
		return s, tea.Tick(s.every, func(time.Time) tea.Msg { return due{} })
	case opened:
		s.seen = watched(msg)
	case due:
		if !s.asking {
			s.asking = true
			return s, s.ask()
		}
	case tea.KeyPressMsg:
		return s.press(msg.String())
	}
	return s, nil
}

func (s screen) press(key string) (tea.Model, tea.Cmd) {
	page := max(1, s.height-chrome)
	switch key {
	case "q", "ctrl+c", "esc":
		return s, tea.Quit
	case "tab", "right", "l":
		return s.open((s.tab + 1) % tabs)
	case "shift+tab", "left", "h":
		return s.open((s.tab + tabs - 1) % tabs)
	case "1", "2", "3", "4", "5", "6", "7":
		return s.open(tab(key[0] - '1'))
	case "down", "j":
		s.scroll++
	case "up", "k":
		s.scroll--
	case "pgdown", "space":
		s.scroll += page
	case "pgup":
		s.scroll -= page
	case "home", "g":
		s.scroll = 0
	case "p":
		s.frozen = !s.frozen
	}
	s.scroll = max(0, min(s.scroll, s.lines()-page))
	return s, nil
}

// open shows another tab, and asks for what it shows without waiting for the next refresh.
func (s screen) open(t tab) (tea.Model, tea.Cmd) {
	s.tab, s.scroll = t, 0
	before := s.seen
	return s, func() tea.Msg { return opened(s.look(before, t)) }
}

// opened is the answer to a look beside the regular ones.
type opened watched

// watchScreen runs status --watch on a terminal until ctx ends or somebody quits.
func Screen(ctx context.Context, l *config.Loaded, every time.Duration, in io.Reader, out io.Writer, env []string, options ...tea.ProgramOption) error {
	s := screen{
		look:  func(before watched, t tab) watched { return look(ctx, l, before, t) },
		every: every, now: time.Now,
	}
	options = append([]tea.ProgramOption{tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out), tea.WithEnvironment(env), tea.WithoutSignalHandler()}, options...)
	_, err := tea.NewProgram(s, options...).Run()
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil {
		return nil // a signal
	}
	return err
}
