package memory_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/memory"
	"github.com/postrider/postrider/sink/sinktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemory_FulfilsTheContract(t *testing.T) {
	sinktest.Run(t, func(t *testing.T) sinktest.Subject {
		b := memory.New(4)
		b.Topics("orders")
		b.Capacity(10_000)
		return sinktest.Subject{
			Open: b.Open, Topic: "orders", Partitions: 4,
			Read: func(t *testing.T, n int) []sinktest.Record {
				require.NoError(t, b.WaitFor(t.Context(), n))
				var records []sinktest.Record
				for _, m := range b.Messages() {
					records = append(records, sinktest.Record{
						Partition: m.Partition, Key: m.Key, Value: m.Value, Headers: m.Headers, Timestamp: m.Timestamp,
					})
				}
				return records
			},
			Stall: func(*testing.T) func() {
				b.Hold()
				return func() { b.Release(-1) }
			},
		}
	})
}

type report struct {
	message *sink.Message
	err     error
}

func open(t *testing.T, b *memory.Broker) (sink.Sink, <-chan report) {
	t.Helper()
	reports := make(chan report, 100)
	s, err := b.Open(t.Context(), func(m *sink.Message, err error) { reports <- report{m, err} })
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s, reports
}

func TestBroker_ReleasesSoManyAsAsked(t *testing.T) {
	b := memory.New(1)
	s, reports := open(t, b)
	b.Hold()
	ms := []*sink.Message{{Topic: "a"}, {Topic: "b"}, {Topic: "c"}}
	require.NoError(t, s.Publish(t.Context(), ms))
	require.NoError(t, b.WaitPublished(t.Context(), 3))
	require.Empty(t, b.Messages())

	b.Release(2)
	require.Equal(t, report{ms[0], nil}, <-reports)
	require.Equal(t, report{ms[1], nil}, <-reports)
	require.Len(t, b.Messages(), 2)
	b.Release(-1)
	require.Equal(t, report{ms[2], nil}, <-reports)
}

func TestBroker_NothingOvertakesAFailedMessage(t *testing.T) {
	b := memory.New(1)
	s, reports := open(t, b)
	b.FailNext(sink.ErrTooLarge)
	require.NoError(t, s.Publish(t.Context(), []*sink.Message{{Topic: "a"}, {Topic: "b"}}))
	require.ErrorIs(t, (<-reports).err, sink.ErrTooLarge)
	require.ErrorIs(t, (<-reports).err, sink.ErrClosed)
	require.Empty(t, b.Messages())

	next, reports := open(t, b)
	require.NoError(t, next.Publish(t.Context(), []*sink.Message{{Topic: "b"}}))
	require.NoError(t, (<-reports).err, "a new session")
}

func TestBroker_FailsToOpen(t *testing.T) {
	b := memory.New(1)
	b.FailOpen(sink.ErrUnreachable)
	_, err := b.Open(t.Context(), nil)
	require.ErrorIs(t, err, sink.ErrUnreachable)
	open(t, b)
	require.Equal(t, 1, b.Sessions())
}

func TestBroker_WaitForEndsWithItsContext(t *testing.T) {
	late := errors.New("late")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Millisecond, late)
	defer cancel()
	require.ErrorIs(t, memory.New(1).WaitFor(ctx, 1), late)
}
