package relay

import (
	"math/rand/v2"
	"time"
)

const (
	// Pause after the server said that it shuts down: a reconnecting client makes a new walsender for it to wait for,
	// and can so block a demotion (reported of pg_hardstorage, issue 34).
	stoppingPause = 10 * time.Second
	// Ceiling of a standby's pause where nothing tells it that the slot is free.
	standbyPause = time.Second
	// Ceiling of the pause before it looks whether the slot is free: several that stand by do not try at the same moment again and again.
	standbyJitter = 100 * time.Millisecond
	// Ceiling of a pause while the database cannot be reached or takes no writes: it may be a failover, and consumers wait for its end.
	databasePause = 5 * time.Second
)

// databaseAway are the reasons of a session that found no database to write to.
var databaseAway = map[string]bool{"postgres_unreachable": true, "not_writable": true, "server_starting": true}

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
	if databaseAway[reason] {
		ceiling = min(ceiling, databasePause)
	}
	pause := jitter(ceiling)
	if reason == reasonServerStopping {
		pause += stoppingPause
	}
	return pause
}

func jitter(ceiling time.Duration) time.Duration { return rand.N(ceiling + 1) }
