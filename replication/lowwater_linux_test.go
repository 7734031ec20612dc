package replication

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"os"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// pair is a connection that can be quiet, and its other end.
func pair(t *testing.T) (*lowWaterConn, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	var c *lowWaterConn
	_, err = lowWaterDial((&net.Dialer{}).DialContext, func(made *lowWaterConn) { c = made })(t.Context(), "tcp", l.Addr().String())
	require.NoError(t, err)
	require.NotNil(t, c)
	other, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = c.Close(), other.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(2*time.Minute))) // so that a test which hangs fails
	return c, other
}

// under is how many bytes that were written the other kernel end has not acknowledged, and so may not have ready to be read.
func under(t *testing.T, conn net.Conn) (n int) {
	t.Helper()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.TIOCOUTQ) }))
	require.NoError(t, err)
	return n
}

func TestLowWaterConn_ReadsWhatIsThere(t *testing.T) {
	c, other := pair(t)
	_, err := other.Write([]byte("first"))
	require.NoError(t, err)
	got := make([]byte, 5)
	_, err = io.ReadFull(c, got)
	require.NoError(t, err)
	c.setRcvLowat(worthAwaiting)
	for range 100 {
		_, err = other.Write([]byte("x"))
		require.NoError(t, err)
		n, err := c.Read(got)
		require.NoError(t, err)
		require.Equal(t, "x", string(got[:n]))
		c.setRcvLowat(worthAwaiting)
	}
}

// A row that comes after a pause must not wait for others.
func TestLowWaterConn_IsWokenByOneByteOnceItHasFoundNothing(t *testing.T) {
	c, other := pair(t)
	for range 20 {
		c.setRcvLowat(worthAwaiting)
		read := make(chan byte)
		go func() { // ends when the byte was read, or with the deadline
			p := make([]byte, 100)
			n, err := c.Read(p)
			if err != nil || n != 1 {
				p[0] = 0
			}
			read <- p[0]
		}()
		require.Eventually(t, func() bool { return c.mark.Load() == 1 }, time.Minute, time.Millisecond, "the read waits")
		_, err := other.Write([]byte("x"))
		require.NoError(t, err)
		require.Equal(t, byte('x'), <-read)
	}
}

func TestLowWaterConn_EndsAsOthersDo(t *testing.T) {
	c, other := pair(t)
	c.setRcvLowat(worthAwaiting)
	require.NoError(t, c.SetReadDeadline(time.Unix(1, 0)))
	_, err := c.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)

	require.NoError(t, c.SetReadDeadline(time.Now().Add(2*time.Minute)))
	c.setRcvLowat(worthAwaiting)
	require.NoError(t, other.Close())
	_, err = c.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	c.setRcvLowat(worthAwaiting)
	require.NoError(t, c.Close())
	_, err = c.Read(make([]byte, 1))
	require.ErrorIs(t, err, net.ErrClosed)
}

// secured is both ends of a connection with TLS on top.
func secured(t *testing.T, c, other net.Conn) (client, server *tls.Conn) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"server"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	return tls.Client(c, &tls.Config{InsecureSkipVerify: true}), //nolint:gosec // the other end is ours
		tls.Server(other, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}})
}

// A read of a TLS connection brings one record, and the walsender makes one of each message.
func TestStream_ReadsEveryRecordThatHasCome(t *testing.T) {
	c, other := pair(t)
	client, server := secured(t, c, other)
	const messages = 500
	message := keepalive(1, 0)
	written := make(chan struct{})
	go func() { // ends with the deadline at the latest
		defer close(written)
		for range messages {
			_, _ = server.Write(message)
		}
	}()
	require.NoError(t, client.HandshakeContext(t.Context()))
	<-written
	require.Eventually(t, func() bool { return under(t, other) == 0 }, time.Minute, time.Millisecond) // written is not arrived
	s := &Stream{wire: newWire(client, 1<<20), socket: c, secure: true}
	read := func() (n int) {
		for {
			_, _, _, ok, err := s.wire.next()
			require.NoError(t, err)
			if !ok {
				return n
			}
			n++
		}
	}
	require.NoError(t, s.wire.fill())
	require.Equal(t, 1, read(), "one record")
	require.NoError(t, s.wire.fill())
	require.False(t, s.readOn(0))
	require.Equal(t, messages-1, read())

	_, err := server.Write(message) // and it goes on as before
	require.NoError(t, err)
	require.NoError(t, s.wire.fill())
	require.Equal(t, 1, read())
}

