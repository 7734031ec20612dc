package parts

import (
	"net"
	"sync"
)

// Gate is the listener of a broker that can be stalled like a stopped process: connections are
// made and bytes are taken by the kernel, but the broker reads nothing, so it answers nothing.
type Gate struct {
	mu    sync.Mutex
	open  chan struct{} // closed when the gate is open; nil: never shut
	conns []net.Conn
}

// Listen is kfake.ListenFn's.
func (g *Gate) Listen(network, address string) (net.Listener, error) {
	l, err := net.Listen(network, address)
	return &gatedListener{Listener: l, gate: g}, err
}

// Shut stalls the broker until the function it returns is called.
func (g *Gate) Shut() func() {
	g.mu.Lock()
	defer g.mu.Unlock()
	open := make(chan struct{})
	g.open = open
	return sync.OnceFunc(func() { close(open) })
}

// Cut closes all connections, as a network that loses them would.
func (g *Gate) Cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.conns {
		_ = c.Close()
	}
	g.conns = nil
}

func (g *Gate) wait() {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	if open != nil {
		<-open
	}
}

type gatedListener struct {
	net.Listener
	gate *Gate
}

func (l *gatedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.gate.mu.Lock()
	l.gate.conns = append(l.gate.conns, c)
	l.gate.mu.Unlock()
	return &gatedConn{Conn: c, gate: l.gate}, nil
}

type gatedConn struct {
	net.Conn
	gate *Gate
}

func (c *gatedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.gate.wait() // also what was on its way when the gate was shut
	return n, err
}
