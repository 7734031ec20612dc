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
	// receiveBuffer is what a socket asks for; the kernel doubles that for its own accounts. It is small, so that the walsender finds it full and
	// what it says next leaves in large pieces, as long as a backlog is read: while there is room, each of its messages is a packet with a way through
	// the whole stack. A million rows in transactions of ten take the walsender 3.5 s of CPU that way, and 5 s with a buffer that grows (docs/decisions/0002).
	receiveBuffer = 96 << 10
	// nearby is how far a server is at most for that. Over a longer way, no more than receiveBuffer arrives in a round trip.
	maxRoundTrip = 500 * time.Microsecond
	// brief is how long it may stay small while nothing is read.
	shrunkTimeout = 20 * time.Millisecond
)

// quietConn is a connection that can be told not to wake us for each little that arrives. With a backlog the walsender does one system call per
// message, and each of them would wake the thread that waits for all of our sockets, though the next read is a matter of time (pace.go). That took
// half of our CPU, and a part of the walsender's.
//
// It stays quiet as long as each read finds something. The first that does not makes it loud again before it waits: what arrives then is told
// at once.
type lowWaterConn struct {
	net.Conn
	socket      tcpSocket
	mark        atomic.Int32 // its low-water mark, bytes; zero: as it was made, which is one
	near        bool         // the receive buffer may be small
	shrunk      bool         // and is; of the reader alone
	nonBlocking bool         // a read that finds nothing does not wait, and ends as if it were time; of the reader alone
}

// quietly makes dial's connections such that can be quiet, and hands each to made: nil where the system cannot do that.
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
		way, err := socket.roundTrip()
		c.near = err == nil && 0 < way && way <= maxRoundTrip && socket.free() == nil // zero: not measured
		made(c)
		return c, nil
	}
}

// hush makes the connection quiet from the next read on, until so many bytes have come. It must not be called during a read, which would go on waiting for
// more than it wants. A nil connection stays as it is.
func (c *lowWaterConn) setRcvLowat(bytes int32) {
	if c != nil && c.mark.Load() != bytes && c.socket.lowWater(int(bytes)) == nil {
		c.mark.Store(bytes)
	}
}

// narrowed makes the receive buffer small, for as long as it is read without a pause: or else gives it back to the kernel. One that must not grow loses what
// comes when it is full, acknowledgements of what we say included, and each time that is said again it takes twice as long; by then the server has given us up.
func (c *lowWaterConn) shrinkRecvBuf(narrow bool) {
	if c == nil || !c.near || c.shrunk == narrow {
		return
	}
	c.shrunk = narrow
	if narrow {
		_ = c.socket.receive(receiveBuffer) // one that stays large does no harm
		return
	}
	_ = c.socket.free() // which the kernel can: it was asked at the beginning
}

// await waits until as much has come as it is quiet for, or until there is no room for more. It may find out only by the deadline that the connection has ended:
// that has to be near.
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
