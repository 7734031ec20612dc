package httpserver

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
)

// counter is a part that a test changes, and that counts how often it was asked for.
type counter struct {
	value atomic.Int64
	asked atomic.Int64
}

func (c *counter) part(name string) Part {
	return Part{Name: name, Get: func() any {
		c.asked.Add(1)
		return map[string]int64{"value": c.value.Load()}
	}}
}

func withParts(parts ...Part) Handlers {
	h := new(answers).handlers()
	h.Parts = parts
	return h
}

// client reads server-sent events.
type client struct {
	t       *testing.T
	lines   *bufio.Reader
	headers http.Header
	close   func()
}

type event struct{ name, data string }

func follow(t *testing.T, url, encoding string) *client {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/api/stream", nil)
	require.NoError(t, err)
	req.Header.Set("Accept-Encoding", encoding)
	resp, err := http.DefaultClient.Do(req)
	for attempt := 0; err != nil && attempt < 20; attempt++ { // a short timeout of the server
		resp, err = http.DefaultClient.Do(req)
	}
	require.NoError(t, err)
	c := &client{t: t, headers: resp.Header, close: sync.OnceFunc(func() {
		cancel()
		_ = resp.Body.Close()
	})}
	t.Cleanup(c.close)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	body := io.Reader(resp.Body)
	if resp.Header.Get("Content-Encoding") == "gzip" {
		body, err = gzip.NewReader(resp.Body)
		require.NoError(t, err)
	}
	c.lines = bufio.NewReader(body)
	return c
}

// next returns the next event, or the error that ended the stream.
func (c *client) next() (event, error) {
	var e event
	for {
		line, err := c.lines.ReadString('\n')
		if err != nil {
			return e, err
		}
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == "":
			return e, nil
		case strings.HasPrefix(line, "event: "):
			e.name = strings.TrimPrefix(line, "event: ")
		case strings.HasPrefix(line, "data: "):
			e.data = strings.TrimPrefix(line, "data: ")
		default:
			c.t.Errorf("a line that is no part of an event: %q", line)
		}
	}
}

// untilTick returns the events before the next tick.
func (c *client) untilTick() []event {
	c.t.Helper()
	var events []event
	for {
		e, err := c.next()
		require.NoError(c.t, err)
		if e.name == "tick" {
			var at struct{ At time.Time }
			require.NoError(c.t, json.Unmarshal([]byte(e.data), &at))
			require.WithinDuration(c.t, time.Now(), at.At, time.Minute)
			return events
		}
		events = append(events, e)
	}
}

func TestStream_SendsEverythingFirstAndThenWhatChanged(t *testing.T) {
	for _, encoding := range []string{"identity", "gzip"} {
		t.Run(encoding, func(t *testing.T) {
			var slow, fast counter
			url := start(t, withParts(slow.part("slow"), fast.part("fast")))
			c := follow(t, url, encoding)
			require.Equal(t, "text/event-stream", c.headers.Get("Content-Type"))
			require.Equal(t, "no-store", c.headers.Get("Cache-Control"))
			require.Equal(t, []event{{"slow", `{"value":0}`}, {"fast", `{"value":0}`}}, c.untilTick())
			require.Empty(t, c.untilTick(), "nothing has changed")
			fast.value.Store(7)
			var changed []event
			for len(changed) == 0 {
				changed = c.untilTick()
			}
			require.Equal(t, []event{{"fast", `{"value":7}`}}, changed)
		})
	}
}

func TestStream_LooksOnceForAllClients(t *testing.T) {
	var c counter
	s := New(Config{Listen: "127.0.0.1:0"}, withParts(c.part("part")))
	url := serve(t, s)
	var clients []*client
	for range 8 {
		clients = append(clients, follow(t, url, "identity"))
	}
	for _, client := range clients {
		require.Equal(t, []event{{"part", `{"value":0}`}}, client.untilTick())
		client.untilTick()
	}
	s.live.mu.Lock()
	defer s.live.mu.Unlock()
	require.LessOrEqual(t, c.asked.Load(), int64(s.live.version)+1, "one look may be under way")
}

// The poller by itself, with its clock under control.
func TestStream_HubEndsWithTheLastClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c counter
		s := newStream([]Part{c.part("part")}, zerolog.Nop())
		require.True(t, s.enter())
		synctest.Wait()
		require.Equal(t, int64(1), c.asked.Load(), "at once")
		time.Sleep(10 * pollInterval)
		synctest.Wait()
		require.Equal(t, int64(11), c.asked.Load())
		events, look, _ := s.since(0)
		require.Contains(t, string(events), "event: part\n")
		events, _, _ = s.since(look)
		require.Empty(t, events)

		s.leave()
		time.Sleep(10 * pollInterval)
		synctest.Wait()
		require.LessOrEqual(t, c.asked.Load(), int64(12), "nobody looks, so nobody asks")
		events, _, _ = s.since(0)
		require.Empty(t, events, "what was true then is forgotten")
		s.close()
	})
}

func TestStream_CloseDoesNotWaitForTheNextLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c counter
		s := newStream([]Part{c.part("part")}, zerolog.Nop())
		require.True(t, s.enter())
		synctest.Wait()
		began := time.Now()
		s.close()
		require.Zero(t, time.Since(began))
		require.False(t, s.enter(), "nobody may come any more")
	})
}

