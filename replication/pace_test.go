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

// A backlog is read in pieces that are worth it. What is new is read as soon as wait says.
func TestRest_WaitsForMoreWhileBehind(t *testing.T) {
	asked := 0
	coming := func(bytes ...int) func() int {
		asked = 0
		return func() int {
			asked++
			return bytes[min(asked, len(bytes))-1]
		}
	}
	rest(1, false, coming(0))
	require.Zero(t, asked, "what is new does not wait")
	rest(1, true, coming(100, 5000, worthReading))
	require.Equal(t, 3, asked)
	rest(0, true, coming(100, worthReading))
	require.Equal(t, 2, asked, "a burst is for what is new")
	rest(1, true, coming(0))
	require.Equal(t, int(patience/readInterval)-1, asked, "and not for long")
}
