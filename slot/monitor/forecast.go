package monitor

import (
	"fmt"
	"math"
	"time"

	"github.com/postrider/postrider/slot"
)

const (
	// A load has begun, or ended, if the rate of the last minute differs from that of 5 minutes by
	// these factors. Less is noise, or the full-page images after a checkpoint.
	loadBegan, loadEnded = 1.25, 0.5
	// keepsUp is the part of the written WAL that a reader without a backlog confirms over 5
	// minutes.
	keepsUp = 0.9
	// unsteady is the part by which a steady rate may vary.
	unsteady = 0.1
	// caughtUp is the largest backlog of a reader that has caught up, in seconds of writing.
	caughtUp = 10
)

// forecast makes the Forecast of an observation, from nothing else. Each Estimate has its reason
// in words. docs/decisions/0013-forecast-of-loss.md has the rules, and the errors on real servers.
func forecast(o Observation) Forecast {
	f := Forecast{Loss: forecastLoss(o), CatchUp: forecastCatchUp(o)}
	wal, _ := walRate(o.Rates)
	_, f.Grows = findPressure(o, wal.best)
	f.DiskFull, f.DiskFullByArchiver = forecastDiskFull(o, f.Loss)
	return f
}

// forecastLoss estimates when the slot is lost: the sooner of the limit and idleness.
func forecastLoss(o Observation) Estimate {
	switch s := o.Slot; {
	case s.Lost() && s.InvalidationReason != "":
		return estimate(0, 0, 0, "the slot is lost already: %s", s.InvalidationReason)
	case s.Lost():
		return estimate(0, 0, 0, "the slot is lost already")
	case s.RestartLSN == 0:
		return never("the slot keeps no WAL, so there is none to lose")
	}
	limit, idle := lossByLimit(o), lossByIdleness(o)
	if idle.Seconds != nil && (limit.Seconds == nil || *idle.Seconds < *limit.Seconds) {
		return idle
	}
	return limit
}

// lossByLimit estimates when max_slot_wal_keep_size invalidates the slot: not when the limit is
// passed, but when the first checkpoint after that ends.
func lossByLimit(o Observation) Estimate {
	if o.Slot.SafeWALSize == nil {
		if o.Limit.Effective == nil {
			return never("no loss in sight: max_slot_wal_keep_size is not set, so WAL is kept until it " +
				"is read or the disk is full")
		}
		return never("not known: the server does not report safe_wal_size")
	}
	safe := float64(*o.Slot.SafeWALSize)
	wal, known := walRate(o.Rates)
	p, pressed := findPressure(o, wal.best)
	passed := passes(safe, p.rate)
	switch {
	case safe <= 0:
	case !known:
		return never(unwatched)
	default:
		if why := o.noForecast(p, pressed, wal, passed, "loss", "the limit is passed"); why != "" {
			return never("%s", why)
		}
	}

	l := outlook{Observation: o, restart: position(o, uint64(o.Slot.RestartLSN))}
	c := l.checkpointAfter(wal.best, passed, nil)
	if safe <= 0 && !pressed && o.Slot.Active && c.ends > RestartStep {
		return never("no loss in sight: the limit is passed, but the reader keeps up, so restart_lsn " +
			"moves before a checkpoint ends")
	}
	faster, slower := wal.spread()
	earliest := min(c.ends, passes(safe, p.rate*faster))
	latest := c.ends
	for _, rate := range []float64{wal.best * (1 - unsteady), wal.best, wal.best * (1 + unsteady)} {
		latest = max(latest, l.latest(rate, passes(safe, p.rate*slower)))
	}
	return estimate(c.ends, earliest, latest, "%s; the slot is lost when %s",
		limitText(o, wal, p, passed), l.endText(c, passed, latest))
}

const unwatched = "not known yet: WAL has to be watched for 30 seconds first"

// noForecast returns why there is no time at which the pressure passes a bound, which it would
// pass after passed seconds; empty: there is one.
func (o Observation) noForecast(p pressure, pressed bool, wal written, passed float64,
	what, bound string) string {
	switch {
	case wal.best <= 0:
		return fmt.Sprintf("no %s in sight: no WAL is written, by %s", what, wal.window)
	case !pressed && !o.Slot.Active:
		return fmt.Sprintf("not known yet: the slot has been inactive for less than %d seconds",
			awayFor)
	case !pressed:
		return "no " + what + " in sight: the reader keeps up, and nothing holds restart_lsn back"
	case !p.reaches(passed):
		return fmt.Sprintf("not known: %s, and %s in %s if that lasts, by %s", p.text, bound,
			span(passed), wal.window)
	}
	return ""
}

func limitText(o Observation, wal written, p pressure, passed float64) string {
	limit := "max_slot_wal_keep_size"
	if o.Limit.Effective != nil {
		limit = "the limit of " + slot.Size(float64(*o.Limit.Effective))
	}
	if passed <= 0 {
		return limit + " is passed"
	}
	return fmt.Sprintf("%s; at %s/s of WAL, %s, %s is passed in %s", p.text, slot.Size(wal.best),
		wal.window, limit, span(passed))
}

