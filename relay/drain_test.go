package relay

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/sink"
)

func TestSession_WaitsForNoAnswerOfASinkThatHasFailed(t *testing.T) {
	s := &session{cfg: Config{DrainTimeout: time.Hour}}
	for _, cause := range []error{nil, sink.ErrTooLarge, sink.ErrInvalidRecord, sink.ErrUnknownTopic, replication.ErrSlotLost, errors.New("any other")} {
		s.failed.Store(false)
		require.Positive(t, s.drainTimeout(cause), "%v", cause)
		s.failed.Store(true)
		require.Zero(t, s.drainTimeout(cause), "%v", cause)
	}
}

func TestNotTaken_CountsFromTheMessageThatTheErrorNames(t *testing.T) {
	ms := make([]*sink.Message, 5)
	for i := range ms {
		ms[i] = &sink.Message{Origin: sink.Origin{LSN: 7, Index: uint32(i)}}
	}
	named := func(index uint32) error {
		return fmt.Errorf("around: %w", &sink.MessageError{Origin: sink.Origin{LSN: 7, Index: index}, Err: sink.ErrTooLarge})
	}
	require.Equal(t, 5, notTaken(ms, named(0)))
	require.Equal(t, 2, notTaken(ms, named(3)))
	require.Equal(t, 5, notTaken(ms, named(99)), "one that was taken earlier, and failed")
	require.Equal(t, 5, notTaken(ms, errors.New("no message")))
}
