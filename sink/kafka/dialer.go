package kafka

import (
	"cmp"
	"context"
	"crypto/tls"
	"maps"
	"net"
	"slices"
	"sync"
	"time"
)

// Dialer makes the connections of one client. Safe for concurrent use.
type Dialer struct {
	cfg *Config
	ctx context.Context // ended by Cut
	end context.CancelCauseFunc

	mu     sync.Mutex // guards what follows
	open   map[*connection]struct{}
	failed map[string]failure // of the last attempt to reach an address
}

// failure is why an address could not be reached, and when.
type failure struct {
	err error
	at  time.Time
}

// NewDialer makes one; the caller ends it with Cut.
func NewDialer(cfg *Config) *Dialer {
	ctx, end := context.WithCancelCause(context.Background())
	return &Dialer{cfg: cfg, ctx: ctx, end: end, open: map[*connection]struct{}{},
		failed: map[string]failure{}}
}

// Dial is DialContext until Cut.
func (d *Dialer) Dial(network, addr string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, addr)
}

// DialContext connects and, if configured, completes the TLS handshake, within dial_timeout.
func (d *Dialer) DialContext(until context.Context, network, addr string) (net.Conn, error) {
	conn, err := d.dial(until, network, addr)
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case err == nil:
		delete(d.failed, addr)
	case until.Err() == nil: // else it was not wanted any more
		maps.DeleteFunc(d.failed, d.isOver)
		d.failed[addr] = failure{err, time.Now()}
	}
	return conn, err
}

// isOver reports whether a failure is older than two attempts: a client that needs a broker makes
// one after the other.
func (d *Dialer) isOver(_ string, f failure) bool {
	return time.Since(f.at) > 2*(d.cfg.DialTimeout+max(longestRetry, d.cfg.RetryBackoff))
}

// Failure returns why brokers cannot be reached, as an error of Reach; nil: there are none.
func (d *Dialer) Failure() *OpenError {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.failed, d.isOver)
	if len(d.failed) == 0 {
		return nil
	}
	var failed []error
	for _, addr := range slices.Sorted(maps.Keys(d.failed)) {
		failed = append(failed, d.failed[addr].err)
	}
	return d.cfg.unreachable(failed)
}

func (d *Dialer) dial(until context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(d.ctx, d.cfg.DialTimeout)
	defer cancel()
	defer context.AfterFunc(until, cancel)()

	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, &connectError{addr: addr, err: d.reason(err)}
	}
	discardUnsent(conn)
	c := &connection{Conn: conn, wire: conn, dialer: d,
		answers: answers{most: int(d.cfg.LargestAnswer())}}
	d.mu.Lock()
	cut := d.ctx.Err() != nil
	if !cut {
		d.open[c] = struct{}{}
	}
	d.mu.Unlock()
	if cut {
		_ = conn.Close()
		return nil, &connectError{addr: addr, err: context.Cause(d.ctx)}
	}
	if !d.cfg.TLS.Enabled {
		return c, nil
	}

	config, err := d.cfg.TLS.client(addr)
	if err == nil {
		secure := tls.Client(conn, config)
		c.Conn = secure
		err = secure.HandshakeContext(ctx)
	}
	if err != nil {
		d.forget(c)
		_ = conn.Close()
		return nil, &connectError{addr: addr, tls: true, err: d.reason(err)}
	}
	return c, nil
}

// discardUnsent makes the kernel discard unsent bytes when the connection is closed, also when
// the process is killed: a request that arrives late is carried out behind those of the next
// session (docs/decisions/0025). An orderly close loses nothing: every request has its answer by
// then.
func discardUnsent(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // fails only for a closed socket, which the first write reports
	}
}

// reason is the cause of Cut, if that is what err comes from.
func (d *Dialer) reason(err error) error {
	return cmp.Or(context.Cause(d.ctx), err)
}

func (d *Dialer) forget(c *connection) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.open, c)
}

// Cut closes all connections and makes no more: whatever a client waits for then fails at once.
func (d *Dialer) Cut(cause error) {
	d.end(cause)
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.open {
		_ = c.wire.Close() // not through TLS, which would try to send a close_notify
	}
	clear(d.open)
}

// WhenCut ends with Cut.
func (d *Dialer) WhenCut() context.Context { return d.ctx }

// connection is one to a broker.
type connection struct {
	net.Conn // with TLS, if configured
	wire     net.Conn
	dialer   *Dialer
	answers  answers // of the goroutine that reads
}

func (c *connection) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if refused := c.answers.follow(p[:n]); refused != nil {
		return 0, refused
	}
	return n, err
}

func (c *connection) Close() error {
	c.dialer.forget(c)
	return c.Conn.Close()
}
