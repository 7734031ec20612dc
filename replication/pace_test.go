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
