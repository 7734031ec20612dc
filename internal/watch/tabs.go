package watch

import (
	"fmt"
	"strings"
	"time"

	"charm.land/lipgloss/v2"

	"github.com/postrider/postrider/internal/check"
	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/internal/history"
	"github.com/postrider/postrider/internal/status"
	"github.com/postrider/postrider/internal/terminal"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/slot/monitor"
)

func (s screen) writeTab(b *strings.Builder, width int) {
	switch s.tab {
	case tabOverview:
		s.writeConditions(b, width)
		s.writePipeline(b, width)
		s.writeHistory(b, width)
	case tabSlots:
		s.writeSlots(b, width)
	case tabTopics:
		rows := rowsOf(s.content.topics.Topics, func(t status.Topic) []string {
			last, partitions := "-", "-"
			if !t.LastPublished.IsZero() {
				last = s.ago(t.LastPublished) + " ago"
			}
			if t.Partitions > 0 {
				partitions = fmt.Sprint(t.Partitions)
			}
			return []string{t.Topic, fmt.Sprintf("%.1f/s", t.PerSecond),
				health.Bytes(int64(t.BytesPerSecond)) + "/s", fmt.Sprintf("%.0f", t.Published),
				fmt.Sprint(t.Failed), last, partitions, strings.Join(t.Warnings, "; ")}
		})
		writeTable(b, width, rows,
			"topic", "events", "bytes", "in all", "refused", "last", "partitions", "warnings")
	case tabEvents:
		var rows [][]string
		for _, e := range s.content.events.Events {
			rows = append(rows, []string{s.ago(e.At), e.Topic, e.EventID, e.LSN,
				fmt.Sprintf("%.1f ms", 1e3*e.LatencySeconds), health.Bytes(int64(e.Bytes))})
		}
		writeTable(b, width, rows, "ago", "topic", "event id", "lsn", "latency", "size")
	case tabErrors:
		rows := rowsOf(s.content.errors.Errors, func(e status.Error) []string {
			return []string{e.Reason, e.Class, fmt.Sprint(e.Count), s.ago(e.FirstSeen),
				s.ago(e.LastSeen), terminal.OneLine(e.Text)}
		})
		writeTable(b, width, rows, "reason", "class", "count", "first", "last", "text")
	case tabCheck:
		s.writeCheck(b, width)
	case tabConfig:
		rows := rowsOf(s.content.config.Values, func(v config.Value) []string {
			return []string{v.Key, v.TOML, v.Origin}
		})
		writeTable(b, width, rows, "key", "value", "origin")
	}
}

func (s screen) writeConditions(b *strings.Builder, width int) {
	v := s.content.verdict
	wrap := lipgloss.NewStyle().Width(width)
	fmt.Fprintln(b, wrap.Render(terminal.Lines(v.Reason)))
	if v.WAL != "" {
		fmt.Fprintln(b, wrap.Render("WAL:  "+terminal.Lines(v.WAL)))
	}
	if v.Next != "" {
		fmt.Fprintln(b, wrap.Render("next: "+terminal.Lines(v.Next)))
	}
	for _, c := range v.Conditions {
		line := severity(c.Severity) + " " + c.Name + "  " + terminal.OneLine(c.Reason)
		if !c.Since.IsZero() {
			line += faint.Render("  for " + s.ago(c.Since))
		}
		fmt.Fprintln(b, line)
	}
	fmt.Fprintln(b)
}

func (s screen) writePipeline(b *strings.Builder, width int) {
	p, o := s.content.pipeline, s.content.slot
	writeTable(b, width, [][]string{
		{"server WAL", lsn(p.Server), "", rate(p.Rates.WAL, "written")},
		{"received", lsn(p.Received), distance(p.Distances.Received, "behind the server"), ""},
		{"acked", lsn(p.Acked), distance(p.Distances.Acked, "in flight or being read"),
			fmt.Sprintf("%.1f events/s", p.Rates.Published)},
		{"confirmed", lsn(p.Confirmed), distance(p.Distances.Confirmed, "not yet confirmed"),
			rate(p.Rates.Drain, "drained")},
		{"restart", lsn(p.Restart), distance(p.Distances.Restart, "held back"), ""},
	}, "position", "lsn", "distance", "rate")
	retained := "unknown"
	if o.Slot.RetainedBytes != nil {
		retained = health.Bytes(*o.Slot.RetainedBytes)
	}
	fmt.Fprintf(b, "slot %s  %s, %s retained%s\n",
		o.Slot.Name, terminal.OrDash(o.Slot.WALStatus), retained, limitText(o))
	forecast := []monitor.Estimate{o.Forecast.Loss, o.Forecast.DiskFull, o.Forecast.CatchUp}
	for i, what := range []string{"lost", "disk full", "caught up"} {
		if e := forecast[i]; e.Seconds != nil {
			left := time.Duration(*e.Seconds * float64(time.Second))
			fmt.Fprintf(b, "%s in %s: %s\n", what, health.Duration(left),
				terminal.OneLine(e.Assumption))
		}
	}
	for _, h := range o.Blockers {
		what := "held back"
		if !h.Restart {
			what = "VACUUM held back"
		}
		fmt.Fprintf(b, "%s by %s, pid %d, %s %s, for %s\n", what, h.Kind, h.PID,
			terminal.Printable(h.Application), terminal.Printable(h.GID), s.ago(h.Since))
	}
	fmt.Fprintln(b)
}

