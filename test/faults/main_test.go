package faults

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/postrider/postrider/test/parts"
)

func TestMain(m *testing.M) {
	if settings := os.Getenv(asConsumer); settings != "" {
		fmt.Fprintln(os.Stderr, consume(settings))
		os.Exit(1)
	}
	flag.Parse()
	if *seed == 0 {
		*seed = 1 + rand.Uint64N(1<<32)
	}
	fmt.Printf("seed %d\n", *seed)
	if *long {
		parts.AtEnd(func() error { return writeReport(recorder.outcomes) })
	}
	parts.Main(m, goleak.IgnoreAnyFunction(meters))
}

// meters is a goroutine of the metrics library of sarama, which reads for the judge. It has no end.
const meters = "github.com/rcrowley/go-metrics.(*meterArbiter).tick"

// eventually waits until met, which it asks often, and fails the test with what is waited for when that takes longer than within, and than parts.Patience. The
// full form moves a hundred times as many rows, with other tests beside it: ten times as long.
func eventually(t testing.TB, within time.Duration, what string, met func() bool) {
	t.Helper()
	within = max(within, parts.Patience)
	if *long {
		within *= 10
	}
	deadline := time.Now().Add(within)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !met() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", within, what)
		}
		<-tick.C
	}
}

// during calls f for as long as d, often, for what must not happen and what is measured.
func during(d time.Duration, f func()) {
	end := time.After(d)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-end:
			return
		case <-tick.C:
			f()
		}
	}
}

// rate is how many transactions a second a test commits, of 4.5 events on average: 2,000 events/s in the full form. The short form runs
// beside others, with the race detector.
func rate() int {
	if *long {
		return 450
	}
	return 200
}

// times are how long something took, each time.
type times []time.Duration

func (d times) String() string {
	if len(d) == 0 {
		return "never"
	}
	sorted := slices.Sorted(slices.Values(d))
	return fmt.Sprintf("median %.2f s, longest %.2f s", sorted[len(d)/2].Seconds(), sorted[len(d)-1].Seconds())
}
