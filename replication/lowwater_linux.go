package replication

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sys/unix"
)

const (
	// Sizes in bytes that a socket requests; the kernel doubles them. While a backlog is read the
	// walsender finds its socket full, and what it sends leaves in large packets
	// (docs/decisions/0002). The window must not be smaller than a packet of the loopback: the
	// server would send only five times a second.
	localBuffer = 64 << 10
	nearBuffer  = 96 << 10
	// lockedBuffer follows a small one where the kernel cannot decide about the size again: as much
	// as it permits by default (net.core.rmem_max).
	lockedBuffer = 212_992
	// maxRoundTrip bounds the distance of a server for which the buffer may shrink: no more than
	// nearBuffer arrives in a round trip.
	maxRoundTrip = 500 * time.Microsecond
)

// lowWaterConn is a TCP connection with a low-water mark (SO_RCVLOWAT): the kernel wakes a reader
// only when so many bytes have come. Without it each message of a backlog wakes the thread that
// waits for all sockets, which took half of the relay's CPU, though the next read is a matter of
// time (pace.go).
//
// The mark stays as long as each read finds something. The first that does not resets it to one
// byte before it waits. All fields but mark belong to the goroutine that reads.
type lowWaterConn struct {
	net.Conn
	raw         syscall.RawConn
	mark        atomic.Int32 // low-water mark in bytes; zero: the socket's default, which is one
	unlock      int          // the socket option by which the kernel decides about the buffer again
	shrinkable  bool         // the server is near enough
	local       bool         // the same, and the server is on this machine
	shrunk      bool         // the receive buffer is small
	nonBlocking bool         // a read that finds nothing returns os.ErrDeadlineExceeded
}

// lowWaterDial returns dial with low-water marks. made is called with each connection before it
// is used; with nil if it is not TCP.
func lowWaterDial(dial pgconn.DialFunc, made func(*lowWaterConn)) pgconn.DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		tcp, ok := conn.(*net.TCPConn)
		if !ok {
			made(nil)
			return conn, nil
		}
		raw, err := tcp.SyscallConn()
		if err != nil {
			return nil, err
		}
		c := &lowWaterConn{Conn: conn, raw: raw, unlock: unix.SO_BUF_LOCK}
		rtt, err := c.roundTrip()
		c.shrinkable = err == nil && 0 < rtt && rtt <= maxRoundTrip
		c.local = c.shrinkable && isLocal(conn)
		made(c)
		return c, nil
	}
}

// isLocal reports whether both ends of a TCP connection are on this machine.
func isLocal(conn net.Conn) bool {
	here, there := conn.LocalAddr().(*net.TCPAddr), conn.RemoteAddr().(*net.TCPAddr)
	return there.IP.IsLoopback() || there.IP.Equal(here.IP)
}

// setRcvLowat sets the low-water mark from the next read on. It must not be called during a read,
// which would wait for the new mark. It does nothing to nil.
func (c *lowWaterConn) setRcvLowat(bytes int32) {
	if c != nil && c.mark.Load() != bytes && c.set(syscall.SO_RCVLOWAT, int(bytes)) == nil {
		c.mark.Store(bytes)
	}
}

// shrinkRecvBuf makes the receive buffer small, or has the kernel decide about its size again.
// Linux before 5.14 cannot, and the buffer becomes large there. Keep it small only while it is
// read without a pause: a small one that is full also loses the acknowledgements of our packets,
// until the server drops the connection. It does nothing to nil.
func (c *lowWaterConn) shrinkRecvBuf(shrink bool) {
	if c == nil || !c.shrinkable || c.shrunk == shrink {
		return
	}
	c.shrunk = shrink
	size := nearBuffer
	switch {
	case !shrink && c.set(c.unlock, 0) == nil:
		return
	case !shrink:
		size = lockedBuffer
	case c.local:
		size = localBuffer
	}
	_ = c.set(syscall.SO_RCVBUF, size) // on an error it stays as it is, which does no harm
}

func (c *lowWaterConn) set(option, value int) error {
	var failed error
	err := c.raw.Control(func(fd uintptr) {
		failed = os.NewSyscallError("setsockopt",
			syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, option, value))
	})
	return errors.Join(err, failed)
}

// roundTrip returns the kernel's estimate of the round-trip time; zero: not measured.
func (c *lowWaterConn) roundTrip() (d time.Duration, err error) {
	failed := c.raw.Control(func(fd uintptr) {
		var info *unix.TCPInfo
		info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err == nil {
			d = time.Duration(info.Rtt) * time.Microsecond
		}
	})
	return d, errors.Join(err, failed)
}

// await waits until the low-water mark is reached, the receive buffer is full, or the read
// deadline is over. Set a near deadline: await may miss the end of the connection.
func (c *lowWaterConn) await() {
	checked := false
	_ = c.raw.Read(func(fd uintptr) bool { // the next read returns the same error
		if checked {
			return true
		}
		checked = true
		n, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ)
		return err != nil || n >= int(c.mark.Load())
	})
}

// Read is that of net.Conn, with the low-water mark.
func (c *lowWaterConn) Read(p []byte) (int, error) {
	if c.mark.Load() <= 1 && !c.nonBlocking {
		return c.Conn.Read(p)
	}
	if n, err := c.readNow(p); n > 0 || err != nil {
		return n, err
	}
	if c.nonBlocking {
		return 0, os.ErrDeadlineExceeded
	}
	if err := c.set(syscall.SO_RCVLOWAT, 1); err != nil {
		return 0, err
	}
	c.mark.Store(1)
	return c.Conn.Read(p)
}

// readNow reads without waiting; 0, nil: nothing has come. A deadline that is over is an error, as
// for Read.
func (c *lowWaterConn) readNow(p []byte) (n int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	waited := c.raw.Read(func(fd uintptr) bool {
		n, err = syscall.Read(int(fd), p)
		return true
	})
	switch {
	case waited != nil:
		return 0, waited
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.EINTR):
		return 0, nil
	case err != nil:
		return 0, os.NewSyscallError("read", err)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}
