package sink_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/memory"
)

func numbered(n int) (ms []*sink.Message) {
	for i := range n {
		ms = append(ms, &sink.Message{Topic: "orders", Partition: sink.ByKey, Value: []byte{byte(i)}})
	}
	return ms
}

func TestSyncPublisher_ReturnsWhenTheWholeChunkIsAcknowledged(t *testing.T) {
	b := memory.New(1)
	b.Hold()
	var delivered atomic.Int32
	w, err := sink.OpenSyncPublisher(t.Context(), b.Open, func(*sink.Message) { delivered.Add(1) })
	require.NoError(t, err)
	defer w.Close()
	returned := make(chan error, 1)
	go func() { returned <- w.Publish(t.Context(), numbered(3)) }() // ends with the last acknowledgement; waited for below
	b.Release(2)
	require.NoError(t, b.WaitFor(t.Context(), 2))
	select {
	case err := <-returned:
		require.FailNow(t, "returned early", "%v", err)
	default:
	}
	b.Release(1)
	require.NoError(t, <-returned)
	require.EqualValues(t, 3, delivered.Load())
	b.Release(2)
	require.NoError(t, w.Publish(t.Context(), numbered(2)), "and again")
}

func TestSyncPublisher_SaysWhyAChunkFailed(t *testing.T) {
	b := memory.New(1)
	b.Refuse(nil, func(m *sink.Message) error {
		if m.Value[0] == 1 {
			return sink.ErrInvalidRecord
		}
		return nil
	})
	w, err := sink.OpenSyncPublisher(t.Context(), b.Open, nil)
	require.NoError(t, err)
	defer w.Close()
	require.ErrorIs(t, w.Publish(t.Context(), numbered(3)), sink.ErrInvalidRecord)
}

func TestSyncPublisher_EndsWithTheContext(t *testing.T) {
	b := memory.New(1)
	b.Hold()
	w, err := sink.OpenSyncPublisher(t.Context(), b.Open, nil)
	require.NoError(t, err)
	defer w.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("somebody is in a hurry")
	cancel(why)
	require.ErrorIs(t, w.Publish(ctx, numbered(1)), why)
}
