package relay

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/metrics"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
)

// neighbours are what a session meets: each answers at once.
type neighbours struct {
	parts    Parts
	attempts []time.Time
}

// turns lets a relay run beside them for ten minutes, in which nothing takes time but its own waits.
func (n *neighbours) turns(t *testing.T) []time.Time {
	p := n.parts
	prepare := p.Server.Prepare
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	p.Server.Prepare = func(ctx context.Context, first bool) error {
		if n.attempts = append(n.attempts, time.Now()); len(n.attempts) == 10_000 {
			cancel() // or no time would ever pass
		}
		if prepare == nil {
			return nil
		}
		return prepare(ctx, first)
	}
	p.Server.Watch = func(ctx context.Context, _ func(error, time.Time)) { <-ctx.Done() }
	if p.Rows.Router == nil {
		p.Rows.Router = func() (*router.Router, error) { return nil, nil } //nolint:nilnil // no row comes
	}
	p.Metrics, p.Log = metrics.New(prometheus.NewRegistry(), "s"), zerolog.Nop()
	r := New(DefaultConfig(), p)
	r.streamed = true // what is fatal only at the first start may heal
	_ = r.Run(t.Context(), ctx)
	return n.attempts
}

// spaced fails if two attempts are closer than half the least back-off, or if they do not become rarer.
func spaced(t *testing.T, attempts []time.Time, most int) {
	t.Helper()
	require.NotEmpty(t, attempts)
	for i := 1; i < len(attempts); i++ {
		require.GreaterOrEqual(t, attempts[i].Sub(attempts[i-1]), DefaultConfig().BackoffMin/2, "attempt %d of %d", i, len(attempts))
	}
	require.LessOrEqual(t, len(attempts), most)
}

// Whatever ends a session at once, the next one comes after the back-off, and those behind it later and later.
func TestTurns_NoErrorMakesTheRelaySpin(t *testing.T) {
	all := append([]rule{{err: errors.New("not in the table"), reason: "other"}}, rules...)
	stages := map[string]func(p *Parts, err error){
		"prepare": func(p *Parts, err error) { p.Server.Prepare = func(context.Context, bool) error { return err } },
		"snapshot": func(p *Parts, err error) {
			p.Server.Snapshot = func(_, _ context.Context, _ func(Snapshot)) error { return err }
		},
		"sink": func(p *Parts, err error) {
			p.Broker.OpenSink = func(context.Context, sink.Done) (sink.Sink, error) { return nil, err }
		},
		"router": func(p *Parts, err error) { p.Rows.Router = func() (*router.Router, error) { return nil, err } },
	}
	for stage, fails := range stages {
		for _, rule := range all {
			t.Run(fmt.Sprintf("%s/%s", stage, rule.err), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var n neighbours
					fails(&n.parts, fmt.Errorf("at once: %w", rule.err))
					most := 130 // 15 s at most, evenly drawn: 80 and some
					switch {
					case rule.reason == reasonSlotInUse:
						most = 1200 // nothing reports when the slot is free
					case databaseAway[rule.reason]:
						most = 350 // 5 s at most
					}
					spaced(t, n.turns(t), most)
				})
			})
		}
	}
}

// The slot is held by something that is not what is looked at, as when another process copies the tables; or it is had by others each time.
func TestTurns_AStandbyDoesNotSpinHoweverTheSlotLooks(t *testing.T) {
	looks := map[string]struct {
		await func(ctx context.Context) error
		most  int
	}{
		"free":                    {func(context.Context) error { return nil }, 130},
		"free for a moment":       {func(context.Context) error { time.Sleep(200 * time.Millisecond); return nil }, 130},
		"free now and then":       {func(context.Context) error { time.Sleep(14 * time.Second); return nil }, 130},
		"free after a long while": {func(context.Context) error { time.Sleep(time.Minute); return nil }, 12},
		"cannot be looked at":     {func(context.Context) error { return errors.New("refused") }, 1200},
	}
	for name, look := range looks {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var n neighbours
				n.parts.Server.Prepare = func(context.Context, bool) error { return replication.ErrSlotInUse }
				n.parts.Server.AwaitSlot = look.await
				spaced(t, n.turns(t), look.most)
			})
		})
	}
}

