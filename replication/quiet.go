package replication

import (
	"context"
	"net"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgconn"
)

// quietBytes is how much has to be there to wake us while the connection is quiet. More than arrives between two reads.
const quietBytes = chunkSize / 2

// quietConn is a connection that can be told not to wake us for each little that arrives. With a backlog the walsender does one system call per
// message, and each of them would wake the thread that waits for all of our sockets, though the next read is a matter of time (pace.go). That took
// half of our CPU, and a part of the walsender's.
//
// It stays quiet as long as each read finds something. The first that does not makes it loud again before it waits: what arrives then is told
// at once.
type quietConn struct {
	net.Conn
	socket lowWater
	quiet  atomic.Bool
}

// quietly makes dial's connections such that can be quiet, and hands each to made: nil where the system cannot do that.
func quietly(dial pgconn.DialFunc, made func(*quietConn)) pgconn.DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		socket, can := lowWaterOf(conn)
		if !can {
			made(nil)
			return conn, nil
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
		c.quiet.Store(c.socket.set(quietBytes) == nil)
	}
}

// unread is how many bytes have come and were not read; worthReading where that cannot be told.
func (c *quietConn) unread() int {
	if c == nil {
		return worthReading
	}
	bytes, err := c.socket.unread()
	if err != nil {
		return worthReading
	}
	return bytes
}

// Read is net.Conn's.
func (c *quietConn) Read(p []byte) (int, error) {
	if !c.quiet.Load() {
		return c.Conn.Read(p)
	}
	if n, err := c.socket.readNow(p); n > 0 || err != nil {
		return n, err
	}
	if err := c.socket.set(1); err != nil {
		return 0, err
	}
	c.quiet.Store(false)
	return c.Conn.Read(p)
}
