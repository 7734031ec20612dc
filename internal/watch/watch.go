// Package watch is the screen of `postrider status --watch`: the status page on a terminal.
//
//	content.go what is shown, from the relay or the database
//	view.go    the frame: head, tabs, keys
//	tabs.go    what each tab shows
//	text.go    tables, sparklines and numbers
package watch

import (
	"context"
	"errors"
	"io"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/status"
)

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

var (
	tabNames = [tabs]string{"overview", "slots", "topics", "events", "errors", "check", "config"}
	// tabParts are the parts of the status page that a tab shows, besides those of every tab.
	tabParts = [tabs][]string{
		{"history"}, {}, {"topics"}, {"events"}, {"errors"}, {"check"}, {"config"}}
)

// screen is the model of status --watch on a terminal.
type screen struct {
	load    func(t tab) content
	every   time.Duration // between two refreshes
	now     func() time.Time
	content content
	tab     tab
	scroll  int
	frozen  bool
	loading bool // a refresh is under way
	width   int
	height  int
}

type (
	refreshMsg content  // the result of a regular refresh
	reloadMsg  content  // the result of a reload
	tickMsg    struct{} // a refresh is due
)

// Screen runs status --watch on a terminal until ctx ends or the user quits. every is the pause
// between two refreshes; env is the environment, which describes the terminal. hint returns what
// is to be typed here for a hint.
func Screen(
	ctx context.Context, l *config.Loaded, hint func(string) string, every time.Duration,
	in io.Reader, out io.Writer, env []string, options ...tea.ProgramOption,
) error {
	answers := new(status.Answers)
	s := screen{
		load: func(t tab) content {
			c := load(ctx, l, answers, t)
			c.changeHints(hint)
			return c
		},
		every: every, now: time.Now,
	}
	options = append([]tea.ProgramOption{
		tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out), tea.WithEnvironment(env),
		tea.WithoutSignalHandler(),
	}, options...)
	_, err := tea.NewProgram(s, options...).Run()
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil {
		return nil // a signal
	}
	return err
}

// Init implements tea.Model.
func (s screen) Init() tea.Cmd { return s.refresh() }

func (s screen) refresh() tea.Cmd {
	return func() tea.Msg { return refreshMsg(s.load(s.tab)) }
}

// reload loads the tab without waiting for the next refresh.
func (s screen) reload() tea.Cmd {
	return func() tea.Msg { return reloadMsg(s.load(s.tab)) }
}

// show replaces the content, unless the screen is frozen. What was requested before another tab
// was opened lacks the parts of that tab.
func (s *screen) show(c content) {
	if c.tab == s.tab && !s.frozen {
		s.content = c
	}
}

// Update implements tea.Model.
func (s screen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		s.width, s.height = msg.Width, msg.Height
	case refreshMsg:
		s.loading = false
		s.show(content(msg))
		return s, tea.Tick(s.every, func(time.Time) tea.Msg { return tickMsg{} })
	case reloadMsg:
		s.show(content(msg))
	case tickMsg:
		if !s.loading {
			s.loading = true
			return s, s.refresh()
		}
	case tea.KeyPressMsg:
		return s.press(msg.String())
	}
	return s, nil
}

func (s screen) press(key string) (tea.Model, tea.Cmd) {
	page := max(1, s.height-frameLines)
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
		if !s.frozen {
			return s, s.reload()
		}
	}
	s.scroll = max(0, min(s.scroll, s.lines()-page))
	return s, nil
}

// open shows another tab.
func (s screen) open(t tab) (tea.Model, tea.Cmd) {
	s.tab, s.scroll = t, 0
	if s.frozen {
		return s, nil
	}
	return s, s.reload()
}
