package alerts

import (
	"time"

	"github.com/postrider/postrider/internal/health"
)

// rank orders severities.
type rank int

const (
	none rank = iota
	info
	warning
	critical
)

var severities = [...]health.Severity{
	info: health.Info, warning: health.Warning, critical: health.Critical,
}

func (r rank) String() string { return string(severities[r]) }

// rankOf takes an unknown severity for a warning.
func rankOf(s health.Severity) rank {
	for r := info; r <= critical; r++ {
		if severities[r] == s {
			return r
		}
	}
	return warning
}

const (
	// resolveAfter is how long a condition has to be gone before it is over, or, before it fired,
	// before its For counts from the start. A relay that fails and tries again is failing in between:
	// with the default of relay.backoff_max 15 s pass from one session to the next, the next one
	// opens, and a sink that does not answer is noticed after three more.
	// TestNotifier_TellsWhatComesAndGoesWithTheSessions
	resolveAfter = 30 * time.Second
	// A condition that comes back within flapping has to be gone for twice as long the next time, up
	// to resolveAtMost: a dozen notifications at first, then at most two in a quarter of an hour.
	flapping      = time.Hour
	resolveAtMost = 15 * time.Minute
)

// incident follows the condition of one name through all its times. It reads no clock.
type incident struct {
	condition  health.Condition // as last seen
	levels     [critical + 1]level
	firing     bool
	severity   rank // while firing: the highest level that has lasted for its For, as of now
	startsAt   time.Time
	seen       time.Time     // last; zero: never
	endedAt    time.Time     // when it last stopped firing; zero: never, or it is firing
	resolveGap time.Duration // how long it has to be gone to be over
}

// level is a severity or more.
type level struct {
	since time.Time     // zero: less severe now
	wait  time.Duration // For of the condition when it last had exactly this severity
	known bool          // wait is set
}

// update takes the condition as it is now; nil: it does not hold. urgent ignores For, and ends
// nothing.
func (i *incident) update(now time.Time, c *health.Condition, urgent bool) {
	if c == nil {
		if now.Sub(i.seen) >= resolveAfter {
			i.levels = [critical + 1]level{}
		}
		if i.firing && !urgent && now.Sub(i.seen) >= i.resolveGap {
			i.firing, i.endedAt = false, i.seen
		}
		return
	}
	first := i.levels[info].since
	if first.IsZero() {
		first = now
	}
	i.condition, i.seen = *c, now
	reached := i.reached(now, urgent)
	switch {
	case reached == none:
	case i.firing:
		i.severity = reached
	default:
		i.fire(now, first, reached)
	}
}

// reached updates the levels, and returns the highest that has lasted for its For.
func (i *incident) reached(now time.Time, urgent bool) rank {
	severity := rankOf(i.condition.Severity)
	i.levels[severity].wait, i.levels[severity].known = i.condition.For, true
	highest := none
	for r := info; r <= critical; r++ {
		l := &i.levels[r]
		if r > severity {
			*l = level{}
			continue
		}
		if l.since.IsZero() {
			l.since = now
		}
		wait := i.condition.For
		if l.known {
			wait = l.wait
		}
		if urgent || now.Sub(l.since) >= wait {
			highest = r
		}
	}
	return highest
}

// fire begins a time of firing. It starts at first, when the condition was first seen, or at the
// condition's own earlier Since.
func (i *incident) fire(now, first time.Time, severity rank) {
	i.startsAt = first
	if since := i.condition.Since; !since.IsZero() && since.Before(first) {
		i.startsAt = since
	}
	if !i.endedAt.IsZero() && now.Sub(i.endedAt) < flapping {
		i.resolveGap = min(2*i.resolveGap, resolveAtMost)
	} else {
		i.resolveGap = resolveAfter
	}
	i.firing, i.severity, i.endedAt = true, severity, time.Time{}
}

// mostSevere keeps one condition of each name.
func mostSevere(conditions []health.Condition) map[string]*health.Condition {
	m := make(map[string]*health.Condition, len(conditions))
	for i := range conditions {
		c := &conditions[i]
		if before := m[c.Name]; before == nil || rankOf(c.Severity) > rankOf(before.Severity) {
			m[c.Name] = c
		}
	}
	return m
}
