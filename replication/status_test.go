package replication

import (
	"encoding/binary"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestPositions_FlushIsNeverZeroNorBeyondWhatWasSeen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lsn := func(name string) pglogrepl.LSN {
			return pglogrepl.LSN(rapid.Uint64Range(0, 1000).Draw(t, name))
		}
		p := positions{seed: 1 + lsn("seed"), received: lsn("received")}
		acked := lsn("acked")
		write, flush := p.status(acked)
		seen := max(p.seed, p.received)
		switch {
		case flush == 0:
			t.Fatal("a zero flush would be replaced by the write position")
		case flush > seen:
			t.Fatalf("flush %s is beyond %s, all that this connection has seen", flush, seen)
		case flush > acked && flush > p.seed:
			t.Fatalf("flush %s is beyond what is acked, %s", flush, acked)
		case flush > write:
			t.Fatalf("flush %s is beyond write %s", flush, write)
		}
	})
}

func TestSchedule(t *testing.T) {
	t0 := time.Unix(1000, 0)
	fresh := func() *schedule { return &schedule{interval: 5 * time.Second, last: t0} }

	t.Run("an idle connection waits for the interval", func(t *testing.T) {
		require.Equal(t, t0.Add(5*time.Second), fresh().due(false))
	})
	t.Run("a moved watermark goes out soon", func(t *testing.T) {
		require.Equal(t, t0.Add(confirmDelay), fresh().due(true))
	})
	t.Run("a reply that is requested goes out at once", func(t *testing.T) {
		s := fresh()
		s.replyRequested(t0)
		require.Equal(t, t0, s.due(false))
	})
	t.Run("a server that requests again without news is not answered in a busy loop", func(t *testing.T) {
		s := fresh()
		s.replyRequested(t0)
		s.sent(t0)
		s.replyRequested(t0)
		require.Equal(t, t0.Add(replyPause), s.due(false))
		require.Equal(t, t0, s.due(true), "with news it is")
	})
	t.Run("it wakes up while something may be acked at any time", func(t *testing.T) {
		require.Equal(t, t0.Add(confirmDelay), fresh().wake(t0, false, true))
		require.Equal(t, t0.Add(5*time.Second), fresh().wake(t0, false, false))
	})
	t.Run("a watched watermark that stands still does not put off the interval", func(t *testing.T) {
		late := t0.Add(4990 * time.Millisecond)
		require.Equal(t, t0.Add(5*time.Second), fresh().wake(late, false, true))
	})
	t.Run("only a server that stops requests this often", func(t *testing.T) {
		s := fresh()
		for range stoppingRequests {
			require.False(t, s.serverStopping())
			s.replyRequested(t0)
			s.sent(t0)
		}
		require.True(t, s.serverStopping())
		s.progressed()
		require.False(t, s.serverStopping())
	})
	t.Run("not one that asks now and then, because statuses are rarer than it wants", func(t *testing.T) {
		s, now := fresh(), t0
		for range 2 * stoppingRequests {
			now = now.Add(stoppingGap)
			s.replyRequested(now)
			require.False(t, s.serverStopping())
			s.sent(now)
		}
	})
}

// With synchronous_commit = remote_apply a commit waits until its position is applied, and must not return for a row that is read and not acknowledged.
func TestStream_TellsAsAppliedWhatIsAckedAlone(t *testing.T) {
	const read, acked = pglogrepl.LSN(300), pglogrepl.LSN(200)
	c, server := net.Pipe()
	t.Cleanup(func() { _ = c.Close(); _ = server.Close() })
	s := streamOn(t, c)
	s.positions = positions{seed: 100, received: read}
	s.acked = func() pglogrepl.LSN { return acked }
	sent := make(chan error, 1)
	go func() { sent <- s.sendStatus(time.Now()) }() // ends when it is read
	m, err := pgproto3.NewBackend(server, server).Receive()
	require.NoError(t, err)
	require.NoError(t, <-sent)
	status := m.(*pgproto3.CopyData).Data
	require.EqualValues(t, 'r', status[0])
	for at, want := range map[int]pglogrepl.LSN{1: read, 9: acked, 17: acked} { // written, flushed, applied
		require.Equal(t, want, pglogrepl.LSN(binary.BigEndian.Uint64(status[at:])), "position at byte %d", at)
	}
}

// While the receiver has no room the server's end of the stream may be there unread: that is no wait for the server.
func TestStream_WaitsForTheServerOnlyWhenItCanReadOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, server := net.Pipe()
		defer c.Close()
		defer server.Close()
		s, out := streamOn(t, c), make(chan *Batch)
		began := time.Now()
		s.waiting.Store(&began)
		ended := make(chan error, 1)
		go func() { ended <- s.handOver(t.Context(), out, new(Batch)) }()
		synctest.Wait()
		require.Zero(t, s.WaitingSince())
		time.Sleep(time.Second)
		<-out
		require.NoError(t, <-ended)
		require.Equal(t, began.Add(time.Second), s.WaitingSince())
	})
}
