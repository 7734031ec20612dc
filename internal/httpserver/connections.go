package httpserver

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// maxConnections of one listener: each takes about 20 KiB of the relay's memory, and a descriptor.
const maxConnections = 256

// connections limits the connections of a server. When there is one more, the one that has been
// without a request for longest is closed, so that a flood of them keeps no probe out. A request
// that is being answered is never cut off: while all connections have one, new ones are closed.
type connections struct {
	limit   int // maxConnections, but for tests
	log     zerolog.Logger
	sampler zerolog.BurstSampler // beside that of log, which has the level

	mu sync.Mutex // guards what follows
	// open has nil for a connection whose request is being answered, else its place in waiting.
	open    map[net.Conn]*list.Element
	waiting list.List // net.Conn without a complete request; the one that waits longest comes first
}

type connectionKey struct{}

// limitConnections limits those of s, whose handler goes through serving.
func limitConnections(s *http.Server, log zerolog.Logger) *connections {
	c := &connections{
		limit: maxConnections, open: map[net.Conn]*list.Element{},
		log: log, sampler: zerolog.BurstSampler{Burst: 1, Period: time.Minute},
	}
	s.ConnState = c.changed
	s.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return context.WithValue(ctx, connectionKey{}, conn)
	}
	return c
}

// changed is called by the server: for a new connection before the next one is accepted.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	var surplus net.Conn
	c.mu.Lock()
	switch state {
	case http.StateNew:
		c.open[conn] = c.waiting.PushBack(conn)
		if len(c.open) > c.limit { // conn itself waits, so there is one
			surplus, _ = c.waiting.Front().Value.(net.Conn)
			c.remove(surplus)
		}
	case http.StateClosed, http.StateHijacked:
		c.remove(conn)
	}
	c.mu.Unlock()
	if surplus != nil {
		_ = surplus.Close() // the server notices, and ends the goroutine of the connection
	}
	if surplus != nil && c.sampler.Sample(zerolog.WarnLevel) {
		c.log.Warn().Int("limit", c.limit).Stringer("client", surplus.RemoteAddr()).
			Msg("too many http connections; the one without a request for longest is closed")
	}
}

// remove needs the lock.
func (c *connections) remove(conn net.Conn) {
	if place := c.open[conn]; place != nil {
		c.waiting.Remove(place)
	}
	delete(c.open, conn)
}

// serving is h, during which the connection of the request is not closed.
func (c *connections) serving(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if conn, ok := r.Context().Value(connectionKey{}).(net.Conn); ok {
			c.begin(conn)
			defer c.end(conn)
		}
		h.ServeHTTP(w, r)
	})
}

func (c *connections) begin(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if place := c.open[conn]; place != nil {
		c.waiting.Remove(place)
		c.open[conn] = nil
	}
}

func (c *connections) end(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, is := c.open[conn]; is {
		c.open[conn] = c.waiting.PushBack(conn)
	}
}
