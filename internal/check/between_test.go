package check_test

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

// between stands between client and server and changes what either says while a connection begins, as a pooler does.
type between struct {
	target string
	// startup may change the parameters; an error that is a *pgproto3.ErrorResponse refuses the connection.
	startup func(params map[string]string) *pgproto3.ErrorResponse
	// answer may change what the server says; nil: nothing is changed.
	answer func(pgproto3.BackendMessage)
	// tls: TLS ends here, and what goes on to the server is in the clear.
	tls *tls.Config
}

// start listens until the end of the test and returns the server's URL with the new address.
func (b between) start(t *testing.T, dsn string) string {
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

func (b between) serve(client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("tcp", b.target)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	toClient, toServer := pgproto3.NewBackend(client, client), pgproto3.NewFrontend(server, server)
	first, err := toClient.ReceiveStartupMessage()
	if _, asked := first.(*pgproto3.SSLRequest); asked && b.tls != nil {
		if _, err := client.Write([]byte("S")); err != nil {
			return
		}
		client = tls.Server(client, b.tls)
		toClient = pgproto3.NewBackend(client, client)
		first, err = toClient.ReceiveStartupMessage()
	}
	if err != nil {
		return
	}
	if m, ok := first.(*pgproto3.StartupMessage); ok && b.startup != nil {
		if refusal := b.startup(m.Parameters); refusal != nil {
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
		_, err := io.Copy(server, client)
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
		if b.answer != nil {
			b.answer(m)
		}
		toClient.Send(m)
		if toClient.Flush() != nil {
			return
		}
	}
}
