package relay

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/postrider/postrider/sink"
)

// Limits of the delays between sessions.
const (
	// Added after the server announced its shutdown, unless it is back before. A client that
	// reconnects makes the shutdown wait for its walsender, which can block a demotion (reported
	// of pg_hardstorage, issue 34).
	stoppingDelay = 10 * time.Second
	// Minimum of a delay, even if the server is back sooner.
	minDelay = 500 * time.Millisecond
	// On standby, while nothing reports that the slot is free.
	standbyDelay = time.Second
	// Before a standby looks at the slot, so that several do not try at the same moment.
	standbyJitter = 100 * time.Millisecond
	// While the database is away or takes no writes: short, since consumers wait for a failover.
	databaseDelay = 5 * time.Second
)

// databaseAway has the reasons of a session that found no writable database.
var databaseAway = map[string]bool{"postgres_unreachable": true, "not_writable": true,
	"server_starting": true}

// backoff computes the delays between sessions. Each is drawn evenly from min/2 to a ceiling that
// doubles with every failure, so that several relays do not reconnect together.
type backoff struct {
	min, max time.Duration
	failures int
}

// next returns the delay before the next session, and the minimum that it has even if the server
// is back sooner. progress: the session that failed had acked more than any before it.
func (b *backoff) next(reason string, progress bool) (delay, least time.Duration) {
	if reason == reasonSlotInUse {
		delay = standbyDelay/2 + jitter(standbyDelay/2)
		return delay, delay
	}
	if progress {
		b.failures = 0
	}
	ceiling := b.ceiling()
	if databaseAway[reason] {
		ceiling = min(ceiling, max(databaseDelay, b.min))
	}
	delay = b.draw(ceiling)
	least = min(delay, max(minDelay, b.min/2))
	if reason == reasonServerStopping {
		delay += stoppingDelay
	}
	return delay, least
}

// freed returns the delay, from the end of the last session on, if the slot is reported free after
// waited. It grows with every failure: a slot that is reported free may be in use.
func (b *backoff) freed(waited time.Duration) time.Duration {
	if waited >= b.max {
		b.failures = 0
		return 0
	}
	return b.draw(b.ceiling())
}

// draw draws a delay: full jitter, but never so short that sessions spin (decision 24).
func (b *backoff) draw(ceiling time.Duration) time.Duration {
	return b.min/2 + jitter(ceiling-b.min/2)
}

// ceiling returns the ceiling of the next delay, and doubles it.
func (b *backoff) ceiling() time.Duration {
	ceiling := b.max
	if shifted := b.min << min(b.failures, 30); shifted > 0 && shifted < b.max {
		ceiling = shifted
	}
	b.failures++
	return ceiling
}

func jitter(ceiling time.Duration) time.Duration { return rand.N(ceiling + 1) }

// wait waits for delay. It returns false if ctx ends before.
func wait(ctx context.Context, delay time.Duration) bool {
	select {
	case <-time.After(delay):
		return true
	case <-ctx.Done():
		return false
	}
}

// standBy waits until the slot is reported free, and returns what is left of the delay.
func (r *Relay) standBy(ctx context.Context, delays *backoff, delay time.Duration) time.Duration {
	began := time.Now()
	if r.parts.Server.AwaitSlot != nil && wait(ctx, jitter(standbyJitter)) &&
		r.parts.Server.AwaitSlot(ctx) == nil {
		delay = delays.freed(time.Since(began))
	}
	return delay - time.Since(began)
}

// recovery returns the wait for the database or broker that was away; nil: neither was.
func (r *Relay) recovery(reason string, err error) func(context.Context) error {
	switch {
	case databaseAway[reason], reason == reasonServerStopping:
		return r.parts.Server.AwaitReturn
	case errors.Is(err, sink.ErrNoBroker):
		return r.parts.Broker.AwaitReturn
	}
	return nil
}

// awaitReturn calls await after least, and returns what is left of delay: 0 if await returned nil.
func awaitReturn(ctx context.Context, await func(context.Context) error,
	delay, least time.Duration) time.Duration {
	until := time.Now().Add(delay)
	waiting, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	if wait(ctx, least) && await(waiting) == nil {
		return 0
	}
	return time.Until(until)
}
