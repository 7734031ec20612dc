package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
)

// dialer makes the connections of one session. It is sarama's proxy.Dialer. Safe for concurrent use.
type dialer struct {
	cfg *Config
	ctx context.Context // ended by cut
	end context.CancelCauseFunc

	mu    sync.Mutex
	conns []net.Conn // open ones, and closed ones until the next dial
}

func newDialer(cfg *Config) *dialer {
	ctx, end := context.WithCancelCause(context.Background())
	return &dialer{cfg: cfg, ctx: ctx, end: end}
}

// Dial connects and, if configured, completes the TLS handshake, within dial_timeout.
func (d *dialer) Dial(network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(d.ctx, d.cfg.DialTimeout)
	defer cancel()

	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, &connectError{addr: addr, err: err}
	}
	if !d.keep(conn) {
		_ = conn.Close()
		return nil, &connectError{addr: addr, err: context.Cause(d.ctx)}
	}
	if !d.cfg.TLS.Enabled {
		return conn, nil
	}

	config, err := d.cfg.TLS.client(addr)
	if err != nil {
		_ = conn.Close()
		return nil, &connectError{addr: addr, tls: true, err: err}
	}
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, &connectError{addr: addr, tls: true, err: err}
	}
	return secure, nil
}

// keep remembers a connection for cut, unless cut was called already. It hands out the plain TCP connection, not a wrapper
// that would report its Close: sarama looks for *net.TCPConn to notice dead sockets. So closed ones are swept out here.
func (d *dialer) keep(conn net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ctx.Err() != nil {
		return false
	}
	open := d.conns[:0]
	for _, c := range d.conns {
		if isOpen(c) {
			open = append(open, c)
		}
	}
	clear(d.conns[len(open):])
	d.conns = append(open, conn)
	return true
}

func isOpen(c net.Conn) bool {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := sc.SyscallConn()
	return err == nil && raw.Control(func(uintptr) {}) == nil
}

// cut closes all connections and refuses new ones: whatever sarama waits for then fails at once.
func (d *dialer) cut(cause error) {
	d.end(cause)
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.conns {
		_ = c.Close()
	}
	d.conns = nil
}

// client builds the TLS configuration for one connection to addr, reading the files.
func (t *TLSConfig) client(addr string) (*tls.Config, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("broker address: %w", err)
	}
	config := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         host,
		InsecureSkipVerify: t.InsecureSkipVerify, //nolint:gosec // an explicit setting, loudly documented
	}
	if t.ServerName != "" {
		config.ServerName = t.ServerName
	}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("sink.kafka.tls.ca_file: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("sink.kafka.tls.ca_file: %s: %w", t.CAFile, errors.New("holds no PEM certificate"))
		}
	}
	if t.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("sink.kafka.tls.cert_file: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
