package health

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/slot/monitor"
)

// keepsUp bounds the WAL between confirmed_flush_lsn and the server while a relay keeps up: one
// segment.
const keepsUp = 16 << 20

// unknownCause is the name of a cause that was not found.
const unknownCause = "not known"

// cause is the cause of a condition.
type cause struct {
	name    string // short; empty: there is no cause
	because string // the explanation, as a clause
	fix     string // a command that ends the cause; empty: none
	since   time.Time
}

// condition returns a condition with this cause as its reason.
func (c cause) condition(s Severity, notifyAfter time.Duration) Condition {
	return Condition{Severity: s, Reason: c.because, Next: c.fix, Cause: c.name, Since: c.since,
		For: notifyAfter}
}

// because returns a cause without a fix.
func because(name, format string, args ...any) cause {
	return cause{name: name, because: fmt.Sprintf(format, args...)}
}

// findCause returns why WAL is kept for the slot. Either positions are not confirmed, or an open
// transaction blocks restart_lsn before the confirmed position: what keeps more WAL is the cause.
func (f *facts) findCause() cause { return f.causeBeside(f.blocker()) }

// causeBeside returns the cause with this blocker; false: with none.
func (f *facts) causeBeside(blocker monitor.Blocker, blocked bool) cause {
	session := f.session()
	if blocked && f.blockedMore() {
		c := f.blocking(blocker)
		if session.name != "" && f.idle() { // its end alone does not advance restart_lsn
			c.because += ", and " + session.because
		}
		return c
	}
	standby, waits := f.standbyWait()
	switch {
	case f.idle():
		return session
	case f.hangs():
		return f.hanging()
	case f.sinkSilent() > 0:
		return f.silence()
	case f.Relay.Stalled.Partitions > 0:
		return f.stalled()
	case waits:
		return standby
	case session.name != "":
		return session
	case blocked:
		return f.blocking(blocker)
	}
	return f.backlog()
}

// idle reports whether no session is open, so that no position is confirmed. A standby, or a relay
// that does not answer, has no data about the session of another process.
func (f *facts) idle() bool {
	switch f.Relay.Phase {
	case relay.Starting, relay.Snapshotting, relay.Paused, relay.BackingOff, relay.Halted,
		relay.Stopped:
		return true
	case "":
		return !f.slot.Active
	}
	return false
}

// session returns why the relay confirms no position. Empty: it is streaming.
func (f *facts) session() cause {
	r := f.Relay
	switch r.Phase {
	case relay.Paused:
		if f.pausedStandby() {
			return f.reader()
		}
		return f.pause()
	case relay.BackingOff, relay.Halted:
		return cause{name: f.failed(), because: strings.Join(strings.Fields(f.failure()), " ")}
	case relay.Snapshotting:
		return cause{name: "snapshot", because: "the relay is " + snapshotText(r.Snapshot)}
	case relay.Starting:
		return because("relay that starts", "the first session is not open yet")
	case relay.Stopped:
		return cause{name: "stopped relay", because: "the relay has stopped", fix: "postrider run"}
	case relay.Standby, "":
		if f.slot.Active {
			return f.reader()
		}
		if r.Phase == relay.Standby {
			return because("relay that stands by", "the relay stands by and has not taken over")
		}
		return cause{name: "no relay", because: "no relay is running", fix: f.start()}
	}
	return cause{}
}

// reader returns the cause while another process reads the slot.
func (f *facts) reader() cause {
	name := fmt.Sprintf("process %d", f.slot.ActivePID)
	return because(name, "%s of the database reads the slot, and its relay does not answer here",
		name)
}

// pause returns the cause while the relay is paused.
func (f *facts) pause() cause {
	p := f.Relay.Paused
	since := p.Since
	if since.IsZero() {
		since = f.Relay.Since
	}
	text := "the relay has been paused for " + Duration(f.Now.Sub(since))
	if p.Until.IsZero() {
		text += ", until it is resumed"
	} else {
		text += ", until " + p.Until.UTC().Format(time.RFC3339)
	}
	if p.Reason != "" {
		text += ": " + slot.Printable(p.Reason)
	}
	return cause{"paused relay", text, "postrider resume", since}
}

