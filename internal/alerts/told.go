package alerts

import (
	"math/rand/v2"
	"time"
)

const (
	// Pauses between the attempts to tell the same thing double from the first to the last of these, and are drawn from the upper half.
	backoffMin = time.Second
	backoffMax = 15 * time.Minute
	// retryAfterMax bounds what a receiver may ask for.
	retryAfterMax = time.Hour
)

// told is what one receiver knows of one episode. It reads no clock.
type told struct {
	severity rank      // gravest that it took; none: it took nothing, or may have heard of the end since
	perhaps  bool      // an attempt failed that may have reached it all the same: it has to hear of the end, and of the next beginning
	at       time.Time // when it took the last word

	// Of the word that it did not take.
	tried    attemptKey
	attempts int
	refused  bool      // it would not take it another time either
	next     time.Time // not before; zero: never, if refused
}

// attemptKey tells when a word is another than the one that failed, and so is tried at once.
type attemptKey struct {
	resolved bool
	severity rank
}

func (w word) key() attemptKey { return attemptKey{w.resolved, w.severity} }

// owed returns the word that the receiver has not been told, and from when on it may be tried. ok is false if there is none.
func (t *told) owed(e *episode, least rank, repeat time.Duration) (w word, due time.Time, ok bool) {
	w = word{condition: e.condition, severity: e.severity, startsAt: e.startsAt}
	switch {
	case e.firing && t.severity == none && e.severity >= least:
	case e.firing && t.severity != none && e.severity > t.severity:
	case e.firing && t.severity != none && repeat > 0:
		w.repeated, due = true, t.at.Add(repeat)
	case !e.firing && (t.severity != none || t.perhaps):
		w.resolved, w.endsAt = true, e.endedAt
	default:
		return word{}, time.Time{}, false
	}
	if t.attempts == 0 || t.tried != w.key() {
		return w, due, true
	}
	if t.refused && t.next.IsZero() {
		return word{}, time.Time{}, false
	}
	if t.next.After(due) {
		due = t.next
	}
	return w, due, true
}

// took notes that the receiver took the word.
func (t *told) took(w word, now time.Time) {
	if w.resolved {
		*t = told{}
		return
	}
	*t = told{severity: w.severity, at: now}
}

// failed notes that an attempt failed, and returns the pause before the next. What was refused comes again with the repetition.
func (t *told) failed(w word, f *failure, repeat time.Duration, now time.Time) time.Duration {
	if t.tried != w.key() {
		t.attempts = 0
	}
	t.tried, t.refused = w.key(), f.refused
	t.attempts++
	if f.reached {
		t.perhaps = true
		if w.resolved {
			t.severity = none
		}
	}
	if f.refused {
		t.next = time.Time{}
		if repeat > 0 {
			t.next = now.Add(repeat)
		}
		return repeat
	}
	pause := max(backoff(t.attempts), f.after)
	t.next = now.Add(pause)
	return pause
}

// lost tells whether the receiver has missed a condition for good: attempts failed, and there is nothing to tell any more. It says so once.
func (t *told) lost(e *episode) bool {
	if e.firing || t.severity != none || t.perhaps || t.attempts == 0 {
		return false
	}
	counted := t.refused
	*t = told{}
	return !counted
}

func backoff(attempts int) time.Duration {
	ceiling := backoffMax
	if doubled := backoffMin << min(attempts-1, 30); doubled < backoffMax {
		ceiling = doubled
	}
	return ceiling/2 + rand.N(ceiling/2+1)
}
