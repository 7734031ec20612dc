package deadletter

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/test/parts"
)

// parked writes a parking letter for each of the keys to the topic, and returns them as an index has them.
func parked(t *testing.T, c *cluster, tracker *Tracker, keys ...string) []*Entry {
	t.Helper()
	for i, key := range keys {
		ev, m := message(key, i+1, position{100, uint32(i)})
		letter, err := tracker.DeadLetter(Poison{Event: ev, Message: m, Cause: Refused, Policy: DeadLetterKey})
		require.NoError(t, err)
		require.NoError(t, c.append([]*sink.Message{letter}))
	}
	x, err := Read(t.Context(), &view{cluster: c})
	require.NoError(t, err)
	return x.List(Filter{})
}

func TestTracker_ARowWaitsForTheResolutionOfItsOwnKey(t *testing.T) {
	c := newCluster()
	tracker := openTracker2(t, c, 0)
	letters := parked(t, c, tracker, "k", "other")
	looked := make(chan struct{}, 100)
	tracker.mu.Lock()
	tracker.state.keys[ordersK].holdUntil = time.Now().Add(time.Hour) // longer than the test
	tracker.writer.now = func() time.Time { looked <- struct{}{}; return time.Now() }
	tracker.mu.Unlock()

	ctx, cancel := context.WithTimeout(t.Context(), parts.Patience)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- tracker.Wait(ctx, &sink.Message{Topic: "orders", Key: []byte("k")}) }()
	select {
	case <-looked:
	case err := <-ended:
		require.FailNow(t, "it did not wait", "%v", err)
	}
	for _, e := range letters {
		if string(e.Key) == "other" {
			_, err := redriver(c, 0).Discard(ctx, []*Entry{e})
			require.NoError(t, err)
		}
	}
	select {
	case <-looked: // and goes on waiting
	case err := <-ended:
		require.FailNow(t, "the resolution of another key ended it", "%v", err)
	case <-ctx.Done():
		require.FailNow(t, "no resolution wakes it")
	}
	for _, e := range letters {
		if string(e.Key) == "k" {
			_, err := redriver(c, 0).Discard(ctx, []*Entry{e})
			require.NoError(t, err)
		}
	}
	require.NoError(t, <-ended)
}

// To stop for a record of somebody else would let anybody stop the relay who may write to the topic.
func TestTracker_PassesRecordsThatItCannotRead(t *testing.T) {
	c := newCluster()
	first := openTracker2(t, c, 0)
	for partition := range int32(len(c.letters)) {
		bad := record(partition, FormMessage, map[string]string{HeaderID: "no ID"}, nil)
		bad.Topic = letterTopic
		require.NoError(t, c.append([]*sink.Message{bad}))
	}
	parked(t, c, first, "k")
	second := openTracker2(t, c, 200)
	ev, m := message("k", 2, position{200, 0})
	follows, err := second.Follow(ev, m)
	require.NoError(t, err)
	require.NotNil(t, follows)
}
