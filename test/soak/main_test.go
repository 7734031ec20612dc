package soak

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/postrider/postrider/test/parts"
)

var (
	duration = flag.Duration("duration", time.Minute, "how long faults strike")
	seed     = flag.Uint64("seed", 0, "what random choices are made from; 0 takes another one each time")
	profiles = flag.String("profiles", "", "a directory for heap profiles of the witness, one every 10 minutes; empty: none")
)

const (
	// fromClusters is the duration from which there are three brokers, and outages of minutes.
	fromClusters = 10 * time.Minute
	// fromGrowth is the duration from which growth is judged: a process that has just started grows.
	fromGrowth = 30 * time.Minute
	// betweenProfiles is the time between two heap profiles.
	betweenProfiles = 10 * time.Minute
	// days is how often the load goes through its daily curve.
	days = 12
)

func TestMain(m *testing.M) {
	flag.Parse()
	if *seed == 0 {
		*seed = 1 + rand.Uint64N(1<<32)
	}
	fmt.Printf("seed %d\n", *seed)
	parts.Main(m, goleak.IgnoreAnyFunction(meters))
}

// meters is a goroutine of the metrics library of sarama, which reads the topics. It has no end.
const meters = "github.com/rcrowley/go-metrics.(*meterArbiter).tick"

// random is a source of random numbers: the same for the same seed and stream.
func random(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(*seed, stream)) }

// long reports whether there are three brokers, and time for faults of minutes.
func long() bool { return *duration >= fromClusters }
