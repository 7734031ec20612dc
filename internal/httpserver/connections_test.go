package httpserver

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// limited runs a server with few connections until the test ends.
func limited(t *testing.T, limit int, h Handlers) *Server {
	t.Helper()
	s := New(Config{Listen: "127.0.0.1:0"}, h)
	s.connections.limit = limit
	require.NoError(t, s.Listen())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	return s
}

// peer is a connection that stays open.
type peer struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func connect(t *testing.T, s *Server) peer {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	return peer{t, conn, bufio.NewReader(conn)}
}

func (c peer) write(text string) {
	c.t.Helper()
	_, err := io.WriteString(c.conn, text)
	require.NoError(c.t, err)
}

func (c peer) answer() int {
	c.t.Helper()
	resp, err := http.ReadResponse(c.in, nil)
	require.NoError(c.t, err)
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(c.t, err)
	return resp.StatusCode
}

func (c peer) get(path string) int {
	c.t.Helper()
	c.write("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n")
	return c.answer()
}

// requireClosed waits until the server has closed the connection.
func (c peer) requireClosed() {
	c.t.Helper()
	_, err := c.in.ReadByte()
	require.Error(c.t, err)
	require.NotErrorIs(c.t, err, os.ErrDeadlineExceeded, "the connection is still open")
}

func (s *Server) openConnections() int {
	s.connections.mu.Lock()
	defer s.connections.mu.Unlock()
	return len(s.connections.open)
}

func TestConnections_AreLimited(t *testing.T) {
	for name, open := range map[string]func(c peer){
		"idle":              func(c peer) { require.Equal(c.t, http.StatusOK, c.get("/livez")) },
		"silent":            func(peer) {},
		"half of a request": func(c peer) { c.write("GET /livez HTTP/1.1\r\n") },
		"a byte":            func(c peer) { c.write("G") },
	} {
		t.Run(name, func(t *testing.T) {
			const limit = 8
			s := limited(t, limit, new(answers).handlers())
			var clients []peer
			for range 4 * limit {
				c := connect(t, s)
				open(c)
				clients = append(clients, c)
				require.LessOrEqual(t, s.openConnections(), limit)
			}
			require.Equal(t, http.StatusOK, connect(t, s).get("/livez"), "a probe comes through")
			for _, c := range clients[:3*limit] {
				c.requireClosed()
			}
			require.LessOrEqual(t, s.openConnections(), limit)
		})
	}
}

func TestConnections_CloseTheOneThatIsIdleForLongest(t *testing.T) {
	s := limited(t, 3, new(answers).handlers())
	first, second, third := connect(t, s), connect(t, s), connect(t, s)
	for _, c := range []peer{first, second, third, first} {
		require.Equal(t, http.StatusOK, c.get("/livez"))
	}
	fourth := connect(t, s)
	require.Equal(t, http.StatusOK, fourth.get("/livez"))
	second.requireClosed()
	for _, c := range []peer{third, first, fourth} {
		require.Equal(t, http.StatusOK, c.get("/livez"))
	}
}

func TestConnections_CutOffNoRequest(t *testing.T) {
	const limit = 4
	serving, release := make(chan struct{}), make(chan struct{})
	a := new(answers)
	slow := func() any {
		serving <- struct{}{}
		<-release
		return "slow"
	}
	a.status.Store(&slow)
	s := limited(t, limit, a.handlers())
	var busy []peer
	for range limit {
		c := connect(t, s)
		c.write("GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n")
		<-serving
		busy = append(busy, c)
	}
	connect(t, s).requireClosed() // no other can be
	require.Equal(t, limit, s.openConnections())
	close(release)
	for _, c := range busy {
		require.Equal(t, http.StatusOK, c.answer())
	}
	require.Equal(t, http.StatusOK, connect(t, s).get("/livez"))
	require.Equal(t, limit, s.openConnections())
}

func TestConnections_AreForgottenWhenTheyEnd(t *testing.T) {
	s := limited(t, 8, new(answers).handlers())
	for range 20 {
		c := connect(t, s)
		c.write("GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
		require.Equal(t, http.StatusOK, c.answer())
		c.requireClosed()
	}
	require.Eventually(t, func() bool { return s.openConnections() == 0 }, 20*time.Second,
		time.Millisecond)
	require.Zero(t, s.connections.waiting.Len())
}
