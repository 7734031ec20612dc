package replication

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"
)

func TestChunk_IsWrittenAgainOnlyWhenNobodyHoldsIt(t *testing.T) {
	var cs chunks
	a := cs.take(10)
	a.Retain()
	a.Release()
	b := cs.take(10)
	require.NotSame(t, a, b, "somebody holds it")
	a.Release()
	require.Same(t, a, cs.take(ChunkBytes))
	require.Panics(t, func() { a.Release(); a.Release() }, "the row of somebody else may have been overwritten")
}

func TestChunk_OfALongRowIsNotKept(t *testing.T) {
	var cs chunks
	long := cs.take(ChunkBytes + 1)
	require.Len(t, long.bytes, ChunkBytes+1)
	long.Release()
	require.Empty(t, cs.free)
}

func TestChunk_OnlySoManyAreKept(t *testing.T) {
	var cs chunks
	var taken []*Chunk
	for range chunksKept + 5 {
		taken = append(taken, cs.take(1))
	}
	for _, c := range taken {
		c.Release()
	}
	require.Len(t, cs.free, chunksKept)
	cs.trim()
	require.Empty(t, cs.free)
}

// The pump takes events out of a batch and releases it, while the sink's goroutines release messages that were delivered.
func TestChunk_StaysForAnEventThatOutlivesItsBatch(t *testing.T) {
	var cs chunks
	b := &Batch{}
	c := cs.take(4)
	copy(c.bytes, "row1")
	b.add(Event{Kind: Insert, Values: [][]byte{c.bytes[:4]}})
	b.retainChunk(0, c)
	c.Release() // by the wire, which goes on to another
	held, value := b.Events[0].Chunk, b.Events[0].Values[0]
	held.Retain()
	b.reset()
	require.NotSame(t, c, cs.take(4))
	require.Equal(t, "row1", string(value))
	var both sync.WaitGroup
	both.Go(held.Release)
	both.Wait()
	require.Same(t, c, cs.take(4))
}

func TestBatch_HoldsEveryChunkThatItsEventsLieIn(t *testing.T) {
	var cs chunks
	b := &Batch{}
	first, second := cs.take(1), cs.take(1)
	for i, c := range []*Chunk{first, first, second} {
		b.add(Event{Kind: Insert})
		b.retainChunk(i, c)
	}
	first.Release()
	second.Release()
	require.EqualValues(t, 1, first.refs.Load(), "once, however many events")
	require.EqualValues(t, 1, second.refs.Load())
	b.reset()
	require.Len(t, cs.free, 2)
}

// streamOn is a stream on a connection that replicates already.
func streamOn(t *testing.T, c net.Conn) *Stream {
	t.Helper()
	config, err := pgconn.ParseConfig("postgres://127.0.0.1?sslmode=disable")
	require.NoError(t, err)
	pg, err := pgconn.Construct(&pgconn.HijackedConn{Conn: c, Config: config, Frontend: pgproto3.NewFrontend(c, c), TxStatus: 'I'})
	require.NoError(t, err)
	s := &Stream{conn: pg, wire: newWire(c, 1<<20), decoder: newDecoder(), now: time.Now, acked: func() pglogrepl.LSN { return 0 }}
	s.schedule = schedule{interval: time.Minute, last: time.Now()}
	return s
}

// A read also ends when a status is due, and that means nothing for how much is to come.
func TestStream_KeepsItsChunksWhileItReadsBetweenStatuses(t *testing.T) {
	c, server := net.Pipe()
	t.Cleanup(func() { _ = c.Close(); _ = server.Close() })
	s := streamOn(t, c)
	read := func(due time.Duration) {
		t.Helper()
		s.schedule = schedule{last: time.Now(), interval: due}
		require.NoError(t, s.read(t.Context(), t.Context()))
	}
	s.wire.chunks.take(1).Release()
	for range 3 {
		go func() { _, _ = server.Write([]byte{'d'}) }() // ends when it is read
		read(time.Minute)
		s.wire.chunks.take(1).Release()
		read(-time.Minute)
		require.NotEmpty(t, s.wire.chunks.free, "a status was due")
	}
	read(time.Millisecond)
	require.Empty(t, s.wire.chunks.free, "twice there was nothing")
}
