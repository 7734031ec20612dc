package httpserver

import (
	"compress/gzip"
	"errors"
	"fmt"
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

	var packed *gzip.Writer // nil: plain
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		// An hour of samples shrinks to a quarter, repeated events to nearly nothing.
		head.Set("Content-Encoding", "gzip")
		packed = gzip.NewWriter(w)
		defer packed.Close()
	}
	for version := uint64(0); ; {
		events, last, next := s.since(version)
		version = last
		if err := s.send(w, packed, events); err != nil {
			s.log.Debug().Err(err).Str("client", r.RemoteAddr).Msg("status page disconnected a client")
			return
		}
		select {
		case <-next:
		case <-r.Context().Done():
			return
		case <-s.closed:
			return
		}
	}
}

// send writes events to a client, at most for s.slow.
func (s *stream) send(w http.ResponseWriter, packed *gzip.Writer, events []byte) error {
	connection := http.NewResponseController(w)
	// This replaces the server's deadline, which is for answers that end.
	if err := connection.SetWriteDeadline(time.Now().Add(s.slow)); err != nil {
		return err
	}
	if packed == nil {
		if _, err := w.Write(events); err != nil {
			return err
		}
		return connection.Flush()
	}
	if _, err := packed.Write(events); err != nil {
		return err
	}
	return errors.Join(packed.Flush(), connection.Flush())
}
