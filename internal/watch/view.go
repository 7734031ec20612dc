package watch

import (
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/status"
	"github.com/postrider/postrider/internal/terminal"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"charm.land/lipgloss/v2/table"
	"github.com/jackc/pglogrepl"

	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/slot/monitor"
)

// chrome is the number of lines that are not the tab's own: the head, the tabs and the keys.
const chrome = 4

var (
	bold  = lipgloss.NewStyle().Bold(true)
	faint = lipgloss.NewStyle().Faint(true)

	stateStyles = map[string]lipgloss.Style{
		health.OK: bold.Foreground(lipgloss.Green), health.Standby: bold.Foreground(lipgloss.Cyan),
		health.Degraded: bold.Foreground(lipgloss.Yellow), health.Failing: bold.Foreground(lipgloss.Red),
	}
	severityStyles = map[string]lipgloss.Style{
		"ok": bold.Foreground(lipgloss.Green), "info": bold.Foreground(lipgloss.Cyan),
		"warning": bold.Foreground(lipgloss.Yellow), "critical": bold.Foreground(lipgloss.Red), "error": bold.Foreground(lipgloss.Red),
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
	case s.seen.at.IsZero():
		return "asking"
	case s.seen.err != nil:
		return "unreachable"
	case s.seen.database != nil:
		return s.seen.database.Verdict.State
	}
	return s.seen.verdict.State
}

