package httpserver

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

const (
	lookInterval = time.Second      // between two looks at the parts, for all clients together
	slowClient   = 10 * time.Second // a client that takes nothing for so long is given up
	maxStreams   = 16               // each holds a connection, and about a megabyte for its compression
)

// stream tells every open page what changed. A client is not queued for: it gets what is newest when it can take it, so a slow one
// sees fewer steps and costs no memory.
type stream struct {
	parts []Part
	log   zerolog.Logger
	slow  time.Duration // slowClient, but for tests
	limit int           // maxStreams, but for tests

	closed chan struct{} // by close; ends the hub and every client
	hub    sync.WaitGroup

	mu      sync.Mutex
	clients int
	running bool          // the hub; it ends by itself when the last client has gone
	look    uint64        // number of the last look at the parts; 0: none since the hub started
	at      time.Time     // of that look
	latest  []update      // by part; empty while the hub does not run
	looked  chan struct{} // closed, and replaced, after each look
}

// update is the JSON of a part since a look.
type update struct {
	data []byte // nil: not encoded yet
	look uint64 // that found it changed
}

func newStream(parts []Part, log zerolog.Logger) *stream {
	return &stream{
		parts: parts, log: log, slow: slowClient, limit: maxStreams,
		closed: make(chan struct{}), looked: make(chan struct{}),
	}
}

// close ends every client at once and waits for the hub. It may be called once.
func (s *stream) close() {
	s.mu.Lock()
	close(s.closed)
	s.mu.Unlock()
	s.hub.Wait()
}

// enter counts a client in, and starts the hub for the first. It is false if there are too many.
func (s *stream) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.closed:
		return false
	default:
	}
	if s.clients >= s.limit {
		return false
	}
	s.clients++
	if !s.running {
		s.running = true
		s.latest = make([]update, len(s.parts))
		// Owns nothing; ends by itself within a second of the last client, or by close, which waits for it.
		s.hub.Go(s.run)
	}
	return true
}

func (s *stream) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients--
}

// run is the hub: it looks at the parts once for all clients, and only while there are any.
func (s *stream) run() {
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for s.lookOnce() {
		select {
		case <-tick.C:
		case <-s.closed:
			return
		}
	}
}

// lookOnce is false when nobody is there any more; the hub has ended then.
func (s *stream) lookOnce() bool {
	// Without the lock: parts have locks of their own.
	now := make([][]byte, len(s.parts))
	for i, p := range s.parts {
		now[i] = s.encode(p)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clients == 0 {
		s.running, s.latest, s.look = false, nil, 0 // the next client must not be shown what was true then
		return false
	}
	s.look++
	s.at = time.Now()
	for i := range s.latest {
		if now[i] != nil && !bytes.Equal(now[i], s.latest[i].data) {
			s.latest[i] = update{now[i], s.look}
		}
	}
	close(s.looked)
	s.looked = make(chan struct{})
	return true
}

// encode returns nil if the part cannot be shown: a fault of the page must never end the relay.
func (s *stream) encode(p Part) (data []byte) {
	defer func() {
		if fault := recover(); fault != nil {
			s.log.Error().Str("part", p.Name).Interface("error", fault).Msg("part of the status page failed")
			data = nil
		}
	}()
	data, err := json.Marshal(p.Get())
	if err != nil {
		s.log.Error().Str("part", p.Name).Err(err).Msg("part of the status page not encoded")
		return nil
	}
	return data
}

// since returns, as server-sent events, what changed after a look, the number of the last look, and what is closed at the next.
func (s *stream) since(look uint64) (events []byte, last uint64, next <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b bytes.Buffer
	for i, u := range s.latest {
		if u.look > look {
			fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", s.parts[i].Name, u.data)
		}
	}
	if s.look > look {
		// The page needs a sign of life even if nothing changes, and our clock for the ages it shows. It comes last: it also tells that
		// everything before it belongs together.
		fmt.Fprintf(&b, "event: tick\ndata: {\"at\":%q}\n\n", s.at.UTC().Format(time.RFC3339Nano))
	}
	return b.Bytes(), s.look, s.looked
}

// ServeHTTP streams until the client goes, is too slow, or the server ends.
func (s *stream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	head := w.Header()
	head.Set("Content-Type", "text/event-stream")
	head.Set("X-Accel-Buffering", "no") // a proxy that waits for more would show nothing
	head.Set("Vary", "Accept-Encoding")
	if r.Method == http.MethodHead {
		return
	}
	if !s.enter() {
		head.Set("Retry-After", "10")
		http.Error(w, fmt.Sprintf("%d pages are open already, or the server is stopping", s.limit), http.StatusServiceUnavailable)
		return
	}
	defer s.leave()

	out := &eventWriter{to: w, connection: http.NewResponseController(w), slow: s.slow}
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		head.Set("Content-Encoding", "gzip")
		out.packed = gzip.NewWriter(w)
		defer out.packed.Close()
	}
	if err := s.follow(r.Context(), out); err != nil {
		s.log.Debug().Err(err).Str("client", r.RemoteAddr).Msg("status page gave up a client")
	}
}

// follow returns nil when the client has gone or the server ends, else why nothing could be written.
func (s *stream) follow(gone context.Context, out *eventWriter) error {
	var look uint64
	for {
		events, last, next := s.since(look)
		look = last
		if err := out.send(events); err != nil {
			return err
		}
		select {
		case <-next:
		case <-gone.Done():
			return nil
		case <-s.closed:
			return nil
		}
	}
}

// eventWriter writes to one client, compressed if it can read that: an hour of samples shrinks to a quarter, what repeats to nothing.
type eventWriter struct {
	to         io.Writer
	packed     *gzip.Writer // nil: plain
	connection *http.ResponseController
	slow       time.Duration
}

func (e *eventWriter) send(events []byte) error {
	// It replaces the server's deadline, which is made for answers that end.
	if err := e.connection.SetWriteDeadline(time.Now().Add(e.slow)); err != nil {
		return err
	}
	if e.packed == nil {
		if _, err := e.to.Write(events); err != nil {
			return err
		}
		return e.connection.Flush()
	}
	if _, err := e.packed.Write(events); err != nil {
		return err
	}
	if err := e.packed.Flush(); err != nil {
		return err
	}
	return e.connection.Flush()
}
