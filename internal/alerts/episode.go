package alerts

import (
	"time"

	"github.com/postrider/postrider/internal/health"
)

// rank orders severities. Zero is none.
type rank int

const (
	none rank = iota
	info
	warning
	critical
)

var severities = [...]health.Severity{info: health.Info, warning: health.Warning, critical: health.Critical}

func (r rank) String() string { return string(severities[r]) }

// rankOf takes a severity that it does not know for a warning: somebody should look.
func rankOf(s health.Severity) rank {
	for r, name := range severities {
		if r > int(none) && name == s {
			return rank(r)
		}
	}
	return warning
}

const (
	// resolveAfter is how long a condition has to be gone before it is over, or, if it was not told yet, begins anew. A relay that fails,
	// tries again and fails is not well in between: with the default of relay.backoff_max 15 s pass from one session to the next, then
	// one opens, and a sink that does not answer can be seen after three more. TestNotifier_TellsWhatComesAndGoesWithTheSessions
	resolveAfter = 30 * time.Second
	// One that comes back within flapping has to be gone for twice as long the next time, up to resolveAtMost: that is a dozen words, and
	// then at most two in a quarter of an hour.
	flapping      = time.Hour
	resolveAtMost = 15 * time.Minute
)

// episode follows one condition, by its name: from the first sight of it until it is over, and again. It reads no clock.
type episode struct {
	condition health.Condition // as last seen
	levels    [critical + 1]level
	firing    bool
	severity  rank // while firing: the gravest level that has held for long enough, as of now
	startsAt  time.Time
	seen      time.Time // when it was there last; zero: never
	endedAt   time.Time // of the last time it was firing; zero: never, or it is firing
	patience  time.Duration
}

// level is since when a condition has been at least that severe.
type level struct {
	since time.Time     // zero: it is not
	wait  time.Duration // its For when it was exactly that severe, if it was
	known bool          // it was
}

// look takes the condition as it is now, nil if it does not hold. urgent leaves For out, and ends nothing.
func (e *episode) look(now time.Time, c *health.Condition, urgent bool) {
	if c == nil {
		if now.Sub(e.seen) >= resolveAfter {
			e.levels = [critical + 1]level{}
		}
		if e.firing && !urgent && now.Sub(e.seen) >= e.patience {
			e.firing, e.endedAt = false, e.seen
		}
		return
	}
	first := e.levels[info].since
	if first.IsZero() {
		first = now
	}
	e.condition, e.seen = *c, now
	reached := e.reached(now, urgent)
	switch {
	case reached == none:
	case e.firing:
		e.severity = reached
	default:
		e.begin(now, first, reached)
	}
}

// reached notes how severe the condition is now, and returns the gravest level that has held for its For.
func (e *episode) reached(now time.Time, urgent bool) rank {
	severity := rankOf(e.condition.Severity)
	e.levels[severity].wait, e.levels[severity].known = e.condition.For, true
	gravest := none
	for r := info; r <= critical; r++ {
		l := &e.levels[r]
		if r > severity {
			*l = level{}
			continue
		}
		if l.since.IsZero() {
			l.since = now
		}
		wait := e.condition.For
		if l.known {
			wait = l.wait
		}
		if urgent || now.Sub(l.since) >= wait {
			gravest = r
		}
	}
	return gravest
}

// begin is the moment from which people should know. first is when we saw the condition first; it may know better.
func (e *episode) begin(now, first time.Time, severity rank) {
	e.startsAt = first
	if since := e.condition.Since; !since.IsZero() && since.Before(first) {
		e.startsAt = since
	}
	if !e.endedAt.IsZero() && now.Sub(e.endedAt) < flapping {
		e.patience = min(2*e.patience, resolveAtMost)
	} else {
		e.patience = resolveAfter
	}
	e.firing, e.severity, e.endedAt = true, severity, time.Time{}
}

// gravest keeps one condition of each name, since a name is what people are told of.
func gravest(conditions []health.Condition) map[string]*health.Condition {
	m := make(map[string]*health.Condition, len(conditions))
	for i := range conditions {
		c := &conditions[i]
		if before := m[c.Name]; before == nil || rankOf(c.Severity) > rankOf(before.Severity) {
			m[c.Name] = c
		}
	}
	return m
}
