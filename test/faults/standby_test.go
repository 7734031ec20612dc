package faults

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

// leaders looks, until it is ended, who of several relays says that it streams.
type leaders struct {
	mu      sync.Mutex
	relays  []*process
	samples int
	two     int // samples with more than one
	quit    chan struct{}
	wg      sync.WaitGroup
}

func watchLeaders(t testing.TB) *leaders {
	t.Helper()
	w := &leaders{quit: make(chan struct{})}
	w.wg.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				w.look()
			case <-w.quit:
				return
			}
		}
	})
	t.Cleanup(w.end)
	return w
}

// look asks twice: of two answers that are not given at the same time the first may be old when the second comes.
func (w *leaders) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	claims := func() (n int) {
		for _, p := range w.relays {
			if p.Running() && p.ask().Relay.Phase == "streaming" {
				n++
			}
		}
		return n
	}
	w.samples++
	for range 2 {
		if claims() < 2 {
			return
		}
	}
	w.two++
}

func (w *leaders) among(relays ...*process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.relays = slices.Clone(relays)
}

func (w *leaders) end() {
	select {
	case <-w.quit:
	default:
		close(w.quit)
	}
	w.wg.Wait()
}

// awaitTakeover waits until another walsender than that of before reads from the slot, and the relay says that it is its own.
func (r *rig) awaitTakeover(t testing.TB, by *process, before int) {
	t.Helper()
	eventually(t, time.Minute, "taken over", func() bool {
		by.requireRunning(t)
		now := r.walsender(t)
		return now != 0 && now != before
	})
	by.streams(t, 30*time.Second)
}

func TestFault32_StandbyTakesOver(t *testing.T) {
	t.Parallel()
	r := newRig(t, server(t, parts.AnyVersion), parts.RealKafka(t))
	// Each has rows in flight when it ends.
	r.throughKafkaProxy(t).Delay(10 * time.Millisecond)
	random := random(t, 1)
	leader := r.started(t)
	watch := watchLeaders(t)
	l := r.load(t, rate())
	turns, kills := full(t, 4, 40), 0
	var afterKill, afterStop times
	for i := range turns {
		standby := r.start(t)
		watch.among(leader, standby)
		standby.phase(t, "standby", 30*time.Second)
		require.True(t, standby.ready(), "a standby is ready")
		l.more(t, 200+random.Int64N(400))
		require.Equal(t, "streaming", leader.ask().Relay.Phase)
		require.Equal(t, "standby", standby.ask().Relay.Phase)

		before := r.walsender(t)
		if i%2 == 0 {
			leader.Kill(t)
			began := time.Now()
			r.awaitTakeover(t, standby, before)
			afterKill = append(afterKill, time.Since(began))
			kills++
		} else {
			leader.stop(t)
			began := time.Now()
			r.awaitTakeover(t, standby, before)
			afterStop = append(afterStop, time.Since(began))
		}
		leader = standby
	}
	watch.among(leader)
	l.end(t)
	r.drained(t, time.Minute)
	watch.end()
	leader.stop(t)
	require.Zero(t, watch.two, "samples with two that stream, of %d", watch.samples)
	v := r.judge(t)
	requireNothingLost(t, v)
	require.LessOrEqual(t, v.Duplicated, int64(kills)*repeats)
	matrix(t, 32, "", fmt.Sprintf("takeover after kill -9: %s; after a clean stop: %s; %d samples, never two that stream", afterKill, afterStop, watch.samples))
}

// Both are killed at random, with and without the other to take over, and each is started again.
func TestFault32_TwoRelaysKilledAtRandom(t *testing.T) {
	t.Parallel()
	r := newRig(t, server(t, parts.AnyVersion), parts.RealKafka(t))
	random := random(t, 1)
	relays := []*process{r.started(t), r.start(t)}
	watch := watchLeaders(t)
	watch.among(relays...)
	l := r.load(t, rate())
	kills, longest := full(t, 6, 100), time.Duration(0)
	for range kills {
		i := random.IntN(2)
		l.more(t, 50+random.Int64N(300))
		relays[i].Kill(t)
		began := time.Now()
		relays[i] = r.start(t)
		watch.among(relays...)
		eventually(t, time.Minute, "one of them streams", func() bool {
			return relays[0].ask().Relay.Phase == "streaming" || relays[1].ask().Relay.Phase == "streaming"
		})
		longest = max(longest, time.Since(began))
	}
	l.end(t)
	r.drained(t, time.Minute)
	watch.end()
	eventually(t, time.Minute, "the other stands by", func() bool {
		return relays[0].ready() && relays[1].ready()
	})
	for _, p := range relays {
		p.stop(t)
	}
	require.Zero(t, watch.two, "samples with two that stream, of %d", watch.samples)
	v := r.judge(t)
	requireNothingLost(t, v)
	require.LessOrEqual(t, v.Duplicated, int64(kills)*repeats)
	matrix(t, 32, "", fmt.Sprintf("%d random kills: nobody streamed for %s at most; %d samples, never two that stream", kills, seconds(longest), watch.samples))
}