func TestLowWaterConn_UnderTLS(t *testing.T) {
	c, other := pair(t)
	client, server := secured(t, c, other)
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	go func() { // ends with the deadline at the latest
		for rest := sent; len(rest) > 0; {
			n := min(len(rest), 1+len(rest)/7)
			if _, err := server.Write(rest[:n]); err != nil {
				return
			}
			rest = rest[n:]
		}
		_ = server.Close()
	}()
	require.NoError(t, client.HandshakeContext(t.Context()))
	var got []byte
	p := make([]byte, 40_000)
	for {
		c.setRcvLowat(worthAwaiting)
		n, err := client.Read(p)
		got = append(got, p[:n]...)
		if err != nil {
			require.ErrorIs(t, err, io.EOF)
			break
		}
	}
	require.True(t, bytes.Equal(sent, got))
}

func TestLowWaterDial_LeavesOtherConnectionsAlone(t *testing.T) {
	one, two := net.Pipe()
	defer one.Close()
	defer two.Close()
	made := &lowWaterConn{}
	conn, err := lowWaterDial(func(context.Context, string, string) (net.Conn, error) { return one, nil }, func(c *lowWaterConn) { made = c })(t.Context(), "", "")
	require.NoError(t, err)
	require.Same(t, one, conn)
	require.Nil(t, made)
	made.setRcvLowat(worthAwaiting)
}

func TestLowWaterConn_AwaitsTheMark(t *testing.T) {
	c, other := pair(t)
	c.setRcvLowat(worthAwaiting)
	_, err := other.Write(make([]byte, worthAwaiting-1))
	require.NoError(t, err)
	unread := func() (n int) {
		_ = c.raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
		return n
	}
	require.Eventually(t, func() bool { return unread() == worthAwaiting-1 }, time.Minute, time.Millisecond)
	found := make(chan int)
	go func() { // ends with what comes below, or the deadline
		found <- unread()
		c.await()
		found <- unread()
	}()
	require.Equal(t, worthAwaiting-1, <-found)
	_, err = other.Write(make([]byte, 1))
	require.NoError(t, err)
	require.Equal(t, worthAwaiting, <-found, "it has waited, and read nothing")
	c.await() // at once
}

func TestLowWaterConn_AwaitsNoLongerThanTheDeadline(t *testing.T) {
	c, other := pair(t)
	_, err := other.Write([]byte("x"))
	require.NoError(t, err)
	c.setRcvLowat(worthAwaiting)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(longestPause)))
	c.await()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(2*time.Minute)))
	p := make([]byte, 10)
	n, err := c.Read(p)
	require.NoError(t, err)
	require.Equal(t, "x", string(p[:n]))

	c.setRcvLowat(worthAwaiting)
	require.NoError(t, other.Close())
	require.NoError(t, c.SetReadDeadline(time.Now().Add(longestPause)))
	c.await()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(2*time.Minute)))
	_, err = c.Read(p)
	require.ErrorIs(t, err, io.EOF)
}

// size is that of the receive buffer, which the kernel doubles.
func size(c *lowWaterConn) (n int) {
	_ = c.raw.Control(func(fd uintptr) { n, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF) })
	return n
}

