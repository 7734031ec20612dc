package relay

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
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
	s := &session{router: new(router.Router), stream: &replication.Stream{}, window: newWindow(1, upTo(10, 1000))}
	r := &Relay{session: s}
	s.progress.set(time.Now().Add(-time.Hour))
	beats, last := 0, r.State().LastProgress
	d := &slowDeduplicator{until: func() bool {
		if now := r.State().LastProgress; now.After(last) {
			beats, last = beats+1, now
		}
		return beats >= 3
	}}
	s.dedup = d
	for range 2 { // also when it reads a second time
		beats = 0
		there, err := s.alreadyPublished(ctx, &replication.Event{XID: 7}, &sink.Message{Topic: "orders"})
		require.NoError(t, err)
		require.False(t, there)
	}
	require.Equal(t, 2, d.asked)
	stopped := r.State().LastProgress
	require.WithinDuration(t, time.Now(), stopped, time.Minute, "the answer is progress")
	require.Equal(t, stopped, r.State().LastProgress, "and then it does not beat by itself")
}

// A row whose schema is new takes requests, each within registry.timeout, and a batch has many rows.
func TestState_ARequestToASchemaRegistryIsProgress(t *testing.T) {
	var requested time.Time
	rules, err := router.New([]router.Config{router.DefaultConfig()}, router.DefaultFormat(),
		router.Options{Registries: router.Registries{Requested: func() time.Time { return requested }}})
	require.NoError(t, err)
	s := &session{router: rules, stream: &replication.Stream{}, window: newWindow(1, upTo(10, 1000))}
	began := time.Now()
	s.progress.set(began)
	r := &Relay{session: s}
	require.Equal(t, began, r.State().LastProgress, "none was made")
	requested = began.Add(time.Hour)
	require.Equal(t, requested, r.State().LastProgress)
	s.progress.set(requested.Add(time.Hour))
	require.Equal(t, requested.Add(time.Hour), r.State().LastProgress)
}

// Liveness, PostriderStuck and systemd's watchdog compare these times. NTP and a machine that resumes set
// the wall clock, which is all that Round(0) keeps.
func TestState_ComparesTimesThatNoClockChanges(t *testing.T) {
	for what, in := range map[string]func(s *session){
		"a turn":    func(s *session) { s.progress.set(time.Now()) },
		"a call":    func(s *session) { s.inSink.Store(true); s.sinkReturned() },
		"in a call": func(s *session) { s.inSink.Store(true) },
		"the pump": func(s *session) {
			batches := make(chan *replication.Batch)
			close(batches)
			require.NoError(t, s.pump(t.Context(), batches))
		},
	} {
		s := &session{router: new(router.Router), stream: &replication.Stream{}, window: newWindow(1, upTo(10, 1000))}
		in(s)
		at := (&Relay{session: s}).State().LastProgress
		require.WithinDuration(t, time.Now(), at, time.Minute)
		require.NotEqual(t, at.Round(0), at, "%s: only the wall clock", what)
	}
	s := &session{router: new(router.Router), stream: &replication.Stream{}, window: newWindow(1, upTo(10, 1000))}
	require.NoError(t, s.handleBatch(t.Context(), &replication.Batch{}))
	s.window.begin(time.Now())
	require.True(t, s.window.tryAdd(10))
	at := (&Relay{session: s}).State().WaitingSince
	require.WithinDuration(t, time.Now(), at, time.Minute)
	require.NotEqual(t, at.Round(0), at, "only the wall clock")
}
