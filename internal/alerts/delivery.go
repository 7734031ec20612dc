package alerts

import (
	"cmp"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/health"
)

const (
	// Pauses between attempts double from backoffMin to backoffMax, and are drawn from the upper
	// half.
	backoffMin = time.Second
	backoffMax = 15 * time.Minute
	// retryAfterMax bounds the pause that a receiver may ask for.
	retryAfterMax = time.Hour
)

// notification is what to send to one receiver about one incident. It shares no memory with the
// incident.
type notification struct {
	condition health.Condition
	severity  rank
	resolved  bool
	repeated  bool
	startsAt  time.Time
	endsAt    time.Time // zero unless resolved
	due       time.Time // not before
}

func (p notification) status() string {
	if p.resolved {
		return statusResolved
	}
	return statusFiring
}

// compare orders notifications by urgency: firing before resolved.
func (p notification) compare(other notification) int {
	return cmp.Or(strings.Compare(p.status(), other.status()),
		cmp.Compare(other.severity, p.severity),
		strings.Compare(p.condition.Name, other.condition.Name))
}

// content tells notifications of one incident apart: one with another content than the failed one
// is tried at once.
type content struct {
	resolved bool
	severity rank
}

func (p notification) content() content { return content{p.resolved, p.severity} }

// delivery is what one receiver took of one incident. It reads no clock.
type delivery struct {
	severity rank      // highest that it took; none: nothing, or it may have got the end since
	maybe    bool      // it may have got a failed attempt: it is sent the end, and the next beginning
	at       time.Time // when it took the last notification

	// The notification that failed last.
	tried       content
	attempts    int
	wasRefused  bool
	nextAttempt time.Time // zero while wasRefused: never
}

// pending returns the notification that the receiver has not taken, and whether there is one.
func (d *delivery) pending(i *incident, least rank, repeat time.Duration) (notification, bool) {
	p := notification{condition: i.condition, severity: i.severity, startsAt: i.startsAt}
	switch {
	case i.firing && d.severity == none && i.severity >= least:
	case i.firing && d.severity != none && i.severity > d.severity:
	case i.firing && d.severity != none && repeat > 0:
		p.repeated, p.due = true, d.at.Add(repeat)
	case !i.firing && (d.severity != none || d.maybe):
		p.resolved, p.endsAt = true, i.endedAt
	default:
		return notification{}, false
	}
	if d.attempts == 0 || d.tried != p.content() {
		return p, true
	}
	if d.nextAttempt.After(p.due) {
		p.due = d.nextAttempt
	}
	return p, !d.wasRefused || !d.nextAttempt.IsZero()
}

func (d *delivery) took(p notification, now time.Time) {
	*d = delivery{}
	if !p.resolved {
		d.severity, d.at = p.severity, now
	}
}

// failed records a failed attempt, and returns the pause before the next. A refused notification
// is tried again with the repetition.
func (d *delivery) failed(p notification, f *failure, repeat time.Duration,
	now time.Time) time.Duration {
	if d.tried != p.content() {
		d.attempts = 0
	}
	d.tried, d.wasRefused = p.content(), f.refused
	d.attempts++
	if f.reached {
		d.maybe = true
		if p.resolved {
			d.severity = none
		}
	}
	pause := max(backoff(d.attempts), f.after)
	if f.refused {
		pause = repeat
	}
	d.nextAttempt = now.Add(pause)
	if f.refused && repeat == 0 {
		d.nextAttempt = time.Time{}
	}
	return pause
}

// refuses reports whether the receiver has refused this notification.
func (d *delivery) refuses(p notification) bool { return d.wasRefused && d.tried == p.content() }

// missed reports, once, that the incident has ended without the receiver: attempts failed, and
// nothing is pending any more. What was refused is counted already.
func (d *delivery) missed(i *incident) bool {
	if i.firing || d.severity != none || d.maybe || d.attempts == 0 {
		return false
	}
	counted := d.wasRefused
	*d = delivery{}
	return !counted
}

func backoff(attempts int) time.Duration {
	ceiling := min(backoffMin<<min(attempts-1, 30), backoffMax)
	return ceiling/2 + rand.N(ceiling/2+1)
}