// While the walsender finds its socket full, what it sends leaves in large pieces.
func TestLowWaterConn_HasLittleOnTheWayWhileABacklogIsRead(t *testing.T) {
	c, other := pair(t)
	before := size(c)
	c.shrinkable = false
	c.shrinkRecvBuf(true)
	require.Equal(t, before, size(c), "over a longer way it stays as it is")
	c.shrinkable, c.local = true, false
	c.shrinkRecvBuf(true)
	require.Equal(t, 2*nearBuffer, size(c))

	// Nothing gets stuck: the low-water mark is not beyond what there is room for.
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
	go func() { _, _ = other.Write(sent) }() // ends with the connection at the latest
	var got []byte
	for p := make([]byte, ChunkBytes); len(got) < len(sent); {
		c.setRcvLowat(worthAwaiting)
		n, err := c.Read(p)
		require.NoError(t, err)
		got = append(got, p[:n]...)
	}
	require.True(t, bytes.Equal(sent, got))
}

// kept reports whether the kernel may not let the receive buffer grow.
func (c *lowWaterConn) kept() (kept bool) {
	_ = c.raw.Control(func(fd uintptr) {
		lock, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BUF_LOCK)
		kept = err == nil && lock != 0
	})
	return kept
}

// A buffer that must not grow loses what comes when it is full: TestTrap_BrokerStallLongerThanTheTimeoutOfTheServer shows what that leads to.
func TestStream_LetsTheBufferGrowWhileNothingIsRead(t *testing.T) {
	c, _ := pair(t)
	c.shrinkable = true
	s := streamOn(t, c)
	s.socket = c

	s.last.behind = true
	require.NoError(t, s.pause())
	require.True(t, c.kept(), "a backlog is read")
	out := make(chan *Batch)
	ended := make(chan error, 1)
	go func() { ended <- s.handOver(t.Context(), out, &Batch{}) }() // ends when the batch is taken
	require.Eventually(t, func() bool { return !c.kept() }, time.Minute, time.Millisecond)
	<-out
	require.NoError(t, <-ended)

	require.NoError(t, s.pause())
	require.True(t, c.kept())
	s.last.behind = false
	require.NoError(t, s.pause())
	require.False(t, c.kept(), "there is no backlog")
}

// Linux before 5.14 does not know the option.
func TestLowWaterConn_HasALargeBufferAgainWhereTheKernelCannotDecide(t *testing.T) {
	c, _ := pair(t)
	c.shrinkable, c.unlock = true, 9999
	c.shrinkRecvBuf(true)
	require.Equal(t, 2*localBuffer, size(c))
	c.shrinkRecvBuf(false)
	require.Greater(t, size(c), 2*nearBuffer)
}

// What waits in the server's socket comes when a read has made room for it. A row that comes alone is no reason to look again.
func TestStream_ReadsABacklogUntilTheServersSocketIsEmpty(t *testing.T) {
	c, other := pair(t)
	c.shrinkable = true
	s := streamOn(t, c)
	s.socket, s.last.behind = c, true
	s.socket.shrinkRecvBuf(true)
	backlog := bytes.Repeat(keepalive(1, 0), 3*localBuffer/len(keepalive(1, 0))) // more than there is room for
	_, err := other.Write(backlog)
	require.NoError(t, err)
	require.NoError(t, s.wire.fill())
	require.Less(t, s.wire.got, uint64(len(backlog)))
	require.Eventually(t, func() bool {
		require.False(t, s.readOn(worthReadingOn))
		return s.wire.got == uint64(len(backlog))
	}, time.Minute, time.Millisecond)

	_, err = other.Write([]byte{'d'})
	require.NoError(t, err)
	require.False(t, s.readOn(worthReadingOn-1))
	require.Equal(t, uint64(len(backlog)), s.wire.got, "the read before has found the end")
	s.last.behind = false
	require.False(t, s.readOn(worthReadingOn))
	require.Equal(t, uint64(len(backlog)), s.wire.got, "there is no backlog")
	s.last.behind, c.local = true, false
	require.False(t, s.readOn(worthReadingOn))
	require.Equal(t, uint64(len(backlog)), s.wire.got, "over a network it comes later")
	c.local = true
	require.Eventually(t, func() bool {
		require.False(t, s.readOn(worthReadingOn))
		return s.wire.got > uint64(len(backlog))
	}, time.Minute, time.Millisecond)
}

