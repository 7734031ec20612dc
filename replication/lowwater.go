package replication

import (
	"context"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// receiveBuffer is the size that a socket requests; the kernel doubles it for its own
	// accounts. It is small, so that the walsender finds it full and sends in large pieces while a
	// backlog is read: while there is room, each of its messages is a packet with a way through
	// the whole stack. A million rows in transactions of ten take the walsender 3.5 s of CPU that
	// way, and 5 s with a buffer that grows (docs/decisions/0002).
	receiveBuffer = 96 << 10
	// maxRoundTrip bounds the distance of a server for which the buffer may shrink. Over a longer
	// way, no more than receiveBuffer arrives in a round trip.
	maxRoundTrip = 500 * time.Microsecond
	// shrunkTimeout is how long the buffer may stay small while nothing is read.
	shrunkTimeout = 20 * time.Millisecond
)

// lowWaterConn is a connection with a low-water mark: the kernel wakes a reader only when so many
// bytes have come. With a backlog the walsender does one system call per message, and each would
// wake the thread that waits for all sockets, though the next read is a matter of time (pace.go).
// That took half of the relay's CPU, and a part of the walsender's.
//
// The mark stays as long as each read finds something. The first that does not resets it to one
// byte before it waits.
type lowWaterConn struct {
	net.Conn
	socket     tcpSocket
	mark       atomic.Int32 // low-water mark in bytes; zero: as the socket was made, which is one
	shrinkable bool         // the server is near enough
	shrunk     bool         // the receive buffer is small; of the reader alone
	// a read that finds nothing ends as if its deadline were over; of the reader alone
	nonBlocking bool
}

// lowWaterDial has dial's connections take a low-water mark and hands each to made: nil where the
// system has no such mark.
func lowWaterDial(dial pgconn.DialFunc, made func(*lowWaterConn)) pgconn.DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		socket, can := tcpOf(conn)
		if !can {
			made(nil)
			return conn, nil
		}
		c := &lowWaterConn{Conn: conn, socket: socket}
		rtt, err := socket.roundTrip() // zero: not measured
		c.shrinkable = err == nil && 0 < rtt && rtt <= maxRoundTrip && socket.free() == nil
		made(c)
		return c, nil
	}
}

// setRcvLowat sets the low-water mark from the next read on. It must not be called during a read,
// which would go on waiting for more than it wants. A nil connection has none.
func (c *lowWaterConn) setRcvLowat(bytes int32) {
	if c != nil && c.mark.Load() != bytes && c.socket.lowWater(int(bytes)) == nil {
		c.mark.Store(bytes)
	}
}

// shrinkRecvBuf makes the receive buffer small, for as long as it is read without a pause, or
// gives it back to the kernel. A small one loses what comes when it is full, acknowledgements of
// our packets included; each retransmission takes twice as long, until the server drops the
// connection.
func (c *lowWaterConn) shrinkRecvBuf(shrink bool) {
	if c == nil || !c.shrinkable || c.shrunk == shrink {
		return
	}
	c.shrunk = shrink
	if shrink {
		_ = c.socket.receive(receiveBuffer) // one that stays large does no harm
		return
	}
	_ = c.socket.free() // lowWaterDial has seen that the kernel can
}

// await waits until the low-water mark is reached, or there is no room for more. It may find out
// only by the deadline that the connection has ended: the deadline has to be near.
func (c *lowWaterConn) await() { c.socket.await(int(c.mark.Load())) }

// Read is net.Conn's.
func (c *lowWaterConn) Read(p []byte) (int, error) {
	if c.mark.Load() <= 1 && !c.nonBlocking {
		return c.Conn.Read(p)
	}
	if n, err := c.socket.readNow(p); n > 0 || err != nil {
		return n, err
	}
	if c.nonBlocking {
		return 0, os.ErrDeadlineExceeded
	}
	if err := c.socket.lowWater(1); err != nil {
		return 0, err
	}
	c.mark.Store(1)
	return c.Conn.Read(p)
}
