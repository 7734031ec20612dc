package replication

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPace_IsolatedReadsDoNotWait(t *testing.T) {
	var p pace
	now := time.Unix(1000, 0)
	for range 100 {
		for range 3 {
			require.Zero(t, p.wait(now))
			now = now.Add(20 * time.Microsecond)
		}
		now = now.Add(10 * time.Millisecond)
	}
}

func TestPace_UnderLoadThereIsOneReadPerInterval(t *testing.T) {
	var p pace
	start := time.Unix(1000, 0)
	now := start
	const reads = 1000
	for range reads {
		now = now.Add(p.wait(now)).Add(10 * time.Microsecond)
	}
	require.InDelta(t, reads-readBurst, int(now.Sub(start)/readInterval), 5)
}

func TestNap_BringsWhatIsWorthReading(t *testing.T) {
	var n nap
	now := time.Unix(1000, 0)
	require.Equal(t, longestNap, n.next(now), "the rate is not known")
	for _, perSecond := range []int{10 << 20, 100 << 20, 200 << 20} {
		var slept time.Duration
		for range 10 {
			elapsed := slept + 500*time.Microsecond // in which what came is decoded
			now = now.Add(elapsed)
			n.bytes = int(float64(perSecond) * elapsed.Seconds())
			slept = n.next(now)
		}
		wanted := time.Duration(float64(worthReading) / float64(perSecond) * float64(time.Second))
		require.InDelta(t, min(wanted, longestNap), slept, float64(10*time.Microsecond))
	}
	require.Equal(t, longestNap, n.next(now.Add(time.Second)), "nothing has come")
}