// One read of a backlog brings more than the receive buffer holds, at least where the kernel has moved the rest by then.
func TestStream_SleepsAndReadsOnInABacklogOfThisMachine(t *testing.T) {
	backlog := bytes.Repeat(keepalive(1, 0), 3*localBuffer/len(keepalive(1, 0)))
	read := func(local bool) (s *Stream, c *lowWaterConn) {
		c, other := pair(t)
		c.local, c.shrinkable = local, true
		s = streamOn(t, c)
		s.socket, s.last.behind = c, true
		s.nap = nap{began: time.Now().Add(-time.Second), bytes: 1}
		s.socket.shrinkRecvBuf(true)
		c.setRcvLowat(worthAwaiting)
		_, err := other.Write(backlog)
		require.NoError(t, err)
		require.NoError(t, s.read(t.Context(), t.Context()))
		return s, c
	}
	require.Eventually(t, func() bool {
		s, c := read(true)
		require.Equal(t, int(s.wire.got), s.nap.bytes, "since the nap")
		require.Equal(t, int32(1), c.mark.Load())
		return s.wire.got > 2*localBuffer
	}, time.Minute, time.Millisecond)
	s, _ := read(false)
	require.Equal(t, 1+int(s.wire.got), s.nap.bytes, "no nap over a network")
}

type addressed struct {
	net.Conn
	here, there string
}

func (a addressed) LocalAddr() net.Addr  { return &net.TCPAddr{IP: net.ParseIP(a.here)} }
func (a addressed) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(a.there)} }

func TestIsLocal(t *testing.T) {
	require.True(t, isLocal(addressed{here: "127.0.0.1", there: "127.0.0.1"}))
	require.True(t, isLocal(addressed{here: "127.0.0.1", there: "127.0.0.53"}))
	require.True(t, isLocal(addressed{here: "::1", there: "::1"}))
	require.True(t, isLocal(addressed{here: "192.0.2.7", there: "192.0.2.7"}))
	require.False(t, isLocal(addressed{here: "192.0.2.7", there: "192.0.2.8"}))
	require.False(t, isLocal(addressed{here: "2001:db8::7", there: "2001:db8::8"}))
}

// A keepalive for each transaction of others wakes nobody: they wait for each other, and not for long. A row is read at once.
func TestStream_LetsKeepalivesWaitForCompanyAndNothingElse(t *testing.T) {
	c, other := pair(t)
	s := streamOn(t, c)
	s.socket = c
	read := func(sent []byte) {
		t.Helper()
		_, err := other.Write(sent)
		require.NoError(t, err)
		before := s.wire.got
		for s.wire.got == before {
			require.NoError(t, s.read(t.Context(), t.Context()))
		}
		_, err = s.decodeBuffered(&Batch{}, t.Context())
		require.NoError(t, err)
	}
	read(keepalive(1, 0))
	require.NotEqual(t, int32(worthWaking), c.mark.Load(), "the first")
	s.last.endedAt = time.Now() // however slow the machine is
	read(keepalive(2, 0))
	s.last.frequent = true
	require.NoError(t, s.pause())
	require.Equal(t, int32(worthWaking), c.mark.Load(), "it has waited for more")
	require.Equal(t, pglogrepl.LSN(2), s.ReceivedLSN())
	read(keepalive(3, 0))
	require.Equal(t, pglogrepl.LSN(3), s.ReceivedLSN(), "what comes alone is read too")

	read(copyData(4, beginMessage(9, time.Now(), 1)))
	s.last.frequent = true
	require.False(t, s.last.onlyKeepalives)
	ended := make(chan error, 1)
	go func() { ended <- s.read(t.Context(), t.Context()) }() // ends with what comes below
	require.Eventually(t, func() bool { return c.mark.Load() == 1 }, time.Minute, time.Millisecond, "a transaction has begun: what comes next is reported at once")
	_, err := other.Write([]byte{'d'})
	require.NoError(t, err)
	require.NoError(t, <-ended)

	row := append(copyData(4, beginMessage(9, time.Now(), 1)), copyData(4, insertMessage(1, "a"))...)
	require.GreaterOrEqual(t, len(append(row, copyData(9, commitMessage(9, 9))...)), worthWaking, "the smallest row")
}
