package recovery

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCandidates_AgreeWithANaiveMultiset(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	few := make([]fingerprint, 200) // so that some are equal, and others share their first byte
	for i := range few {
		few[i] = fingerprint{byte(r.IntN(8)), byte(r.IntN(30))}
	}
	var c candidates
	candidate, found := map[fingerprint]int{}, map[fingerprint]int{}
	for range 2000 {
		f := few[r.IntN(len(few)/2)]
		c.add(f)
		candidate[f]++
	}
	c.seal()
	require.Equal(t, 2000, c.total)
	for range 3000 {
		f := few[r.IntN(len(few))]
		c.saw(f)
		found[f] = min(found[f]+1, candidate[f])
	}
	for f, n := range candidate {
		for i := range n {
			require.Equal(t, i < found[f], c.take(f), "%x, %d of %d found", f, found[f], n)
		}
	}
}
