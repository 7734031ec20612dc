package sinktest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/sink"
)

func refusesPublishAfterClose(t *testing.T, s *session) {
	s.publish(numbered(s.subject.Topic, 1)...)
	s.close()
	require.ErrorIs(t, s.sink.Publish(s.context(), numbered(s.subject.Topic, 1)), sink.ErrClosed)
	require.Equal(t, 1, s.reports.count(), "a message was taken after Close")
}

func closesTwice(t *testing.T, s *session) {
	s.publish(numbered(s.subject.Topic, 1)...)
	s.close()
	s.close()
}

// closesDuringPublish publishes until Close makes it fail: it must not panic, hang or lose a
// report.
func closesDuringPublish(t *testing.T, s *session) {
	type result struct {
		taken []*sink.Message // at least these
		err   error
	}
	results := make(chan result)
	started := make(chan struct{})
	go func() { // ended by Close; received from below
		var r result
		for i := 0; r.err == nil; i++ {
			ms := numbered(s.subject.Topic, 10)
			if r.err = s.sink.Publish(s.context(), ms); r.err == nil {
				r.taken = append(r.taken, ms...)
			}
			if i == 5 {
				close(started)
			}
		}
		results <- r
	}()
	<-started
	s.close()
	r := <-results
	require.ErrorIs(t, r.err, sink.ErrClosed)
	for _, m := range r.taken {
		if err := s.reports.of(t, m); err != nil {
			require.ErrorIs(t, err, sink.ErrClosed)
		}
	}
}

func reportsInFlightWhenClosed(t *testing.T, s *session) {
	if s.subject.Stall == nil {
		return
	}
	s.publish(numbered(s.subject.Topic, 10)...)
	resume := s.subject.Stall(t)
	defer resume()
	ms := numbered(s.subject.Topic, 50)
	require.NoError(t, s.sink.Publish(s.context(), ms))

	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	began := time.Now()
	_ = s.sink.Close(ctx) // may complain about the time
	require.Less(t, time.Since(began), 15*time.Second, "Close did not end with its context")
	s.reports.wait(t, 60)
	for _, m := range ms {
		require.ErrorIs(t, s.reports.of(t, m), sink.ErrClosed)
		var which *sink.MessageError
		require.ErrorAs(t, s.reports.of(t, m), &which)
		require.Equal(t, m.Origin, which.Origin)
	}
}

func catchesUpAfterAStall(t *testing.T, s *session) {
	if s.subject.Stall == nil {
		return
	}
	ms := numbered(s.subject.Topic, 300)
	s.publish(ms[:100]...)
	resume := s.subject.Stall(t)
	require.NoError(t, s.sink.Publish(s.context(), ms[100:]))
	require.Equal(t, 100, s.reports.count(), "acknowledged during the stall")
	resume()
	s.reports.wait(t, len(ms))
	for _, m := range ms {
		require.NoError(t, s.reports.of(t, m))
	}
	requireNumbered(t, s.read(len(ms)), len(ms))
}

// returnsFromPublishWhenTheContextEnds fills the sink of a stalled broker until it blocks.
func returnsFromPublishWhenTheContextEnds(t *testing.T, s *session) {
	ended, end := context.WithCancel(context.Background())
	end()
	if s.subject.Stall == nil {
		// may have taken it: it had no reason to wait
		_ = s.sink.Publish(ended, numbered(s.subject.Topic, 1))
		return
	}
	defer s.subject.Stall(t)()
	stop := errors.New("time is up")
	ctx, cancel := context.WithTimeoutCause(context.Background(), 300*time.Millisecond, stop)
	defer cancel()
	var err error
	for err == nil {
		ms := numbered(s.subject.Topic, 100)
		for _, m := range ms {
			m.Partition = 0
			m.Value = make([]byte, 20_000)
		}
		err = s.sink.Publish(ctx, ms)
	}
	require.ErrorIs(t, err, stop)

	short, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_ = s.sink.Close(short)
	s.reports.requireOnce(t)
}
