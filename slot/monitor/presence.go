package monitor

import (
	"context"
	"sync"
	"time"
)

// presence counts the returns of the server. It is safe for concurrent use.
type presence struct {
	mu      sync.Mutex    // guards what follows
	started time.Time     // start of the server that answered last; zero before the first answer
	standby bool          // that server was a standby
	refused bool          // an attempt to connect has failed since then
	returns int           // see Returns
	changed chan struct{} // closed, and replaced, whenever returns grows
}

func newPresence() *presence { return &presence{changed: make(chan struct{})} }

// failed records a failed attempt to connect.
func (p *presence) failed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused = true
}

// answered records an answer of a server that was started at started, and reports whether it is a
// return.
func (p *presence) answered(started time.Time, standby bool) (returned bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	restarted := !p.started.IsZero() && !started.Equal(p.started)
	promoted := p.standby && !standby
	returned = p.refused || restarted || promoted
	p.started, p.standby, p.refused = started, standby, false
	if returned {
		p.returns++
		close(p.changed)
		p.changed = make(chan struct{})
	}
	return returned
}

// Returns returns how often the server has come back: it accepted a connection of the monitor
// after it had refused one, or was restarted or promoted.
func (p *presence) Returns() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.returns
}

// AwaitReturn waits until Returns is more than returns, or ctx ends. The monitor's connection does
// not delay a shutdown: the server ends it at once and refuses the next one. When it accepts one,
// the shutdown or the recovery from a crash is over.
func (p *presence) AwaitReturn(ctx context.Context, returns int) error {
	for {
		p.mu.Lock()
		now, changed := p.returns, p.changed
		p.mu.Unlock()
		if now > returns {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
