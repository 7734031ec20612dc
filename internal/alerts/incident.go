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

// rankOf returns the rank of a severity. An unknown one counts as a warning.
func rankOf(s health.Severity) rank {
	for r := info; r <= critical; r++ {
		if severities[r] == s {
			return r
		}
	}
	return warning
}

const (
	// resolveAfter is how long a condition has to be absent until its incident ends, or its For
	// starts again. A relay that fails again and again must not resolve between sessions: they are
	// 15 s apart (relay.backoff_max), and a sink that does not answer is a condition after 3 s more.
	// Test: TestNotifier_TellsWhatComesAndGoesWithTheSessions.
	resolveAfter = 30 * time.Second
	// flapping is the time within which a condition that returns doubles its resolveGap, up to
	// resolveAtMost: a dozen notifications at first, then at most two in 15 minutes.
	flapping      = time.Hour
	resolveAtMost = 15 * time.Minute
)

// incident is the state of one condition, whether it is firing or not. It reads no clock.
type incident struct {
	condition  health.Condition // as last seen
	levels     [critical + 1]level
	firing     bool
	severity   rank // while firing: the highest level that has lasted for its For
	startsAt   time.Time
	seen       time.Time     // when the condition was last present; zero: never
	endedAt    time.Time     // when it last stopped firing; zero: never, or it is firing
	resolveGap time.Duration // how long the condition has to be absent to end
}

// level is the state of one severity: the condition has it or a higher one.
type level struct {
	since time.Time     // zero: the condition is less severe
	wait  time.Duration // For of the condition when it last had exactly this severity
	known bool          // wait is set
}

// update sets the present condition; nil: there is none. urgent: For does not count, and the
// incident does not end.
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

// reached updates the levels and returns the highest one that has lasted for its For.
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

// fire starts to fire. startsAt is the earlier of first, when the condition was first present, and
// the condition's own Since.
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

// mostSevere returns the most severe condition of each name.
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
