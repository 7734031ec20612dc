package replication

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// receiveBuffer is what a socket asks for; the kernel doubles that for its own accounts. It is small, so that the walsender finds it full and
	// what it says next leaves in large pieces: while there is room, each of its messages is a packet with a way through the whole stack. A million
	// rows in transactions of ten take the walsender 3.5 s of CPU that way, and 5 s with a buffer that grows (docs/decisions/0002).
	receiveBuffer = 96 << 10
	// nearby is how far a server is at most for that. Over a longer way, no more than receiveBuffer arrives in a round trip.
	nearby = 500 * time.Microsecond
)

// quietConn is a connection that can be told not to wake us for each little that arrives. With a backlog the walsender does one system call per
// message, and each of them would wake the thread that waits for all of our sockets, though the next read is a matter of time (pace.go). That took
// half of our CPU, and a part of the walsender's.
//
// It stays quiet as long as each read finds something. The first that does not makes it loud again before it waits: what arrives then is told
// at once.
type quietConn struct {
	net.Conn
	socket tcpSocket
	quiet  atomic.Bool
}

// quietly makes dial's connections such that can be quiet, and hands each to made: nil where the system cannot do that.
func quietly(dial pgconn.DialFunc, made func(*quietConn)) pgconn.DialFunc {
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
		if way, err := socket.roundTrip(); err == nil && way <= nearby {
			_ = socket.receive(receiveBuffer) // one that stays large does no harm
		}
		c := &quietConn{Conn: conn, socket: socket}
		made(c)
		return c, nil
	}
}

// hush makes the connection quiet from the next read on. It must not be called during a read, which would go on waiting for more than it wants. A nil
// connection stays as it is.
func (c *quietConn) hush() {
	if c != nil && !c.quiet.Load() {
		c.quiet.Store(c.socket.lowWater(worthReading) == nil)
	}
}

// await waits until so much has come, no more than the low-water mark, or until there is no room for more. It may find out only by the deadline that the
// connection has ended: that has to be near. The connection has to be quiet.
func (c *quietConn) await(bytes int) { c.socket.await(bytes) }

// Read is net.Conn's.
func (c *quietConn) Read(p []byte) (int, error) {
	if !c.quiet.Load() {
		return c.Conn.Read(p)
	}
	if n, err := c.socket.readNow(p); n > 0 || err != nil {
		return n, err
	}
	if err := c.socket.lowWater(1); err != nil {
		return 0, err
	}
	c.quiet.Store(false)
	return c.Conn.Read(p)
}