// failed returns the name of what ended the session.
func (f *facts) failed() string {
	reason := f.Relay.Reason
	switch {
	case sinkFailed(reason):
		return f.sink()
	case reason == "unknown_topic":
		return "missing topic"
	case strings.HasPrefix(reason, "postgres_"), strings.HasPrefix(reason, "server_"),
		reason == "too_many_connections", reason == "not_writable", reason == "no_such_database",
		reason == "terminated", reason == "pooler":
		return "PostgreSQL"
	case reason == "table_locked":
		return "locked table"
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

// silence returns the cause while the sink acknowledges nothing: sinkSilent is positive.
func (f *facts) silence() cause {
	c := because(f.sink(), "%s has acknowledged nothing for %s, with %d messages in flight",
		f.sink(), Duration(f.Now.Sub(f.Relay.WaitingSince)), f.Relay.InFlight)
	c.since = f.Relay.WaitingSince
	if f.Relay.Stalled.Partitions > 0 {
		stalled := f.stalled()
		c.because += "; " + stalled.because
		if f.Relay.Stalled.Error != "" || f.Relay.Stalled.Throttled {
			c.fix = stalled.fix
		}
	}
	return c
}

// stalled returns the cause while partitions are stalled.
func (f *facts) stalled() cause {
	s := f.Relay.Stalled
	name, others, how := fmt.Sprintf("partition %d of topic %q", s.Partition, s.Topic), "",
		"has acknowledged nothing"
	if s.Leaderless {
		how = "has no leader, and has acknowledged nothing"
	}
	if s.Partitions > 1 {
		others = fmt.Sprintf(", as the first of %d partitions", s.Partitions)
	}
	c := because(name, "%s %s for %s%s; %d messages wait, and no position behind them is confirmed",
		name, how, Duration(f.Now.Sub(s.Since)), others, s.Messages)
	switch {
	case s.Error != "":
		c.because += "; brokers cannot be reached: " + s.Error
	case s.Throttled:
		c.because += "; the broker throttles the relay: a quota is exceeded"
	}
	c.since, c.fix = s.Since, s.Next
	return c
}

func (f *facts) sink() string { return cmp.Or(f.Sink, "the broker") }

// backlog returns the cause while the relay streams and nothing blocks it: it lags or keeps up.
func (f *facts) backlog() cause {
	lag, rates := orZero(f.slot.LagBytes), f.Observation.Rates
	switch {
	case lag <= keepsUp:
		return because(unknownCause,
			"the relay keeps up, and no open transaction is seen that would hold restart_lsn back")
	case f.Relay.Rate.Limiting != "":
		return f.limited()
	case rates.WAL5m != nil && rates.Drain5m != nil && *rates.WAL5m > *rates.Drain5m:
		return because("rate of writes", "the server writes %s/s of WAL, and %s/s are confirmed",
			Bytes(int64(*rates.WAL5m)), Bytes(int64(*rates.Drain5m)))
	}
	return because("backlog", "the relay is catching up with a backlog of %s", Bytes(lag))
}

// limited returns the cause while a limit of the rate holds rows back.
func (f *facts) limited() cause {
	r := f.Relay.Rate
	c := because(r.Limiting, "%s holds rows back, which is %s", r.Limiting, r.Limit)
	c.fix = fmt.Sprintf("raise %s in the configuration, as far as consumers can take it\n"+
		"systemctl reload postrider   # or kill -HUP of its process: no session ends", r.Limiting)
	return c
}

// caughtUp returns when the backlog is published while a limit holds rows back, as a clause.
func (f *facts) caughtUp() string {
	e := f.Observation.Forecast.CatchUp
	switch {
	case e.Seconds != nil && *e.Seconds == 0:
		return "caught up"
	case e.Seconds != nil:
		return "caught up in about " + Duration(seconds64(*e.Seconds))
	}
	return cmp.Or(e.Assumption, "when it is caught up is not known yet")
}

// orZero returns a value, or zero if it is unknown.
func orZero(v *int64) int64 {
	if v == nil {
		return 0
	}
	return *v
}
