package relay

import (
	"math/rand/v2"
	"time"
)

const (
	// Pause after the server said that it shuts down: a reconnecting client makes a new walsender for it to wait for,
	// and can so block a demotion (reported of pg_hardstorage, issue 34).
	stoppingPause = 10 * time.Second
	// Ceiling of a standby's pause. The takeover is waited for by consumers, and an attempt is one short query.
	standbyPause = time.Second
)

// backoff spaces sessions with full jitter: each pause is drawn evenly from zero to a ceiling that doubles with every failure, so
// that relays that failed together do not come back together.
type backoff struct {
	min, max time.Duration
	failures int
}

// next returns the pause before the next session. progress: the session that failed had acked more than any before it.
func (b *backoff) next(reason string, progress bool) time.Duration {
	if reason == reasonSlotInUse {
		b.failures = 0
		return standbyPause/2 + jitter(standbyPause/2)
	}
	if progress {
		b.failures = 0
	}
	ceiling := b.max
	if shifted := b.min << min(b.failures, 30); shifted > 0 && shifted < b.max {
		ceiling = shifted
	}
	b.failures++
	pause := jitter(ceiling)
	if reason == reasonServerStopping {
		pause += stoppingPause
	}
	return pause
}

func jitter(ceiling time.Duration) time.Duration { return rand.N(ceiling + 1) }
