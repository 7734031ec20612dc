package parts

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// Proxy forwards TCP connections to one address and makes trouble on demand. Its methods may be
// called from any goroutine.
type Proxy struct {
	target   string
	listener net.Listener
	wg       sync.WaitGroup // the accept loop and two goroutines for each connection

	mu      sync.Mutex
	changed *sync.Cond // of mu: stalled, refusing, closed
	conns   map[net.Conn]struct{}
	stalled bool
	muted   bool
	refuse  bool
	delay   time.Duration
	pace    int                   // bytes a second of one direction of a connection; 0 is no limit
	slice   int                   // bytes of one piece; 0 is whatever comes
	lose    func() float64        // of 0 to 1, for each piece of a client
	share   float64               // of the pieces of clients that end their connection
	lost    int                   // connections that ended so
	forgot  map[net.Conn]struct{} // connections that Forget left
	closed  bool
}

// StartProxy listens on a free port of 127.0.0.1 for target, host:port. The caller must Close it.
func StartProxy(target string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start proxy: %w", err)
	}
	p := &Proxy{target: target, listener: listener, conns: map[net.Conn]struct{}{},
		forgot: map[net.Conn]struct{}{}}
	p.changed = sync.NewCond(&p.mu)
	p.wg.Go(p.accept) // ends when Close closes the listener
	return p, nil
}

// Addr is where to connect, host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Cut closes all connections now. New ones are accepted; see Refuse.
func (p *Proxy) Cut() { p.set(p.cutLocked) }

// Refuse cuts all connections and closes each new one at once, until Resume.
func (p *Proxy) Refuse() {
	p.set(func() {
		p.refuse = true
		p.cutLocked()
	})
}

// Stall accepts connections and reads nothing from them, until Resume: a network that
// drops every packet. Up to one buffer a connection may be on its way already.
func (p *Proxy) Stall() { p.set(func() { p.stalled = true }) }

// Mute takes what clients send and keeps back the answers, until Resume.
func (p *Proxy) Mute() { p.set(func() { p.muted = true }) }

// Delay holds back every piece of data, in each direction, for that long. Zero ends it.
func (p *Proxy) Delay(d time.Duration) { p.set(func() { p.delay = d }) }

// Pace lets that many bytes a second through, in each direction of each connection. Zero ends it.
func (p *Proxy) Pace(bytesPerSecond int) { p.set(func() { p.pace = bytesPerSecond }) }

// Slice hands data on in pieces of at most that many bytes, each written by itself. Zero ends it.
func (p *Proxy) Slice(bytes int) { p.set(func() { p.slice = bytes }) }

// Lose ends the connection at a share of the pieces that clients send, from 0 to 1: one half of
// them after the piece has arrived, so that only the answer is lost, the other half after a part
// of it. Equal seeds choose alike. Zero ends it.
func (p *Proxy) Lose(share float64, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0))
	p.set(func() { p.share, p.lose = share, random.Float64 })
}

// Lost returns how many connections Lose has ended.
func (p *Proxy) Lost() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

// Forget leaves the connections that are there open and lets nothing through them any more, in
// either direction: the network has forgotten them. New ones are served.
func (p *Proxy) Forget() {
	p.set(func() {
		for conn := range p.conns {
			p.forgot[conn] = struct{}{}
		}
	})
}

// Resume ends Stall, Mute and Refuse.
func (p *Proxy) Resume() { p.set(func() { p.stalled, p.muted, p.refuse = false, false, false }) }

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
	clear(p.forgot)
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err == nil:
			p.serve(client)
		}
	}
}

// serve connects the client with the target. Dialling in the accept loop is fine: the target is
// local.
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
	// Each copies one direction, ends with either connection, and closes both.
	p.wg.Go(func() { p.copy(client, server, false) })
	p.wg.Go(func() { p.copy(server, client, true) })
}

func (p *Proxy) copy(to, from net.Conn, fromClient bool) {
	defer p.drop(to, from)
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && (!p.pass(from, fromClient) || !p.hand(to, from, buf[:n], fromClient)) ||
			err != nil {
			return
		}
	}
}

// pass waits until data may go on, and reports whether its connection still exists.
func (p *Proxy) pass(from net.Conn, fromClient bool) bool {
	p.mu.Lock()
	for (p.stalled || (p.muted && !fromClient) || p.forgottenLocked(from)) && !p.goneLocked(from) {
		p.changed.Wait()
	}
	gone, delay := p.goneLocked(from), p.delay
	p.mu.Unlock()
	if !gone {
		<-time.After(delay) // the caller has set this delay
	}
	return !gone
}

// hand writes what has been read, as Pace, Slice and Lose were set, and reports whether the
// connection remains.
func (p *Proxy) hand(to, from net.Conn, data []byte, fromClient bool) bool {
	p.mu.Lock()
	pace, slice := p.pace, p.slice
	ends := fromClient && p.share > 0 && p.lose() < p.share
	if ends {
		p.lost++
		if p.lose() < 0.5 {
			data = data[:len(data)/2]
		}
	}
	p.mu.Unlock()
	if slice <= 0 {
		slice = len(data)
	}
	for len(data) > 0 {
		n := min(slice, len(data))
		if _, err := to.Write(data[:n]); err != nil ||
			(pace > 0 && !p.wait(from, time.Second*time.Duration(n)/time.Duration(pace))) {
			return false
		}
		data = data[n:]
	}
	return !ends
}

// wait delays a connection, and reports whether it still exists.
func (p *Proxy) wait(from net.Conn, d time.Duration) bool {
	<-time.After(d) // the caller has set this delay
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.goneLocked(from)
}

func (p *Proxy) goneLocked(conn net.Conn) bool {
	_, here := p.conns[conn]
	return !here
}

func (p *Proxy) forgottenLocked(conn net.Conn) bool {
	_, here := p.forgot[conn]
	return here
}

// drop closes a pair of connections, which wakes the goroutine of the other direction.
func (p *Proxy) drop(a, b net.Conn) {
	p.set(func() {
		for _, conn := range []net.Conn{a, b} {
			delete(p.conns, conn)
			delete(p.forgot, conn)
			_ = conn.Close()
		}
	})
}
