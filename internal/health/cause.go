package health

import (
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/slot/monitor"
)

const (
	// The background writer logs the running transactions that often, and restart_lsn follows only then: what is open for less holds nothing.
	runningLogged = 15 * time.Second
	// WAL between confirmed_flush_lsn and the server that a relay which keeps up has now and then: one segment.
	keepsUp = 16 << 20
)

// unknownCause is the name of a cause where none is seen.
const unknownCause = "not known"

// findTransactions is what to type if it cannot be seen from here who it is.
const findTransactions = "SELECT pid, xact_start, usename, application_name FROM pg_stat_activity WHERE backend_xid IS NOT NULL ORDER BY xact_start;"

// cause is who it is because of.
type cause struct {
	name    string // in a few words; empty: nobody, as far as known
	because string // a clause
	cure    string // what to type to end it; empty: nothing that one could type would
}

// findCause finds why WAL is kept for the slot. Two things can: positions are not confirmed, or they are, and a transaction that is still open
// holds restart_lsn back behind them. The one that keeps more is it.
func (f *facts) findCause() cause {
	session := f.session()
	if h, found := f.blocker(); found && f.heldMore() {
		c := f.blocking(h)
		if session.name != "" && f.idle() { // then restart_lsn will not move when the transaction ends either
			c.because += ", and " + session.because
		}
		return c
	}
	switch {
	case f.idle():
		return session
	case f.hangs():
		return f.hanging()
	case f.sinkSilent() > 0:
		return f.silence()
	}
	if g, blocked := f.standbys(); blocked {
		return g
	}
	if session.name != "" {
		return session
	}
	if h, found := f.blocker(); found {
		return f.blocking(h)
	}
	return f.backlog()
}

// idle tells that no session is open, so nothing is confirmed. A relay that stands by, or one that did not answer, knows nothing of the
// session of another process.
func (f *facts) idle() bool {
	switch f.Relay.Phase {
	case relay.Starting, relay.Snapshotting, relay.Paused, relay.BackingOff, relay.Halted, relay.Stopped:
		return true
	case "":
		return !f.slot.Active
	}
	return false
}

// session is what the relay itself keeps from confirming, and nobody else. Empty: it streams.
func (f *facts) session() cause {
	r := f.Relay
	switch r.Phase {
	case relay.Paused:
		if f.pausedStandby() {
			return f.reader()
		}
		return cause{"paused relay", f.pauseText(), "postrider resume"}
	case relay.BackingOff, relay.Halted:
		return cause{f.failed(), strings.Join(strings.Fields(f.failure()), " "), ""}
	case relay.Snapshotting:
		return cause{"snapshot", "the relay is " + snapshotText(r.Snapshot), ""}
	case relay.Starting:
		return cause{"relay that starts", "the first session is not open yet", ""}
	case relay.Stopped:
		return cause{"stopped relay", "the relay has stopped", "postrider run"}
	case relay.Standby, "":
		if f.slot.Active {
			return f.reader()
		}
		if r.Phase == relay.Standby {
			return cause{"relay that stands by", "the relay stands by and has not taken over", ""}
		}
		return cause{"no relay", "no relay is running", f.start()}
	}
	return cause{}
}

// reader is the process that reads the slot, if that is not this relay.
func (f *facts) reader() cause {
	return cause{
		fmt.Sprintf("process %d", f.slot.ActivePID),
		fmt.Sprintf("it is process %d of the database that reads the slot, and its relay does not answer here", f.slot.ActivePID), "",
	}
}

func (f *facts) pauseText() string {
	p := f.Relay.Paused
	text := "the relay has been paused for " + Duration(f.Now.Sub(pausedSince(f.Relay)))
	if p.Until.IsZero() {
		text += ", until somebody resumes it"
	} else {
		text += ", until " + p.Until.UTC().Format(time.RFC3339)
	}
	if p.Reason != "" {
		text += ": " + slot.Printable(p.Reason)
	}
	return text
}

// failed is whose failure ended the session, by its reason.
func (f *facts) failed() string {
	reason := f.Relay.Reason
	switch {
	case sinkFailed(reason):
		return f.sink()
	case reason == "unknown_topic":
		return "missing topic"
	case strings.HasPrefix(reason, "postgres_"), strings.HasPrefix(reason, "server_"), reason == "too_many_connections",
		reason == "not_writable", reason == "no_such_database", reason == "terminated":
		return "PostgreSQL"
	case strings.HasPrefix(reason, "slot_"):
		return "slot " + f.slot.Name
	case reason == "publication":
		return "publication"
	case f.Relay.Phase == relay.Halted:
		return "halted relay"
	}
	return "failing session"
}