// limitText is how much more WAL the slot can keep.
func limitText(o monitor.Observation) string {
	if o.Slot.SafeWALSize == nil {
		return ", no limit"
	}
	text := ", " + health.Bytes(*o.Slot.SafeWALSize) + " left"
	if limit := health.LossLimit(o); limit > 0 {
		percent := 100 * float64(*o.Slot.SafeWALSize) / float64(limit)
		text += fmt.Sprintf(" of %s (%.0f %%)", health.Bytes(limit), percent)
	}
	return text
}

func (s screen) writeHistory(b *strings.Builder, width int) {
	samples := s.content.history.Samples
	room := max(10, width-40)
	if len(samples) == 0 {
		fmt.Fprintln(b, faint.Render("charts begin after the first 20 seconds"))
		return
	}
	for _, line := range []struct {
		name, format string
		value        func(history.Sample) *float64
	}{
		{"events/s", "%.1f", func(s history.Sample) *float64 { return &s.PublishedPerSecond }},
		{"p99 latency s", "%.4f", func(s history.Sample) *float64 { return s.LatencyP99 }},
		{"lag bytes", "%.0f", func(s history.Sample) *float64 { return asFloat(s.LagBytes) }},
		{"retained bytes", "%.0f",
			func(s history.Sample) *float64 { return asFloat(s.RetainedBytes) }},
	} {
		bars, high := sparkline(rowsOf(samples, line.value), room)
		fmt.Fprintf(b, "%-14s %s %s\n", line.name, bars,
			faint.Render("up to "+fmt.Sprintf(line.format, high)))
	}
}

func (s screen) writeSlots(b *strings.Builder, width int) {
	slots := append([]slot.Status{s.content.slot.Slot}, s.content.slot.Others...)
	rows := rowsOf(slots, func(o slot.Status) []string {
		row := []string{o.Name, o.Plugin, o.Database, "inactive", o.WALStatus, "-", "-", "-"}
		if o.Active {
			row[3] = fmt.Sprintf("pid %d", o.ActivePID)
		}
		for i, n := range []*int64{o.LagBytes, o.RetainedBytes, o.SafeWALSize} {
			if n != nil {
				row[5+i] = health.Bytes(*n)
			}
		}
		return row
	})
	writeTable(b, width, rows,
		"slot", "plugin", "database", "active", "wal_status", "lag", "retained", "left")
	for _, n := range s.content.slot.Notes {
		fmt.Fprintf(b, "not known: %s: %s\n", n.Value, terminal.OneLine(n.Text))
	}
	for _, e := range s.content.slot.Events {
		fmt.Fprintf(b, "%s ago: %s\n", s.ago(e.At), terminal.OneLine(e.Text))
	}
}

func (s screen) writeCheck(b *strings.Builder, width int) {
	c := s.content.check
	switch {
	case c.At.IsZero():
		fmt.Fprintln(b, "checking ...")
		return
	case c.Running:
		fmt.Fprintln(b, "checking again ...")
	default:
		fmt.Fprintf(b, "checked %s ago\n", s.ago(c.At))
	}
	rows := rowsOf(c.Findings, func(f check.Finding) []string {
		return []string{string(f.Severity), f.Code, f.Subject, terminal.OneLine(f.Observed)}
	})
	writeTable(b, width, rows, "severity", "check", "subject", "observed")
	wrap := lipgloss.NewStyle().Width(width)
	for _, f := range c.Findings {
		if f.Severity == check.SeverityOK || f.Fix == "" {
			continue
		}
		fmt.Fprintln(b, severity(f.Severity)+" "+strings.TrimSpace(f.Code+" "+
			terminal.OneLine(f.Subject)))
		fmt.Fprintln(b, wrap.Render("  observed: "+terminal.OneLine(f.Observed)))
		fmt.Fprintln(b, wrap.Render("  fix:      "+terminal.Lines(f.Fix)))
	}
}
