package faults

import (
	"flag"
	"runtime"
	"strconv"
	"testing"
	"time"

	"postrider/test/parts"
)

var (
	rounds = flag.Int("rounds", 3, "how often a fault strikes that can strike again and again")
	stall  = flag.Duration("stall", 20*time.Second, "how long the broker stalls")
)

func TestMain(m *testing.M) {
	flag.Parse()
	// These tests wait more than they compute. A larger number on the command line stays.
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue && runtime.GOMAXPROCS(0) < atOnce {
		if err := f.Value.Set(strconv.Itoa(atOnce)); err != nil {
			panic(err)
		}
	}
	parts.Main(m)
}

const atOnce = 4

// eventually waits until met, which it asks often, and fails the test with what is waited for when that takes too long.
func eventually(t testing.TB, within time.Duration, what string, met func() bool) {
	t.Helper()
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