func sinkFailed(reason string) bool {
	return reason == "broker" || strings.HasPrefix(reason, "broker_")
}

// silence is a sink that acknowledges nothing. It may be asked only while there is one.
func (f *facts) silence() cause {
	return cause{f.sink(), fmt.Sprintf("%s has acknowledged nothing for %s, with %d messages in flight",
		f.sink(), Duration(f.Now.Sub(f.Relay.WaitingSince)), f.Relay.InFlight), ""}
}

func (f *facts) sink() string {
	if f.Sink == "" {
		return "the broker"
	}
	return f.Sink
}

// backlog is what is left: the relay streams, nothing is in its way, and it is not there yet. Empty if it is.
func (f *facts) backlog() cause {
	rates := f.Observation.Rates
	switch {
	case f.slot.LagBytes == nil || *f.slot.LagBytes <= keepsUp:
		return cause{unknownCause, "the relay keeps up, and no open transaction is seen that would hold restart_lsn back", ""}
	case rates.WAL5m != nil && rates.Drain5m != nil && *rates.WAL5m > *rates.Drain5m:
		return cause{"rate of writes", fmt.Sprintf("the server writes %s/s of WAL, and %s/s are confirmed",
			Bytes(int64(*rates.WAL5m)), Bytes(int64(*rates.Drain5m))), ""}
	}
	return cause{"backlog", fmt.Sprintf("the relay is working off a backlog of %s", Bytes(*f.slot.LagBytes)), ""}
}

// heldMore tells that there is more WAL between restart_lsn and what is confirmed than behind that.
func (f *facts) heldMore() bool {
	lag, retained := f.slot.LagBytes, f.slot.RetainedBytes
	return lag != nil && retained != nil && *retained-*lag > *lag
}

// blocker is the oldest transaction that keeps restart_lsn back, if it is old enough for that.
func (f *facts) blocker() (monitor.Blocker, bool) {
	for _, h := range f.Observation.Blockers {
		if h.Restart && f.age(h) > min(runningLogged, f.Config.HeldWarning) {
			return h, true
		}
	}
	return monitor.Blocker{}, false
}

func (f *facts) age(h monitor.Blocker) time.Duration {
	if h.Since.IsZero() {
		return 0
	}
	return f.serverTime.Sub(h.Since)
}

// blocking names a blocker. What somebody else has chosen, a name or a gid, is shown without control characters.
func (f *facts) blocking(h monitor.Blocker) cause {
	age := Duration(f.age(h))
	switch h.Kind {
	case monitor.BlockerPrepared:
		gid := slot.Printable(h.GID)
		return cause{
			"prepared transaction " + gid,
			fmt.Sprintf("prepared transaction %q%s has waited for COMMIT PREPARED for %s", gid, details("", h), age),
			slot.EndPrepared(h.GID, h.Database),
		}
	case monitor.BlockerStandby:
		name := slot.Printable(h.Application)
		return cause{
			"standby " + name,
			fmt.Sprintf("standby %s has reported a transaction that is %s old (hot_standby_feedback)", name, age),
			"ALTER SYSTEM SET hot_standby_feedback = off; -- there, then SELECT pg_reload_conf(); or end the query that it runs",
		}
	}
	if h.PID == 0 {
		return cause{
			fmt.Sprintf("transaction %d", h.XID), fmt.Sprintf("transaction %d%s has been open for %s", h.XID, details("", h), age),
			findTransactions,
		}
	}
	who := fmt.Sprintf("transaction of pid %d", h.PID)
	culprit := who
	if h.Application != "" {
		culprit += " (" + slot.Printable(h.Application) + ")"
	}
	end := fmt.Sprintf("SELECT pg_terminate_backend(%d); -- or wait for its end", h.PID)
	if h.Works() {
		end = fmt.Sprintf("SELECT xact_start, query FROM pg_stat_activity WHERE pid = %d; -- it is at work: pg_terminate_backend(%[1]d) undoes all of it", h.PID)
	}
	return cause{culprit, fmt.Sprintf("the %s%s has been open for %s", who, details(h.Application, h), age), end}
}

// details are what is known of a blocker beside its number, in brackets.
func details(application string, h monitor.Blocker) string {
	var parts []string
	for _, p := range []struct{ label, value string }{{"", application}, {"user ", h.User}, {"database ", h.Database}, {"", h.State}} {
		if p.value != "" {
			parts = append(parts, p.label+slot.Printable(p.value))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}