// text is the screen: no line is longer than the terminal is wide, and there are no more of them than it is high.
func (s screen) text() string {
	width := max(20, s.width)
	body := s.body(width)
	room := max(1, s.height-chrome)
	from := max(0, min(s.scroll, len(body)-room))
	shown := body[from:min(len(body), from+room)]
	lines := append([]string{s.head(), s.tabLine(), ""}, shown...)
	for len(lines) < chrome-1+room {
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

// lines is the length of what the tab shows.
func (s screen) lines() int { return len(s.body(max(20, s.width))) }

func (s screen) head() string {
	state := s.state()
	head := "postrider " + stateStyles[state].Render(state)
	if s.seen.database == nil && s.seen.err == nil && !s.seen.at.IsZero() {
		head += fmt.Sprintf("  %s for %s  %s", s.seen.pipeline.Phase, s.ago(s.seen.pipeline.Since), faint.Render(s.seen.build.Version))
	}
	if s.frozen {
		head += "  " + bold.Render("frozen "+s.ago(s.seen.at)+" ago")
	}
	return head
}

func (s screen) tabLine() string {
	names := make([]string, tabs)
	for i, name := range tabNames {
		names[i] = faint.Render(fmt.Sprintf("%d %s", i+1, name))
		if tab(i) == s.tab {
			names[i] = bold.Underline(true).Render(fmt.Sprintf("%d %s", i+1, name))
		}
	}
	return strings.Join(names, "  ")
}

// body is what the tab shows, line by line.
func (s screen) body(width int) []string {
	var b strings.Builder
	switch w := s.seen; {
	case w.at.IsZero():
		b.WriteString("asking ...")
	case w.err != nil:
		exit.Print(&b, w.err)
	case w.database != nil:
		_ = status.Write(&b, *w.database, s.now(), false) // into memory
	default:
		s.writeTab(&b, width)
	}
	return strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
}

func (s screen) writeTab(b *strings.Builder, width int) {
	switch s.tab {
	case tabOverview:
		s.writeConditions(b, width)
		s.writePipeline(b, width)
		s.writeHistory(b, width)
	case tabSlots:
		s.writeSlots(b, width)
	case tabTopics:
		rows := [][]string{}
		for _, t := range s.seen.topics.Topics {
			rows = append(rows, []string{
				t.Topic, fmt.Sprintf("%.1f/s", t.PerSecond), health.Bytes(int64(t.BytesPerSecond)) + "/s", fmt.Sprintf("%.0f", t.Published),
				fmt.Sprint(t.Failed), s.agoOr(t.LastPublished, "-"), terminal.OrDash(zeroEmpty(t.Partitions)), strings.Join(t.Warnings, "; "),
			})
		}
		writeTable(b, width, rows, "topic", "events", "bytes", "in all", "refused", "last", "partitions", "warnings")
	case tabEvents:
		rows := [][]string{}
		for _, e := range s.seen.events.Events {
			rows = append(rows, []string{
				s.ago(e.At), e.Topic, e.EventID, e.LSN, fmt.Sprintf("%.1f ms", 1e3*e.LatencySeconds), health.Bytes(int64(e.Bytes)),
			})
		}
		writeTable(b, width, rows, "ago", "topic", "event id", "lsn", "latency", "size")
	case tabErrors:
		rows := [][]string{}
		for _, e := range s.seen.errors.Errors {
			rows = append(rows, []string{e.Reason, e.Class, fmt.Sprint(e.Count), s.ago(e.FirstSeen), s.ago(e.LastSeen), terminal.OneLine(e.Text)})
		}
		writeTable(b, width, rows, "reason", "class", "count", "first", "last", "text")
	case tabCheck:
		s.writeCheck(b, width)
	case tabConfig:
		rows := [][]string{}
		for _, v := range s.seen.config.Values {
			rows = append(rows, []string{v.Key, v.TOML, v.Origin})
		}
		writeTable(b, width, rows, "key", "value", "origin")
	}
}

func (s screen) writeConditions(b *strings.Builder, width int) {
	v := s.seen.verdict
	wrap := lipgloss.NewStyle().Width(width)
	fmt.Fprintln(b, wrap.Render(v.Reason))
	if v.WAL != "" {
		fmt.Fprintln(b, wrap.Render("WAL:  "+v.WAL))
	}
	if v.Next != "" {
		fmt.Fprintln(b, wrap.Render("next: "+v.Next))
	}
	for _, c := range v.Conditions {
		line := severityStyles[string(c.Severity)].Render(string(c.Severity)) + " " + c.Name + "  " + terminal.OneLine(c.Reason)
		if !c.Since.IsZero() {
			line += faint.Render("  for " + s.ago(c.Since))
		}
		fmt.Fprintln(b, line)
	}
	fmt.Fprintln(b)
}

func (s screen) writePipeline(b *strings.Builder, width int) {
	p, o := s.seen.pipeline, s.seen.slot
	writeTable(b, width, [][]string{
		{"server WAL", lsn(p.Server), "", rate(p.Rates.WAL, "written")},
		{"received", lsn(p.Received), behind(p.Distances.Received, "behind the server"), ""},
		{"acked", lsn(p.Acked), behind(p.Distances.Acked, "in flight or being read"), fmt.Sprintf("%.1f events/s", p.Rates.Published)},
		{"confirmed", lsn(p.Confirmed), behind(p.Distances.Confirmed, "not yet told"), rate(p.Rates.Drain, "drained")},
		{"restart", lsn(p.Restart), behind(p.Distances.Restart, "held back"), ""},
	}, "position", "lsn", "distance", "rate")
	retained := "unknown"
	if o.Slot.RetainedBytes != nil {
		retained = health.Bytes(*o.Slot.RetainedBytes)
	}
	fmt.Fprintf(b, "slot %s  %s, %s retained%s\n", o.Slot.Name, terminal.OrDash(o.Slot.WALStatus), retained, s.limit(o))
	for _, f := range []struct {
		what string
		e    monitor.Estimate
	}{{"lost", o.Forecast.Loss}, {"disk full", o.Forecast.DiskFull}, {"caught up", o.Forecast.CatchUp}} {
		if f.e.Seconds != nil {
			fmt.Fprintf(b, "%s in %s: %s\n", f.what, health.Duration(seconds(*f.e.Seconds)), f.e.Assumption)
		}
	}
	for _, h := range o.Blockers {
		fmt.Fprintf(b, "held back by %s, pid %d, %s %s, for %s\n", h.Kind, h.PID, terminal.Printable(h.Application), terminal.Printable(h.GID), s.ago(h.Since))
	}
	fmt.Fprintln(b)
}

func (s screen) limit(o monitor.Observation) string {
	if o.Slot.SafeWALSize == nil {
		return ", no limit"
	}
	text := ", " + health.Bytes(*o.Slot.SafeWALSize) + " left"
	if limit := health.LossLimit(o); limit > 0 {
		text += fmt.Sprintf(" of %s (%.0f %%)", health.Bytes(limit), 100*float64(*o.Slot.SafeWALSize)/float64(limit))
	}
	return text
}

func (s screen) writeHistory(b *strings.Builder, width int) {
	samples := s.seen.history.Samples
	room := max(10, width-40)
	line := func(name, format string, value func(i int) *float64) {
		values := make([]*float64, len(samples))
		for i := range samples {
			values[i] = value(i)
		}
		bars, high := sparkline(values, room)
		fmt.Fprintf(b, "%-14s %s %s\n", name, bars, faint.Render("up to "+fmt.Sprintf(format, high)))
	}
	if len(samples) == 0 {
		fmt.Fprintln(b, faint.Render("charts begin after the first 20 seconds"))
		return
	}
	line("events/s", "%.1f", func(i int) *float64 { return &samples[i].PublishedPerSecond })
	line("p99 latency s", "%.4f", func(i int) *float64 { return samples[i].LatencyP99 })
	line("lag bytes", "%.0f", func(i int) *float64 { return asFloat(samples[i].LagBytes) })
	line("retained bytes", "%.0f", func(i int) *float64 { return asFloat(samples[i].RetainedBytes) })
}

func (s screen) writeSlots(b *strings.Builder, width int) {
	rows := [][]string{}
	for _, o := range append([]slot.Status{s.seen.slot.Slot}, s.seen.slot.Others...) {
		active := "inactive"
		if o.Active {
			active = fmt.Sprintf("pid %d", o.ActivePID)
		}
		row := []string{o.Name, o.Plugin, o.Database, active, o.WALStatus, "-", "-", "-"}
		for i, n := range []*int64{o.LagBytes, o.RetainedBytes, o.SafeWALSize} {
			if n != nil {
				row[5+i] = health.Bytes(*n)
			}
		}
		rows = append(rows, row)
	}
	writeTable(b, width, rows, "slot", "plugin", "database", "active", "wal_status", "lag", "retained", "left")
	for _, n := range s.seen.slot.Notes {
		fmt.Fprintf(b, "not known: %s: %s\n", n.Value, n.Text)
	}
	for _, e := range s.seen.slot.Events {
		fmt.Fprintf(b, "%s ago: %s\n", s.ago(e.At), e.Text)
	}
}

func (s screen) writeCheck(b *strings.Builder, width int) {
	c := s.seen.check
	switch {
	case c.At.IsZero():
		fmt.Fprintln(b, "checking ...")
		return
	case c.Running:
		fmt.Fprintln(b, "checking again ...")
	default:
		fmt.Fprintf(b, "checked %s ago\n", s.ago(c.At))
	}
	rows := [][]string{}
	for _, f := range c.Findings {
		rows = append(rows, []string{string(f.Severity), f.Code, f.Subject, terminal.OneLine(f.Observed)})
	}
	writeTable(b, width, rows, "severity", "check", "subject", "observed")
	wrap := lipgloss.NewStyle().Width(width)
	for _, f := range c.Findings {
		if f.Severity == slot.SeverityOK || f.Fix == "" {
			continue
		}
		fmt.Fprintln(b, severityStyles[string(f.Severity)].Render(string(f.Severity))+" "+strings.TrimSpace(f.Code+" "+f.Subject))
		fmt.Fprintln(b, wrap.Render("  observed: "+terminal.OneLine(f.Observed)))
		fmt.Fprintln(b, wrap.Render("  fix:      "+f.Fix))
	}
}

// writeTable draws no frame: what can be selected with the mouse should be text.
func writeTable(b *strings.Builder, width int, rows [][]string, headers ...string) {
	if len(rows) == 0 {
		fmt.Fprintln(b, faint.Render("none"))
		return
	}
	cell := lipgloss.NewStyle().PaddingRight(2)
	t := table.New().Headers(headers...).Rows(rows...).Width(width).Wrap(false).Border(lipgloss.HiddenBorder()).
		BorderTop(false).BorderBottom(false).BorderLeft(false).BorderRight(false).BorderColumn(false).BorderHeader(false).
		StyleFunc(func(row, column int) lipgloss.Style {
			if row == table.HeaderRow {
				return cell.Faint(true)
			}
			if style, known := severityStyles[rows[row][column]]; known && column == 0 {
				return style.PaddingRight(2)
			}
			return cell
		})
	fmt.Fprintln(b, t.Render())
	fmt.Fprintln(b)
}

// sparkline draws the last values that fit, and says how high the highest is. What is not known is a blank.
func sparkline(values []*float64, width int) (bars string, high float64) {
	values = values[max(0, len(values)-width):]
	for _, v := range values {
		if v != nil {
			high = max(high, *v)
		}
	}
	levels := []rune("▁▂▃▄▅▆▇█")
	var b strings.Builder
	for _, v := range values {
		switch {
		case v == nil:
			b.WriteByte(' ')
		case high == 0:
			b.WriteRune(levels[0])
		default:
			b.WriteRune(levels[int(max(0, *v)/high*float64(len(levels)-1)+.5)])
		}
	}
	return b.String(), high
}

func (s screen) ago(t time.Time) string { return health.Duration(s.now().Sub(t)) }

func (s screen) agoOr(t time.Time, never string) string {
	if t.IsZero() {
		return never
	}
	return s.ago(t) + " ago"
}

// lsn is an LSN for people.
func lsn(l status.LSN) string {
	if l == 0 {
		return "-"
	}
	return pglogrepl.LSN(l).String()
}

func behind(n *int64, what string) string {
	if n == nil {
		return ""
	}
	return health.Bytes(*n) + " " + what
}

func rate(n *float64, what string) string {
	if n == nil {
		return ""
	}
	return health.Bytes(int64(*n)) + "/s " + what
}

func asFloat(n *int64) *float64 {
	if n == nil {
		return nil
	}
	return new(float64(*n))
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

func zeroEmpty(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}
