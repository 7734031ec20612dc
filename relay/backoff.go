package relay

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/postrider/postrider/sink"
)

const (
	// Pause after the server said that it shuts down, unless it is seen to be back: a reconnecting
	// client makes a new walsender for it to wait for, and can so block a demotion (reported of
	// pg_hardstorage, issue 34).
	stoppingPause = 10 * time.Second
	// Ceiling of the part of a pause that no return cuts short.
	backPause = 500 * time.Millisecond
	// Ceiling of a standby's pause where nothing tells it that the slot is free.
	standbyPause = time.Second
	// Ceiling of the pause before it looks whether the slot is free: several that stand by do not
	// try at the same moment again and again.
	standbyJitter = 100 * time.Millisecond
	// Ceiling of a pause while the database cannot be reached or takes no writes, unless it is
	// seen to be back: it may be a failover, and consumers wait for its end.
	databasePause = 5 * time.Second
)

// databaseAway are the reasons of a session that found no database to write to.
var databaseAway = map[string]bool{"postgres_unreachable": true, "not_writable": true,
	"server_starting": true}

// backoff spaces sessions with jitter: each pause is drawn evenly from half the least ceiling to a
// ceiling that doubles with every failure, so that relays that failed together do not come back
// together, and none comes back at once.
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

// freed returns how long after the last session the next may begin when the slot is said to be
// free, which was waited for so long. A takeover does not wait; but a relay that finds the slot
// held each time although it is said to be free waits longer each time, since what holds it is not
// what is looked at.
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

// wait returns false when a signal came.
func (r *Relay) wait(ctx, stop context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-stop.Done():
	}
	return false
}

// standBy waits for the slot, and returns how long to wait before the next session even so:
// for pause if it is not known that the slot is free.
func (r *Relay) standBy(ctx, stop context.Context, pauses *backoff,
	pause time.Duration) time.Duration {
	began := time.Now()
	if r.parts.Server.AwaitSlot != nil && r.wait(ctx, stop, jitter(standbyJitter)) {
		waiting, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(stop, cancel)()
		if r.parts.Server.AwaitSlot(waiting) == nil {
			pause = pauses.freed(time.Since(began))
		}
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

// awaitReturn waits until back returns nil, for the least pause at least, and returns what is left
// of the pause.
func (r *Relay) awaitReturn(ctx, stop context.Context, back func(context.Context) error, pause,
	least time.Duration) time.Duration {
	until := time.Now().Add(pause)
	if !r.wait(ctx, stop, least) {
		return 0
	}
	waiting, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	defer context.AfterFunc(stop, cancel)()
	if back(waiting) == nil {
		return 0
	}
	return time.Until(until)
}
