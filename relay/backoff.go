package relay

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/postrider/postrider/sink"
)

// Ceilings of pauses.
const (
	// After the server said that it shuts down, unless it is seen to be back: a client that
	// reconnects makes a walsender for it to wait for, and can so block a demotion (reported of
	// pg_hardstorage, issue 34).
	stoppingPause = 10 * time.Second
	// Of the part of a pause that no return cuts short.
	backPause = 500 * time.Millisecond
	// Of a standby, where nothing reports that the slot is free.
	standbyPause = time.Second
	// Before a standby looks at the slot: several do not try at the same moment.
	standbyJitter = 100 * time.Millisecond
	// While the database is away or takes no writes: consumers wait for a failover to end.
	databasePause = 5 * time.Second
)

// databaseAway are the reasons of a session that found no database to write to.
var databaseAway = map[string]bool{"postgres_unreachable": true, "not_writable": true,
	"server_starting": true}

// backoff spaces sessions with jitter: each pause is drawn evenly from half the least ceiling to a
// ceiling that doubles with every failure, so that several relays do not come back together.
type backoff struct {
	min, max time.Duration
	failures int
}

// next returns the pause before the next session, and the part of it that no return cuts short.
// progress: the session that failed had acked more than any before it.
func (b *backoff) next(reason string, progress bool) (pause, least time.Duration) {
	if reason == reasonSlotInUse {
		pause = standbyPause/2 + jitter(standbyPause/2)
		return pause, pause
	}
	if progress {
		b.failures = 0
	}
	ceiling := b.ceiling()
	if databaseAway[reason] {
		ceiling = min(ceiling, max(databasePause, b.min))
	}
	pause = b.min/2 + jitter(ceiling-b.min/2)
	least = min(pause, max(backPause, b.min/2))
	if reason == reasonServerStopping {
		pause += stoppingPause
	}
	return pause, least
}

// freed returns how long after the last session the next may begin, when the slot is reported free
// after waited. It grows with every failure: the slot may be in use although it is reported free.
func (b *backoff) freed(waited time.Duration) time.Duration {
	if waited >= b.max {
		b.failures = 0
		return 0
	}
	ceiling := b.ceiling()
	return ceiling/2 + jitter(ceiling/2)
}

// ceiling is that of the next pause. It doubles each time.
func (b *backoff) ceiling() time.Duration {
	ceiling := b.max
	if shifted := b.min << min(b.failures, 30); shifted > 0 && shifted < b.max {
		ceiling = shifted
	}
	b.failures++
	return ceiling
}

func jitter(ceiling time.Duration) time.Duration { return rand.N(ceiling + 1) }

// wait returns false when ctx ended before the pause.
func wait(ctx context.Context, pause time.Duration) bool {
	select {
	case <-time.After(pause):
		return true
	case <-ctx.Done():
		return false
	}
}

// standBy waits for the slot, and returns what is left of pause if it is not known to be free.
func (r *Relay) standBy(ctx context.Context, pauses *backoff, pause time.Duration) time.Duration {
	began := time.Now()
	if r.parts.Server.AwaitSlot != nil && wait(ctx, jitter(standbyJitter)) &&
		r.parts.Server.AwaitSlot(ctx) == nil {
		pause = pauses.freed(time.Since(began))
	}
	return pause - time.Since(began)
}

// returning is the wait for what the session that ended with err lacked; nil: there is none.
func (r *Relay) returning(reason string, err error) func(context.Context) error {
	switch {
	case databaseAway[reason], reason == reasonServerStopping:
		return r.parts.Server.AwaitReturn
	case errors.Is(err, sink.ErrNoBroker):
		return r.parts.Broker.AwaitReturn
	}
	return nil
}

// awaitReturn waits until back returns nil, at least for least, and returns what is left of pause.
func awaitReturn(ctx context.Context, back func(context.Context) error,
	pause, least time.Duration) time.Duration {
	until := time.Now().Add(pause)
	waiting, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	if wait(ctx, least) && back(waiting) == nil {
		return 0
	}
	return time.Until(until)
}
