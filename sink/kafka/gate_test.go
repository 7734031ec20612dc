package kafka

import (
	"net"
	"sync"
)

// gate is the listener of a broker that can be stalled like a stopped process: connections are made and bytes are taken
// by the kernel, but the broker reads nothing, so it answers nothing.
type gate struct {
	mu    sync.Mutex
	open  chan struct{} // closed when the gate is open; nil: never shut
	conns []net.Conn
}

func (g *gate) listen(network, address string) (net.Listener, error) {
	l, err := net.Listen(network, address)
	return &gatedListener{Listener: l, gate: g}, err
}

// shut stalls the broker until the function it returns is called.
func (g *gate) shut() func() {
	g.mu.Lock()
	defer g.mu.Unlock()
	open := make(chan struct{})
	g.open = open
	return sync.OnceFunc(func() { close(open) })
}

// cut closes all connections, as a network that loses them would.
func (g *gate) cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.conns {
		_ = c.Close()
	}
	g.conns = nil
}

func (g *gate) wait() {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	if open != nil {
		<-open
	}
}

type gatedListener struct {
	net.Listener
	gate *gate
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
	gate *gate
}

func (c *gatedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.gate.wait() // also what was on its way when the gate was shut
	return n, err
}
