package child

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// FreePort returns a port that this process has not returned before, and that no other process
// which calls FreePort gets while this one runs: a stopped server's port is still free when it
// starts again. It is of the ports below the range from which systems take those of outgoing
// connections. It is safe for concurrent use.
func FreePort() (int, error) { return ofProcess.take() }

var ofProcess = ports{first: 20_000, end: 32_000}

// ports gives out the ports from first up to end in blocks. A process holds a block while it
// listens on the block's first port, which it does until it ends.
type ports struct {
	first, end int

	mu   sync.Mutex
	held []net.Listener
	// next is the port to try, and left is how many the block has.
	next, left int
}

const portsInBlock = 50

func (p *ports) take() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		for p.left > 0 {
			port := p.next
			p.next, p.left = p.next+1, p.left-1
			// A server may still run whose process has ended.
			if listener, err := listenOn(port); err == nil {
				return port, listener.Close()
			}
		}
		if err := p.hold(); err != nil {
			return 0, err
		}
	}
}

// hold makes the next port that of a block which nobody has. It looks from a random one on, as
// another process is likely to look at the same time.
func (p *ports) hold() error {
	blocks := (p.end - p.first) / portsInBlock
	start := rand.IntN(blocks)
	for i := range blocks {
		port := p.first + (start+i)%blocks*portsInBlock
		listener, err := listenOn(port)
		if err != nil {
			continue
		}
		p.held = append(p.held, listener)
		p.next, p.left = port+1, portsInBlock-1
		return nil
	}
	return errors.New("find a free port: each block of ports is held by a process")
}

func listenOn(port int) (net.Listener, error) {
	return net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
}
