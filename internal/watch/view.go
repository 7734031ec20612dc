package watch

import (
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/internal/status"
)

// frameLines is the height of head, tabs and keys.
const frameLines = 4

var (
	bold  = lipgloss.NewStyle().Bold(true)
	faint = lipgloss.NewStyle().Faint(true)

	stateStyles = map[string]lipgloss.Style{
		health.OK: bold.Foreground(lipgloss.Green), health.Standby: bold.Foreground(lipgloss.Cyan),
		health.Degraded: bold.Foreground(lipgloss.Yellow),
		health.Failing:  bold.Foreground(lipgloss.Red),
	}
	severityStyles = map[string]lipgloss.Style{
		"ok": bold.Foreground(lipgloss.Green), "info": bold.Foreground(lipgloss.Cyan),
		"warning":  bold.Foreground(lipgloss.Yellow),
		"critical": bold.Foreground(lipgloss.Red), "error": bold.Foreground(lipgloss.Red),
	}
)

// View implements tea.Model.
func (s screen) View() tea.View {
	v := tea.NewView(s.text())
	v.AltScreen = true
	v.WindowTitle = "postrider: " + s.state()
	return v
}

func (s screen) state() string {
	switch {
	case s.content.at.IsZero():
		return "connecting"
	case s.content.err != nil:
		return "unreachable"
	case s.content.report != nil:
		return s.content.report.Verdict.State
	}
	return s.content.verdict.State
}

// text is the screen, cut to the width and height of the terminal.
func (s screen) text() string {
	width := max(20, s.width)
	body := s.body(width)
	room := max(1, s.height-frameLines)
	from := max(0, min(s.scroll, len(body)-room))
	shown := body[from:min(len(body), from+room)]
	lines := append([]string{s.head(), s.tabLine(), ""}, shown...)
	for len(lines) < frameLines-1+room {
		lines = append(lines, "")
	}
	keys := "q quit  tab 1-7 screens  ↑↓ scroll  p freeze"
	if len(body) > room {
		keys += fmt.Sprintf("  line %d of %d", from+1, len(body))
	}
	lines = append(lines, faint.Render(keys))
	cut := lipgloss.NewStyle().MaxWidth(width)
	for i, l := range lines {
		lines[i] = cut.Render(l)
	}
	return strings.Join(lines, "\n")
}

// lines is the length of what the tab shows.
func (s screen) lines() int { return len(s.body(max(20, s.width))) }

func (s screen) head() string {
	state := s.state()
	head := "postrider " + stateStyles[state].Render(state)
	if s.content.report == nil && s.content.err == nil && !s.content.at.IsZero() {
		p := s.content.pipeline
		head += fmt.Sprintf("  %s for %s  %s", p.Phase, s.ago(p.Since),
			faint.Render(s.content.build.Version))
	}
	if s.frozen {
		head += "  " + bold.Render("frozen "+s.ago(s.content.at)+" ago")
	}
	return head
}

func (s screen) tabLine() string {
	names := make([]string, tabs)
	for i, name := range tabNames {
		style := faint
		if tab(i) == s.tab {
			style = bold.Underline(true)
		}
		names[i] = style.Render(fmt.Sprintf("%d %s", i+1, name))
	}
	return strings.Join(names, "  ")
}

// body is what the tab shows, line by line.
func (s screen) body(width int) []string {
	var b strings.Builder
	switch c := s.content; {
	case c.at.IsZero():
		b.WriteString("connecting ...")
	case c.err != nil:
		exit.Print(&b, c.err)
	case c.report != nil:
		_ = status.Write(&b, *c.report, s.now(), false) // into memory
	case c.tab != s.tab && len(tabParts[s.tab]) > 0:
		if s.frozen {
			fmt.Fprintf(&b, "%s is frozen: p continues", tabNames[c.tab])
		} else {
			b.WriteString("loading ...")
		}
	default:
		s.writeTab(&b, width)
	}
	return strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
}
