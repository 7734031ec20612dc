package e2e

import (
	"errors"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// gate is a proxy before a server that lets only so many bytes through to the client, on each connection, until it is opened.
type gate struct {
	dsn      string // leads through the gate
	target   string
	passes   int64
	listener net.Listener
	opened   chan struct{}
	open     func() // may be called more than once
	wg       sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
}

func newGate(t testing.TB, dsn string, passes int64) *gate {
	t.Helper()
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	g := &gate{target: u.Host, passes: passes, opened: make(chan struct{})}
	g.open = sync.OnceFunc(func() { close(g.opened) })
	g.listener, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	u.Host = g.listener.Addr().String()
	g.dsn = u.String()
	g.wg.Go(g.accept) // ends when the listener is closed
	t.Cleanup(func() {
		g.open()
		_ = g.listener.Close()
		g.mu.Lock()
		for _, c := range g.conns {
			_ = c.Close()
		}
		g.mu.Unlock()
		g.wg.Wait()
	})
	return g
}

func (g *gate) accept() {
	for {
		client, err := g.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		server, err := net.Dial("tcp", g.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		g.mu.Lock()
		g.conns = append(g.conns, client, server)
		g.mu.Unlock()
		// Each copies one direction and ends with either connection.
		g.wg.Go(func() { defer server.Close(); _, _ = io.Copy(server, client) })
		g.wg.Go(func() {
			defer client.Close()
			if _, err := io.CopyN(client, server, g.passes); err == nil {
				<-g.opened
				_, _ = io.Copy(client, server)
			}
		})
	}
}
