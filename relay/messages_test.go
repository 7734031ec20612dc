package relay

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/sink"
)

// slow is a sink that acknowledges when acknowledge is called.
type slow struct {
	done sink.Done
	has  []*sink.Message
}

func (s *slow) Publish(_ context.Context, ms []*sink.Message) error {
	s.has = append(s.has, ms...)
	return nil
}

func (s *slow) Topic(context.Context, string) error { return nil }
func (s *slow) Close(context.Context) error         { return nil }

func (s *slow) acknowledge(n int) {
	now := s.has[:n]
	s.has = s.has[n:]
	for _, m := range now {
		s.done(m, nil)
	}
}

func TestMessages_AreNotUsedAgainBeforeTheyAreDelivered(t *testing.T) {
	s, b := pumping(t, false, 3)
	held := &slow{done: s.delivered}
	s.sink = held
	one := &replication.Batch{Events: b.Events[:5]} // one transaction
	relay := func() { require.NoError(t, s.handleBatch(t.Context(), one)) }

	relay()
	first := held.has
	held.has = append([]*sink.Message{}, first...)
	relay()
	require.Len(t, held.has, 6)
	for i, m := range held.has[3:] {
		require.NotSame(t, first[i], m)
	}
	for _, m := range held.has {
		require.Equal(t, "agg-4711", string(m.Key))
	}

	held.acknowledge(6)
	for _, m := range first {
		require.Nil(t, m.Key, "a message that waits for its next row keeps no bytes of the last one")
		require.Nil(t, m.Value)
		require.Empty(t, m.Origin.EventID)
		for _, h := range m.Headers {
			require.Zero(t, h)
		}
	}
	relay()
	require.Len(t, held.has, 3)
	for _, m := range held.has {
		require.Equal(t, "agg-4711", string(m.Key))
		require.Len(t, m.Headers, 1)
		require.Equal(t, s.transaction, m.Origin.Transaction)
		require.NotContains(t, []uint64{0, 1}, m.Origin.Transaction)
	}
	held.acknowledge(3)
	require.Equal(t, b.Events[4].LSN, s.window.ackedLSN())
}

func TestMessages_ThatFailedAreNotUsedAgain(t *testing.T) {
	s, b := pumping(t, false, 3)
	held := &slow{done: s.delivered}
	s.sink = held
	require.NoError(t, s.handleBatch(t.Context(), &replication.Batch{Events: b.Events[:5]}))
	m := held.has[0]
	s.delivered(m, sink.ErrClosed)
	require.Equal(t, "agg-4711", string(m.Key))
	require.Empty(t, s.pool.returned)
}

// What a row was read into may be written again as soon as its message is delivered, and not before.
func TestMessages_HoldTheMemoryOfTheirRowsUntilTheyAreDelivered(t *testing.T) {
	s, b := pumping(t, false, 3)
	held := &slow{done: s.delivered}
	s.sink = held
	var chunk replication.Chunk
	for i := range b.Events {
		b.Events[i].Chunk = &chunk
	}
	free := func() (free bool) {
		defer func() { free = recover() != nil }() // it is released more often than it is held
		chunk.Release()
		chunk.Retain()
		return false
	}
	require.NoError(t, s.handleBatch(t.Context(), &replication.Batch{Events: b.Events[:5]}))
	require.Len(t, held.has, 3)
	require.False(t, free())
	held.acknowledge(2)
	require.False(t, free())
	held.acknowledge(1)
	require.True(t, free())
}

// One message of each read buffer that waits for long would keep all of the buffer.
func TestMessages_AreCopiedWhereFewOfABufferWait(t *testing.T) {
	s, b := pumping(t, false, 3)
	held := &slow{done: s.delivered}
	s.sink = held
	s.bufferBytes = func() int64 { return bufferSlack + 1<<20 }
	var chunk replication.Chunk
	for i := range b.Events {
		b.Events[i].Chunk = &chunk
		b.Events[i].Bytes = 1 << 16
	}
	require.NoError(t, s.handleBatch(t.Context(), &replication.Batch{Events: b.Events[:5]}))
	require.Len(t, held.has, 3)
	require.Nil(t, held.has[0].Origin.Memory, "the first is a copy")
	require.Equal(t, "agg-4711", string(held.has[0].Key))
	require.NotSame(t, &b.Events[1].Values[0][0], &held.has[0].Value[0])
	_, bytes, _ := s.window.inFlight()
	require.Less(t, bytes, int64(1000), "what a copy takes")
	held.acknowledge(3)
	require.Panics(t, chunk.Release, "nothing retains the buffer")
}

func TestMessages_ThatFailedKeepTheMemoryOfTheirRows(t *testing.T) {
	s, b := pumping(t, false, 1)
	held := &slow{done: s.delivered}
	s.sink = held
	var chunk replication.Chunk
	b.Events[1].Chunk = &chunk
	require.NoError(t, s.handleBatch(t.Context(), &replication.Batch{Events: b.Events[:3]}))
	s.delivered(held.has[0], sink.ErrClosed)
	require.NotPanics(t, chunk.Release, "the sink may still read it")
}

// A message outside of a transaction ends where the commit record of the next transaction may begin, and both have the index 0.
func TestNotTaken_TellsAMessageFromTheRowAtTheSamePosition(t *testing.T) {
	message := &sink.Message{Origin: sink.Origin{LSN: 700, Transaction: 4}}
	row := &sink.Message{Origin: sink.Origin{LSN: 700, Transaction: 5}}
	refused := &sink.MessageError{Origin: row.Origin, Untaken: true, Err: sink.ErrTooLarge}
	require.Equal(t, 1, notTaken([]*sink.Message{message, row}, refused))
}