// lossByIdleness estimates when idle_replication_slot_timeout invalidates the slot: at the end of
// a checkpoint, unless a session reads from it.
func lossByIdleness(o Observation) Estimate {
	s, timeout := o.Slot, float64(o.Limit.IdleTimeout)
	if timeout <= 0 || s.Active || s.InactiveSince.IsZero() || s.Synced {
		return never("")
	}
	passed := max(0, s.InactiveSince.Sub(serverNow(o)).Seconds()+timeout)
	wal, _ := walRate(o.Rates)
	l := outlook{Observation: o, restart: math.Inf(-1)}
	c := l.checkpointAfter(wal.best, passed, nil)
	latest := max(c.ends, l.latest(wal.best, passed))
	what := "idle_replication_slot_timeout is over"
	if passed > 0 {
		what += " in " + span(passed)
	}
	e := estimate(c.ends, passed, latest,
		"no session reads from the slot and %s; it is lost when %s", what, l.endText(c, passed, latest))
	e.By = ByIdleness
	return e
}

// forecastCatchUp estimates when confirmed_flush_lsn reaches the server, which goes on writing.
func forecastCatchUp(o Observation) Estimate {
	r := o.Rates
	switch {
	case o.Slot.Lost():
		return never("not catching up: the slot is lost")
	case o.Slot.LagBytes == nil:
		return never("not known: the slot has no confirmed position")
	case !o.Slot.Active:
		return never("not catching up: no session reads from the slot")
	case *o.Slot.LagBytes == 0:
		return estimate(0, 0, 0, "caught up: everything that is written is confirmed")
	case r.WAL5m == nil || r.Drain5m == nil:
		return never("not known yet: the slot has to be watched for 30 seconds first")
	}
	lag := float64(*o.Slot.LagBytes)
	if lag <= caughtUp**r.WAL5m && *r.Drain5m >= keepsUp**r.WAL5m {
		return estimate(0, 0, 0, "caught up: what waits was written within the last %d seconds",
			caughtUp)
	}
	if o.Pace.limits() {
		return catchUpLimited(o, lag)
	}
	if *r.Drain5m <= *r.WAL5m {
		return never("not catching up: %s/s are confirmed and %s/s written, over the last 5 minutes",
			slot.Size(*r.Drain5m), slot.Size(*r.WAL5m))
	}
	return estimate(lag/(*r.Drain5m-*r.WAL5m), lag / *r.Drain5m, math.Inf(1),
		"%s wait, %s/s are confirmed and %s/s written, over the last 5 minutes", slot.Size(lag),
		slot.Size(*r.Drain5m), slot.Size(*r.WAL5m))
}

// written is how fast WAL is written, in bytes per second.
type written struct {
	best, lowest, highest float64
	window                string // of the best
}

// walRate returns how fast the server writes WAL; false: not known.
func walRate(r Rates) (written, bool) {
	if r.WAL5m == nil {
		return written{}, false
	}
	wal := written{best: *r.WAL5m, lowest: *r.WAL5m, highest: *r.WAL5m,
		window: "the rate of the last 5 minutes"}
	if r.WAL1m != nil {
		if minute := *r.WAL1m; minute > loadBegan*wal.best || minute < loadEnded*wal.best {
			wal.best, wal.window = minute, "the rate of the last minute"
		}
		wal.lowest, wal.highest = min(wal.lowest, *r.WAL1m), max(wal.highest, *r.WAL1m)
	}
	if r.WAL1h != nil {
		wal.highest = max(wal.highest, *r.WAL1h)
	}
	return wal, true
}

// spread returns the highest and the lowest rate as factors of the best.
func (w written) spread() (faster, slower float64) {
	if w.best <= 0 {
		return 1, 1 - unsteady
	}
	return w.highest / w.best, w.lowest * (1 - unsteady) / w.best
}

// passes returns in how many seconds so many bytes are written; infinity: never.
func passes(bytes, rate float64) float64 {
	switch {
	case bytes <= 0:
		return 0
	case rate <= 0:
		return math.Inf(1)
	}
	return bytes / rate
}

// serverNow returns the server's clock at the observation.
func serverNow(o Observation) time.Time {
	if o.Clock == nil {
		return o.Slot.ObservedAt
	}
	return o.Slot.ObservedAt.Add(o.Clock.Skew.Duration())
}

// never returns an estimate without a time, with the reason.
func never(format string, args ...any) Estimate {
	return Estimate{Assumption: fmt.Sprintf(format, args...)}
}

// estimate returns one with times. What is more than a century ahead does not happen; a latest
// time that is later stays open.
func estimate(seconds, earliest, latest float64, format string, args ...any) Estimate {
	const century = 100 * 365 * 86400
	if seconds > century {
		return never(format, args...)
	}
	e := Estimate{Seconds: &seconds, Earliest: &earliest, Assumption: fmt.Sprintf(format, args...)}
	if latest <= century {
		e.Latest = &latest
	}
	return e
}

// span formats a number of seconds in two units: "12s", "3m20s", "4d7h".
func span(seconds float64) string {
	s := int64(min(math.Round(seconds), 1e12))
	switch {
	case s < 60:
		return fmt.Sprintf("%ds", max(0, s))
	case s < 3600:
		return fmt.Sprintf("%dm%ds", s/60, s%60)
	case s < 86400:
		return fmt.Sprintf("%dh%dm", s/3600, s%3600/60)
	}
	return fmt.Sprintf("%dd%dh", s/86400, s%86400/3600)
}
