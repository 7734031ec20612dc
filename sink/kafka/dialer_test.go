package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/test/parts"
)

// A broker that hangs reads nothing. What is written to it then waits in the kernel of the relay,
// and must not arrive once the connection is closed.
func TestDialer_DiscardsWhatWasNotSent(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *Dialer, net.Conn){
		"the session is cut": func(_ *testing.T, d *Dialer, _ net.Conn) { d.Cut(sink.ErrClosed) },
		"the connection is closed": func(t *testing.T, _ *Dialer, conn net.Conn) {
			require.NoError(t, conn.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer listener.Close()
			cfg := quick(listener.Addr().String())
			d := NewDialer(&cfg)
			defer d.Cut(sink.ErrClosed)
			conn, err := d.Dial("tcp", listener.Addr().String())
			require.NoError(t, err)
			broker, err := listener.Accept()
			require.NoError(t, err)
			defer broker.Close()

			require.NoError(t, conn.SetWriteDeadline(time.Now().Add(time.Second)))
			sent, err := conn.Write(make([]byte, 64<<20))
			require.ErrorIs(t, err, os.ErrDeadlineExceeded, "nothing is left unsent")
			end(t, d, conn)

			require.NoError(t, broker.SetReadDeadline(time.Now().Add(parts.Patience)))
			arrived, err := io.Copy(io.Discard, broker)
			t.Logf("%d bytes taken by the kernel, %d arrived: %v", sent, arrived, err)
			require.Less(t, arrived, int64(sent))
			require.True(t, errors.Is(err, syscall.ECONNRESET), "%v", err)
		})
	}
}

// serve listens until the test ends, and calls take for each connection, one after the other.
func serve(t *testing.T, take func(net.Conn)) (addr string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() { // ends when the listener is closed
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			take(conn)
		}
	}()
	return listener.Addr().String()
}

// A load balancer in front of a broker that is down ends connections so, and no other broker is
// worse for the certificate of one.
func TestClient_AHandshakeThatFailsIsAnErrorOfDialing(t *testing.T) {
	a := parts.NewAuthority(t)
	expired := a.Server(x509.Certificate{NotAfter: time.Now().Add(-time.Minute)})
	for name, end := range map[string]func(net.Conn){
		"closed":  func(conn net.Conn) { _ = conn.Close() },
		"reset":   func(conn net.Conn) { _ = conn.(*net.TCPConn).SetLinger(0); _ = conn.Close() },
		"expired": func(conn net.Conn) { _ = tls.Server(conn, expired).Handshake() },
	} {
		t.Run(name, func(t *testing.T) {
			addr := serve(t, func(conn net.Conn) {
				if name != "expired" {
					_, _ = conn.Read(make([]byte, 1))
				}
				end(conn)
			})
			cfg := quick(addr)
			cfg.TLS = TLSConfig{Enabled: true, CAFile: a.CAFile()}
			d := NewDialer(&cfg)
			defer d.Cut(sink.ErrClosed)
			_, err := cfg.dialFor(d)(t.Context(), "tcp", addr)
			op, is := errors.AsType[*net.OpError](err)
			require.True(t, is)
			require.Equal(t, "dial", op.Op, "by which the client looks for another broker")
			require.ErrorIs(t, Class(err), sink.ErrTLS)
			require.NotContains(t, d.Failure().Text, "dial tcp")
		})
	}
}

func TestDialer_ReadsCertificatesAtEachConnect(t *testing.T) {
	a := parts.NewAuthority(t)
	server := a.Server(x509.Certificate{})
	server.ClientAuth = tls.RequireAndVerifyClientCert
	server.ClientCAs = a.Pool()
	seen := make(chan string, 100)
	server.VerifyPeerCertificate = func(_ [][]byte, chains [][]*x509.Certificate) error {
		seen <- chains[0][0].Subject.CommonName
		return nil
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", server)
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	go func() { // ended by Close of the listener
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.(*tls.Conn).Handshake()
			_ = c.Close()
		}
	}()

	cfg := quick(l.Addr().String())
	cfg.TLS = TLSConfig{Enabled: true, CAFile: a.CAFile()}
	cfg.TLS.CertFile, cfg.TLS.KeyFile = a.Issue("before", x509.Certificate{})
	d := NewDialer(&cfg)
	defer d.Cut(sink.ErrClosed)
	_, err = d.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	require.Equal(t, "before", <-seen)

	cert, key := a.Issue("after", x509.Certificate{})
	require.NoError(t, os.Rename(cert, cfg.TLS.CertFile))
	require.NoError(t, os.Rename(key, cfg.TLS.KeyFile))
	_, err = d.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	require.Equal(t, "after", <-seen)
}

func TestDialer_KeepsWhyABrokerCannotBeReached(t *testing.T) {
	addr := parts.Nobody(t)
	cfg := quick(addr)
	d := NewDialer(&cfg)
	defer d.Cut(sink.ErrClosed)
	require.Nil(t, d.Failure())

	ended, end := context.WithCancel(t.Context())
	end()
	_, err := d.DialContext(ended, "tcp", addr)
	require.Error(t, err)
	require.Nil(t, d.Failure(), "the connection was not wanted any more")

	_, err = d.Dial("tcp", addr)
	require.Error(t, err)
	require.Equal(t, addr+": connection refused", d.Failure().Text)
	require.ErrorIs(t, d.Failure(), sink.ErrUnreachable)

	d.mu.Lock()
	d.failed[addr] = failure{err, time.Now().Add(-time.Hour)}
	d.mu.Unlock()
	require.Nil(t, d.Failure(), "no broker at this address is needed any more")

	_, err = d.Dial("tcp", addr)
	require.Error(t, err)
	listener, err := net.Listen("tcp", addr)
	require.NoError(t, err)
	defer listener.Close()
	conn, err := d.Dial("tcp", addr)
	require.NoError(t, err)
	defer conn.Close()
	require.Nil(t, d.Failure(), "it is reached")
}

func TestDialer_AttemptsThatFailForOneCauseHaveOneText(t *testing.T) {
	a := parts.NewAuthority(t)
	for name, secure := range map[string]bool{"no answer": false, "reset in the handshake": true} {
		t.Run(name, func(t *testing.T) {
			addr := serve(t, func(conn net.Conn) {
				if secure {
					_, _ = conn.Read(make([]byte, 1))
					_ = conn.(*net.TCPConn).SetLinger(0)
					_ = conn.Close()
				}
			})
			cfg := quick(addr)
			cfg.DialTimeout = 300 * time.Millisecond
			if secure { // the reset comes at once
				cfg.DialTimeout = time.Minute
			}
			cfg.TLS = TLSConfig{Enabled: secure, CAFile: a.CAFile()}
			_, first := cfg.Reach(t.Context())
			_, second := cfg.Reach(t.Context())
			require.Error(t, first)
			require.EqualError(t, second, first.Error())
			if secure { // as of a load balancer in front of a broker that is down
				d := NewDialer(&cfg)
				defer d.Cut(sink.ErrClosed)
				_, err := d.Dial("tcp", addr)
				require.Error(t, err)
				require.False(t, d.Failure().Lasts())
			}
		})
	}
}