func TestStream_IsNotCutByTheServersTimeouts(t *testing.T) {
	var c counter
	s := New(Config{Listen: "127.0.0.1:0"}, withParts(c.part("part")))
	s.server.ReadTimeout, s.server.ReadHeaderTimeout, s.server.WriteTimeout = pollInterval/4,
		pollInterval/4, pollInterval/4
	url := serve(t, s)
	client := follow(t, url, "gzip")
	client.untilTick()
	client.untilTick() // a second later, when every one of them has passed
	client.untilTick()
}

// serve is start for a server that is made already.
func serve(t *testing.T, s *Server) string {
	t.Helper()
	require.NoError(t, s.Listen())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		cancel()
		require.NoError(t, <-ended)
	})
	return "http://" + s.Addr().String()
}

func TestStream_RefusesMoreClientsThanItsLimit(t *testing.T) {
	var c counter
	s := New(Config{Listen: "127.0.0.1:0"}, withParts(c.part("part")))
	s.live.limit = 2
	url := serve(t, s)
	first, second := follow(t, url, "identity"), follow(t, url, "identity")
	first.untilTick()
	second.untilTick()
	resp, body := request(t, http.MethodGet, url+"/api/stream")
	require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	require.Equal(t, "10", resp.Header.Get("Retry-After"))
	require.Contains(t, body, "2 pages")

	first.close()
	require.Eventually(t, func() bool {
		resp, err := http.Get(url + "/api/stream") //nolint:noctx // ended by closing its body
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode == http.StatusOK
	}, time.Minute, 10*time.Millisecond, "its place is free again")
}

func TestStream_GivesUpAClientThatReadsNothing(t *testing.T) {
	// More than the buffers of both ends of a connection hold, and new each time.
	text, n := strings.Repeat("x", 16<<20), new(atomic.Int64)
	s := New(Config{Listen: "127.0.0.1:0"}, withParts(Part{Name: "huge",
		Get: func() any { return fmt.Sprint(n.Add(1), text) }}))
	s.live.slow = 50 * time.Millisecond
	serve(t, s)
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.Addr().String())
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	_, err = io.WriteString(conn, "GET /api/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
	require.NoError(t, err)
	clients := func() int {
		s.live.mu.Lock()
		defer s.live.mu.Unlock()
		return s.live.clients
	}
	require.Eventually(t, func() bool { return n.Load() > 0 }, time.Minute, time.Millisecond)
	require.Eventually(t, func() bool { return clients() == 0 }, time.Minute, 10*time.Millisecond)
}

func TestStream_EndsWithTheServerAtOnce(t *testing.T) {
	var c counter
	s := New(Config{Listen: "127.0.0.1:0"}, withParts(c.part("part")))
	s.grace = 2 * time.Minute // longer than the test may take: nothing is waited for
	require.NoError(t, s.Listen())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	defer http.DefaultClient.CloseIdleConnections()
	for _, encoding := range []string{"identity", "gzip"} {
		follow(t, "http://"+s.Addr().String(), encoding).untilTick()
	}
	last := follow(t, "http://"+s.Addr().String(), "gzip")
	cancel()
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(s.grace / 2):
		require.Fail(t, "an open page holds up the end of the process")
	}
	for {
		if _, err := last.next(); err != nil {
			require.ErrorIs(t, err, io.EOF, "a stream that ends, not one that breaks")
			break
		}
	}
}

func TestStream_OutlivesAPartThatFails(t *testing.T) {
	var c counter
	panics := Part{Name: "panics", Get: func() any { panic("a part is broken") }}
	wrong := Part{Name: "wrong", Get: func() any { return make(chan int) }}
	url := start(t, withParts(panics, wrong, c.part("fine")))
	require.Equal(t, []event{{"fine", `{"value":0}`}}, follow(t, url, "identity").untilTick())
	resp, _ := request(t, http.MethodGet, url+"/api/wrong")
	require.Equal(t, http.StatusInternalServerError, resp.StatusCode)
}

func TestStream_HasAHead(t *testing.T) {
	var c counter
	url := start(t, withParts(c.part("part")))
	resp, _ := request(t, http.MethodHead, url+"/api/stream")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Equal(t, "text/event-stream", resp.Header.Get("Content-Type"))
}

func TestParts_HaveTwins(t *testing.T) {
	var c counter
	c.value.Store(3)
	url := start(t, withParts(c.part("verdict"), c.part("slot")))
	for _, name := range []string{"verdict", "slot"} {
		resp, body := request(t, http.MethodGet, url+"/api/"+name)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.Equal(t, "application/json", resp.Header.Get("Content-Type"))
		require.JSONEq(t, `{"value":3}`, body)
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete} {
			resp, _ = request(t, method, url+"/api/"+name)
			require.Equal(t, http.StatusMethodNotAllowed, resp.StatusCode)
		}
	}
	resp, _ := request(t, http.MethodGet, url+"/api/other")
	require.Equal(t, http.StatusNotFound, resp.StatusCode)
	_, index := request(t, http.MethodGet, url+"/")
	require.Contains(t, index, "verdict, slot")
}

func TestServer_WithoutPartsHasNoPage(t *testing.T) {
	h := new(answers).handlers()
	h.Metrics = prometheus.NewRegistry()
	url := start(t, h)
	resp, _ := request(t, http.MethodGet, url+"/api/stream")
	require.Equal(t, http.StatusNotFound, resp.StatusCode)
}