// Answers that take turns must not keep the back-off from growing.
func TestTurns_ErrorsThatTakeTurnsDoNotMakeTheRelaySpin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n neighbours
		n.parts.Server.AwaitSlot = func(context.Context) error { return nil }
		n.parts.Server.Prepare = func(context.Context, bool) error {
			return []error{replication.ErrSlotInUse, sink.ErrUnreachable, sink.ErrUnknownTopic}[len(n.attempts)%3]
		}
		spaced(t, n.turns(t), 130)
	})
}

// A takeover does not wait for a back-off: the slot was held for long, and is free now.
func TestTurns_ATakeoverIsNotHeldUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const held = 30 * time.Second
		var n neighbours
		n.parts.Server.AwaitSlot = func(context.Context) error { time.Sleep(held); return nil }
		n.parts.Server.Prepare = func(context.Context, bool) error { return replication.ErrSlotInUse }
		attempts := n.turns(t)
		require.Greater(t, len(attempts), 15)
		for i := 1; i < len(attempts); i++ {
			require.LessOrEqual(t, attempts[i].Sub(attempts[i-1]), held+standbyJitter)
		}
	})
}

// missed are the reasons of sessions that end for want of something whose return is seen.
var missed = map[string]error{
	reasonServerStopping: replication.ErrServerStopping, "server_starting": postgres.ErrStarting, "postgres_unreachable": postgres.ErrUnreachable,
	"not_writable": postgres.ErrNotWritable, "broker_unreachable": sink.ErrNoBroker,
}

// A session follows as soon as what the last one missed is back, and not before.
func TestTurns_AReturnIsNotHeldUpNorGoneAheadOf(t *testing.T) {
	for reason, err := range missed {
		t.Run(reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const gone = 3 * time.Second
				var n neighbours
				var back []time.Time
				await := func(ctx context.Context) error {
					select {
					case <-time.After(gone):
						back = append(back, time.Now())
						return nil
					case <-ctx.Done():
						return context.Cause(ctx)
					}
				}
				n.parts.Server.AwaitReturn, n.parts.Broker.AwaitReturn = await, await
				n.parts.Server.Prepare = func(context.Context, bool) error { return err }
				attempts := n.turns(t)
				require.Greater(t, len(back), 10)
				for _, at := range back[:len(back)-1] {
					require.Contains(t, attempts, at)
				}
				if reason == reasonServerStopping {
					require.Len(t, attempts, 1+len(back), "no session before the server is back")
				}
			})
		})
	}
}

// A server that stops and is not seen to be back is left alone.
func TestTurns_AServerThatStopsIsLeftAlone(t *testing.T) {
	for name, await := range map[string]func(ctx context.Context) error{
		"stays away":          func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) },
		"cannot be looked at": func(context.Context) error { return errors.New("refused") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var n neighbours
				n.parts.Server.AwaitReturn = await
				n.parts.Server.Prepare = func(context.Context, bool) error { return replication.ErrServerStopping }
				attempts := n.turns(t)
				for i := 1; i < len(attempts); i++ {
					require.GreaterOrEqual(t, attempts[i].Sub(attempts[i-1]), stoppingDelay)
				}
			})
		})
	}
}

// A return that is reported at once, each time, does not keep the back-off from growing.
func TestTurns_NoReturnMakesTheRelaySpin(t *testing.T) {
	for reason, err := range missed {
		t.Run(reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var n neighbours
				n.parts.Server.AwaitReturn = func(context.Context) error { return nil }
				n.parts.Broker.AwaitReturn = n.parts.Server.AwaitReturn
				n.parts.Server.Prepare = func(context.Context, bool) error { return err }
				spaced(t, n.turns(t), 1600) // half a second at most, and nearly always that
			})
		})
	}
}
