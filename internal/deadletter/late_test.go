package deadletter

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/sink"
)

// A request of a relay that is gone writes its letter behind that of the next session, and behind
// what became of it.
func TestState_CountsALetterThatComesTwiceOnce(t *testing.T) {
	c := newCluster()
	k := openTracker2(t, c, 0)
	ev, m := message("k", 1, position{100, 0})
	letter, err := k.DeadLetter(Poison{Event: ev, Message: m, Cause: Refused, Policy: DeadLetterKey})
	require.NoError(t, err)
	letters := []*sink.Message{letter}
	require.NoError(t, c.append(letters))
	require.NoError(t, c.append(letters))
	require.Len(t, redriveAll(t, c, 5*time.Second).Redriven, 1)
	require.NoError(t, c.append(letters))

	require.Empty(t, redriveAll(t, c, 0).Redriven, "redriven once more")
	require.Len(t, c.home["orders"], 1)
	x, err := Read(t.Context(), &view{cluster: c})
	require.NoError(t, err)
	require.Len(t, x.List(Filter{All: true}), 1)
	_, next := message("k", 2, position{101, 0})
	follows, err := openTracker2(t, c, 100).Follow(nil, next)
	require.NoError(t, err)
	require.Nil(t, follows, "the key is parked again")
}
