package testdb

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"
)

// Between stands between client and server and changes what either says while a connection begins,
// as a pooler does.
type Between struct {
	// Startup may change the parameters; a result refuses the connection. nil: nothing is changed.
	Startup func(params map[string]string) *pgproto3.ErrorResponse
	// Answer may change what the server says. nil: nothing is changed.
	Answer func(pgproto3.BackendMessage)
	// Said is called for what the client says after that, without a password. nil: no call.
	Said func(pgproto3.FrontendMessage)
	// TLS ends here, and what goes on to the server is in the clear. nil: there is none.
	TLS *tls.Config

	target string
}

// Start listens until the end of the test and returns the server's URL with the new address.
func (b Between) Start(t testing.TB, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	b.target = u.Host
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var all sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); all.Wait() })
	all.Go(func() { // ends when the listener is closed
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { b.serve(client) }) // ends with either side
		}
	})
	u.Host = l.Addr().String()
	return u.String()
}

func (b Between) serve(client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("tcp", b.target)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	toClient, toServer := pgproto3.NewBackend(client, client), pgproto3.NewFrontend(server, server)
	first, err := toClient.ReceiveStartupMessage()
	if _, asked := first.(*pgproto3.SSLRequest); asked && b.TLS != nil {
		if _, err := client.Write([]byte("S")); err != nil {
			return
		}
		client = tls.Server(client, b.TLS)
		toClient = pgproto3.NewBackend(client, client)
		first, err = toClient.ReceiveStartupMessage()
	}
	if err != nil {
		return
	}
	if m, ok := first.(*pgproto3.StartupMessage); ok && b.Startup != nil {
		if refusal := b.Startup(m.Parameters); refusal != nil {
			toClient.Send(refusal)
			_ = toClient.Flush()
			return
		}
	}
	toServer.Send(first)
	if toServer.Flush() != nil {
		return
	}
	var done sync.WaitGroup
	defer done.Wait()
	done.Go(func() { // passes on what the client sends; ends with the connection
		err := b.passOn(toServer, toClient, server, client)
		if err == nil || !errors.Is(err, net.ErrClosed) {
			_ = server.Close()
		}
	})
	defer func() { _ = client.Close() }()
	for {
		m, err := toServer.Receive()
		if err != nil {
			return
		}
		if b.Answer != nil {
			b.Answer(m)
		}
		toClient.Send(m)
		if toClient.Flush() != nil {
			return
		}
	}
}

// passOn passes on what the client sends, until the end of the connection. Only Said needs its
// messages one by one.
func (b Between) passOn(toServer *pgproto3.Frontend, toClient *pgproto3.Backend,
	server io.Writer, client io.Reader) error {
	if b.Said == nil {
		_, err := io.Copy(server, client)
		return err
	}
	for {
		m, err := toClient.Receive()
		if err != nil {
			return err
		}
		b.Said(m)
		toServer.Send(m)
		if err := toServer.Flush(); err != nil {
			return err
		}
	}
}
