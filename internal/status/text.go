package status

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/internal/ratelimit"
	"github.com/postrider/postrider/internal/terminal"
	"github.com/postrider/postrider/relay"
)

var stateColours = map[string]string{
	health.OK: "32", health.Standby: "36", health.Degraded: "33", health.Failing: "31",
}

// Write writes a report for people: the verdict, then what it rests on.
func Write(w io.Writer, r Report, now time.Time, colour bool) error {
	state := r.Verdict.State
	if colour {
		state = "\x1b[1;" + stateColours[state] + "m" + state + "\x1b[0m"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", state, terminal.Indent(r.Verdict.Reason))
	exit.PrintAdvice(&b, r.Verdict.WAL, r.Verdict.Next)
	for _, c := range r.Verdict.Conditions {
		if health.Runbook(c.Name) != r.Verdict.Runbook { // the verdict is another condition's
			fmt.Fprintf(&b, "  also: %s, %s: %s\n        next: %s\n", c.Severity, c.Name,
				terminal.IndentBy(c.Reason, "        "),
				terminal.IndentBy(c.Next, "              "))
		}
	}
	b.WriteByte('\n')
	t := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	row := func(cells ...string) {
		for i, cell := range cells {
			cells[i] = terminal.Printable(cell)
		}
		fmt.Fprintln(t, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
	}
	relayRows(row, r, now)
	slotRows(row, r, now)
	positionRows(row, r)
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func relayRows(row func(...string), r Report, now time.Time) {
	if r.Source == SourceDatabase {
		row("relay", "no answer: what follows comes from the database", r.DaemonError)
		return
	}
	st := r.Relay
	ago := func(t time.Time) string { return health.Duration(now.Sub(t)) }
	row("relay", fmt.Sprintf("%s for %s, pid %d, version %s", st.Phase, ago(st.Since), r.PID,
		r.Version))
	row("sessions", fmt.Sprintf("%d since the start %s ago", st.Sessions, ago(r.StartedAt)))
	if c := st.Snapshot; c != (relay.Snapshot{}) {
		progress := fmt.Sprintf("%d of about %d rows (%d %%)", c.Rows, c.EstimatedRows,
			c.Percent())
		row("snapshot", progress, c.Table)
	}
	row("published", fmt.Sprintf("%d messages", st.Published))
	inFlight := fmt.Sprintf("%d messages, %s", st.InFlight, health.Bytes(st.InFlightBytes))
	if !st.OldestUnacked.IsZero() {
		inFlight += fmt.Sprintf(", the oldest committed %s ago", ago(st.OldestUnacked))
	}
	row("in flight", inFlight)
	if st.Rate != (ratelimit.State{}) {
		row("max_rate", rateText(st.Rate))
	}
	if st.Error != "" {
		row("last error", terminal.OneLine(st.Error))
	}
	row("sink", r.Sink.String())
	if w := r.WriteBack; w != nil {
		swept := "nothing yet"
		if !w.LastSweep.IsZero() {
			swept = "complete " + ago(w.LastSweep) + " ago"
		}
		row("write-back", fmt.Sprintf("%d rows published, %d failed, %s", w.Published, w.Failed, swept))
		if w.Error != "" {
			row("not written", terminal.OneLine(w.Error))
		}
	}
}

// rateText is relay.max_rate, and the limit that holds rows back now.
func rateText(r ratelimit.State) string {
	text := r.MaxRate.String()
	switch r.Limiting {
	case "":
		return text + ", holds nothing back"
	case "relay.max_rate":
		return text + ", holds rows back"
	}
	return fmt.Sprintf("%s; %s holds rows back, which is %s", text, r.Limiting, r.Limit)
}

func slotRows(row func(...string), r Report, now time.Time) {
	s := r.Slot
	if s.ObservedAt.IsZero() {
		row("slot", "not observed yet")
		return
	}
	active := "inactive"
	if s.Active {
		active = fmt.Sprintf("active for process %d of the database", s.ActivePID)
	}
	row("slot", fmt.Sprintf("%s in database %s, %s", s.Name, s.Database, active))
	wal := cmp.Or(s.WALStatus, "no WAL kept")
	switch {
	case s.SafeWALSize != nil:
		wal += fmt.Sprintf(", %s until the slot can be lost", health.Bytes(*s.SafeWALSize))
	case !s.Lost():
		wal += ", max_slot_wal_keep_size sets no limit"
	}
	row("wal_status", wal)
	switch {
	case s.PublicationOK == nil && r.Source == SourceDatabase: // the verdict covers it
	case s.PublicationOK == nil:
		row("publication", "not looked at")
	case *s.PublicationOK:
		row("publication", "publishes every table")
	default:
		row("publication", "does not publish every table")
	}
	row("observed", health.Duration(now.Sub(s.ObservedAt))+" ago")
	if s.Error != "" {
		row("not since", terminal.OneLine(s.Error))
	}
}

// positionRows writes the positions, from the server back to the slot, with the distance from the
// server.
func positionRows(row func(...string), r Report) {
	server := r.Slot.CurrentWALLSN
	position := func(name string, lsn pglogrepl.LSN, what string) {
		switch {
		case lsn == 0:
		case server == 0:
			row(name, lsn.String())
		default: // one beyond server was read after it
			row(name, lsn.String(), health.Bytes(int64(server-min(lsn, server)))+" "+what)
		}
	}
	if server != 0 {
		row("server", server.String())
	}
	position("received", r.Relay.ReceivedLSN, "behind")
	position("acked", r.Relay.AckedLSN, "behind")
	position("confirmed", r.Slot.ConfirmedFlushLSN, "behind")
	position("restart", r.Slot.RestartLSN, "kept")
	if e := r.Monitor.Forecast.CatchUp; r.Relay.Rate.Limiting != "" && e.Assumption != "" {
		when := "no time"
		if e.Seconds != nil {
			when = "in about " + health.Duration(time.Duration(*e.Seconds*float64(time.Second)))
		}
		row("caught up", when+": "+terminal.OneLine(e.Assumption))
	}
}

// Line is a report on one line, for a log of refreshes.
func Line(r Report, now time.Time) string {
	line := now.UTC().Format(time.RFC3339) + " " + r.Verdict.State
	if r.Source == SourceDaemon {
		line += fmt.Sprintf(" phase=%s published=%d in_flight=%d", r.Relay.Phase,
			r.Relay.Published, r.Relay.InFlight)
	}
	if n := r.Slot.LagBytes; n != nil {
		line += fmt.Sprintf(" lag=%q", health.Bytes(*n))
	}
	if n := r.Slot.RetainedBytes; n != nil {
		line += fmt.Sprintf(" retained=%q", health.Bytes(*n))
	}
	return line + " " + terminal.OneLine(r.Verdict.Reason)
}
