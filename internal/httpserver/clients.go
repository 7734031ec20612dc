package httpserver

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// ServeHTTP streams until the client disconnects, is too slow, or the server ends.
func (s *stream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	head := w.Header()
	head.Set("Content-Type", "text/event-stream")
	head.Set("X-Accel-Buffering", "no") // for proxies
	head.Set("Vary", "Accept-Encoding")
	if r.Method == http.MethodHead {
		return
	}
	if !s.enter() {
		head.Set("Retry-After", "10")
		http.Error(w, fmt.Sprintf("%d pages are open already, or the server is stopping", s.limit),
			http.StatusServiceUnavailable)
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

// follow returns nil when the client disconnects or the server ends, else the error of a write.
func (s *stream) follow(gone context.Context, out *eventWriter) error {
	var version uint64
	for {
		events, last, next := s.since(version)
		version = last
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

// eventWriter writes to one client, compressed if it accepts that: an hour of samples shrinks to a
// quarter, repeated events to nearly nothing.
type eventWriter struct {
	to         io.Writer
	packed     *gzip.Writer // nil: plain
	connection *http.ResponseController
	slow       time.Duration
}

func (e *eventWriter) send(events []byte) error {
	// This replaces the server's deadline, which is for answers that end.
	if err := e.connection.SetWriteDeadline(time.Now().Add(e.slow)); err != nil {
		return err
	}
	var err error
	if e.packed == nil {
		_, err = e.to.Write(events)
	} else if _, err = e.packed.Write(events); err == nil {
		err = e.packed.Flush()
	}
	if err != nil {
		return err
	}
	return e.connection.Flush()
}
