package relay

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/replication"
	"postrider/sink"
)

// slowDeduplicator answers when until is true.
type slowDeduplicator struct {
	sink.Sink
	until func() bool
	asked int
}

func (d *slowDeduplicator) Published(ctx context.Context, _ sink.Source, _ *sink.Message) (bool, error) {
	d.asked++
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !d.until() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
	return false, nil
}

// The ends of the topics may take longer to read than a relay may stand still.
func TestSession_BeatsWhileTopicsAreRead(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	s := &session{}
	beats, last := 0, int64(0)
	d := &slowDeduplicator{until: func() bool {
		if now := s.progress.Load(); now != last {
			beats, last = beats+1, now
		}
		return beats >= 2
	}}
	s.dedup = d
	there, err := s.repeated(ctx, &replication.Event{XID: 7}, &sink.Message{Topic: "orders"})
	require.NoError(t, err)
	require.False(t, there)
	d.until = func() bool { return true }
	_, err = s.repeated(ctx, &replication.Event{XID: 7}, &sink.Message{Topic: "orders"})
	require.NoError(t, err)
	require.Equal(t, 2, d.asked)
}
