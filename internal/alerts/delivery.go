package alerts

import (
	"cmp"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/health"
)

const (
	// Pauses between attempts double from backoffMin to backoffMax. Jitter shortens each by up to
	// one half.
	backoffMin = time.Second
	backoffMax = 15 * time.Minute
	// retryAfterMax bounds the Retry-After of a receiver.
	retryAfterMax = time.Hour
)

// notification is a message to one receiver about one incident. It shares no memory with it.
type notification struct {
	condition health.Condition
	severity  rank
	resolved  bool
	repeated  bool
	startsAt  time.Time
	endsAt    time.Time // zero unless resolved
	due       time.Time // earliest time to send it
}

func (p notification) status() string {
	if p.resolved {
		return statusResolved
	}
	return statusFiring
}

// compare orders notifications: firing before resolved, then by severity and name.
func (p notification) compare(other notification) int {
	return cmp.Or(strings.Compare(p.status(), other.status()),
		cmp.Compare(other.severity, p.severity),
		strings.Compare(p.condition.Name, other.condition.Name))
}

// content identifies a notification of an incident. A notification whose content differs from the
// one that failed is sent at once.
type content struct {
	resolved bool
	severity rank
}

func (p notification) content() content { return content{p.resolved, p.severity} }

// delivery is what one receiver has accepted of one incident. It reads no clock.
type delivery struct {
	severity rank      // highest accepted; none: nothing accepted, or maybe resolved
	maybe    bool      // a failed attempt may have been accepted: send firing and resolved anyway
	at       time.Time // of the last accepted notification

	// The notification that failed last.
	tried       content
	attempts    int
	wasRefused  bool
	nextAttempt time.Time // zero, with wasRefused: never
}

// pending returns the notification that the receiver has not accepted, and whether there is one.
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

func (d *delivery) accepted(p notification, now time.Time) {
	*d = delivery{}
	if !p.resolved {
		d.severity, d.at = p.severity, now
	}
}

// failed records a failed attempt and returns the pause before the next: repeat, if the receiver
// has refused the notification.
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
	pause := max(backoff(d.attempts), f.retryAfter)
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

// missed reports, once, that the incident has ended before the receiver accepted a notification. A
// refused one does not count: attempt has counted it.
func (d *delivery) missed(i *incident) bool {
	if i.firing || d.severity != none || d.maybe || d.attempts == 0 {
		return false
	}
	refused := d.wasRefused
	*d = delivery{}
	return !refused
}

func backoff(attempts int) time.Duration {
	ceiling := min(backoffMin<<min(attempts-1, 30), backoffMax)
	return ceiling/2 + rand.N(ceiling/2+1)
}
