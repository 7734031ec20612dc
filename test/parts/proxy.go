package parts

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Proxy forwards TCP connections to one address and makes trouble on demand. Its methods may be called
// from any goroutine.
type Proxy struct {
	target   string
	listener net.Listener
	wg       sync.WaitGroup // the accept loop and two goroutines for each connection

	mu      sync.Mutex
	changed *sync.Cond // of mu: stalled, refusing, closed
	conns   map[net.Conn]struct{}
	stalled bool
	refuse  bool
	delay   time.Duration
	closed  bool
}

// StartProxy listens on a free port of 127.0.0.1 for target, host:port. The caller must Close it.
func StartProxy(target string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start proxy: %w", err)
	}
	p := &Proxy{target: target, listener: listener, conns: map[net.Conn]struct{}{}}
	p.changed = sync.NewCond(&p.mu)
	p.wg.Add(1)
	go p.accept() // ends when Close closes the listener
	return p, nil
}

// Addr is where to connect, host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Cut closes all connections now. New ones are accepted; see Refuse.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutLocked()
}

// Refuse cuts all connections and closes each new one at once, until Resume.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = true
	p.cutLocked()
}

// Stall goes on accepting connections and reading nothing from them, until Resume: a network that
// drops every packet. Up to one buffer a connection may be on its way already.
func (p *Proxy) Stall() { p.set(func() { p.stalled = true }) }

// Delay holds back every piece of data, in each direction, for that long. Zero ends it.
func (p *Proxy) Delay(d time.Duration) { p.set(func() { p.delay = d }) }

// Resume ends Stall and Refuse.
func (p *Proxy) Resume() { p.set(func() { p.stalled, p.refuse = false, false }) }

// Connections returns how many clients are connected.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns) / 2
}

// Close ends the proxy and its connections, and waits for its goroutines.
func (p *Proxy) Close() error {
	p.set(func() { p.closed = true })
	err := p.listener.Close()
	p.Cut()
	p.wg.Wait()
	return err
}

func (p *Proxy) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	p.changed.Broadcast()
}

func (p *Proxy) cutLocked() {
	for conn := range p.conns {
		_ = conn.Close()
	}
	clear(p.conns)
	p.changed.Broadcast()
}

func (p *Proxy) accept() {
	defer p.wg.Done()
	for {
		client, err := p.listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		p.serve(client)
	}
}

// serve connects the client with the target. Dialling in the accept loop is fine: the target is local.
func (p *Proxy) serve(client net.Conn) {
	server, err := net.DialTimeout("tcp", p.target, 5*time.Second)
	if err != nil {
		_ = client.Close()
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse || p.closed {
		_, _ = client.Close(), server.Close()
		return
	}
	p.conns[client], p.conns[server] = struct{}{}, struct{}{}
	p.wg.Add(2)
	// Each copies one direction, ends with either connection, and closes both.
	go p.copy(client, server)
	go p.copy(server, client)
}

func (p *Proxy) copy(to, from net.Conn) {
	defer p.wg.Done()
	defer p.drop(to, from)
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if !p.pass(from) {
				return
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// pass waits until data may go on, and reports whether its connection still exists.
func (p *Proxy) pass(from net.Conn) bool {
	p.mu.Lock()
	for p.stalled && !p.goneLocked(from) {
		p.changed.Wait()
	}
	gone, delay := p.goneLocked(from), p.delay
	p.mu.Unlock()
	if gone {
		return false
	}
	if delay > 0 {
		<-time.After(delay) // the delay is what was asked for
	}
	return true
}

func (p *Proxy) goneLocked(conn net.Conn) bool {
	_, here := p.conns[conn]
	return !here
}

// drop closes a pair of connections, which wakes the goroutine of the other direction.
func (p *Proxy) drop(a, b net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, a)
	delete(p.conns, b)
	_, _ = a.Close(), b.Close()
	p.changed.Broadcast()
}
