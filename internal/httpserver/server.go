// Package httpserver serves metrics, probes, the status and the status page over HTTP. All of that
// is read-only. Requests that change the relay or read the process's profiles have a listener of
// their own, with a token: see NewAdmin.
//
//	server.go      Server: listening, serving, stopping
//	connections.go how many connections it keeps
//	handler.go     /metrics, /livez, /readyz, /status
//	page.go        the status page
//	stream.go      its data, as server-sent events
//	clients.go     a client of the stream
//	runbook.go     sections of docs as HTML
//	search.go      a search for an event
//	host.go        which Host headers are accepted
//	admin.go       the listener that changes the relay
//	guard.go       who may use that
//	config.go      the sections [http] and [admin]
package httpserver

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

// Limits for slow clients.
const (
	readTimeout     = 5 * time.Second
	writeTimeout    = 15 * time.Second
	idleTimeout     = time.Minute // longer than the usual scrape interval
	maxHeaderBytes  = 16 << 10
	shutdownTimeout = 2 * time.Second // for open requests when the process stops
)

// Handlers make the answers. They are called from many goroutines and must not block. Live, Ready
// and Metrics must be set.
type Handlers struct {
	// Live returns nil while the process itself makes progress. It must not depend on the database or
	// the broker, which a restart does not fix.
	Live func() error
	// Ready returns the state of a relay that relays or stands by, in one word, else an error; a
	// *Reason is passed on to the caller.
	Ready func() (state string, err error)
	// Status is the JSON of /status. nil: there is no /status.
	Status func() any
	// Parts are the parts of the page, each also at /api/NAME. nil: there is no page.
	Parts []Part
	// Runbook returns a section of docs by its name in the parts: "postriderslotlost",
	// "docs/CHECK.md#wal_level"; empty if there is none. nil: the page has no links to sections.
	Runbook func(section string) string
	// Trace looks for an event, and returns the status and the JSON of /api/trace. It may block until
	// ctx ends, and is not called while it runs. nil: the page has no search.
	Trace   func(ctx context.Context, id string) (code int, answer any)
	Metrics prometheus.Gatherer
	Log     zerolog.Logger
}

// Part is a part of the status page.
type Part struct {
	Name string     // "verdict" is at /api/verdict
	Get  func() any // of the JSON; called from many goroutines, must not block
}

// Reason is why a probe fails.
type Reason struct {
	Code string // one word in snake_case, from a small set
	Text string // one sentence for people
}

func (r *Reason) Error() string {
	if r.Text == "" {
		return r.Code
	}
	return r.Code + ": " + r.Text
}

// Errors of Listen.
var (
	ErrInUse      = errors.New("address is in use by another process")
	ErrPermission = errors.New("not permitted to listen on the address")
	ErrNoAddress  = errors.New("address does not belong to this machine")
)

// Server serves one Config, or one Admin. Listen, then Serve, which closes the socket.
type Server struct {
	config   Config
	key      string // of config.Listen, for errors: "http.listen"
	server   *http.Server
	log      zerolog.Logger
	live     *stream // nil without parts
	grace    time.Duration
	listener net.Listener // nil before Listen, and if there is no server

	connections *connections // the handler of server goes through its serving
}

// New makes a server that does not listen yet.
func New(c Config, h Handlers) *Server {
	s := newServer(c.Listen, "http.listen", h.Log)
	if len(h.Parts) > 0 {
		s.live = newStream(h.Parts, h.Log)
	}
	s.server.Handler = s.connections.serving(handler(h, s.live, s.localOnly))
	return s
}

func newServer(listen, key string, logger zerolog.Logger) *Server {
	server := &http.Server{
		ReadHeaderTimeout: readTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: log.New(errorLog{logger}, "", 0),
	}
	return &Server{
		config: Config{Listen: listen}, key: key, log: logger, server: server,
		grace:       shutdownTimeout,
		connections: limitConnections(server, logger),
	}
}

// Listen opens the socket, before the slot is touched. With an empty address it does nothing.
// Errors are ErrInUse, ErrPermission, ErrNoAddress, or the system's.
func (s *Server) Listen() error {
	if s.config.Listen == "" {
		return nil
	}
	l, err := net.Listen("tcp", s.config.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s (%s): %w", s.config.Listen, s.key, reason(err))
	}
	s.listener = l
	return nil
}

func reason(err error) error {
	_, lookup := errors.AsType[*net.DNSError](err)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return ErrInUse
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return ErrPermission
	case errors.Is(err, syscall.EADDRNOTAVAIL), lookup:
		return ErrNoAddress
	}
	return err
}

// Addr is the address of the server; nil: it does not listen.
func (s *Server) Addr() net.Addr {
	if s.listener == nil {
		return nil
	}
	return s.listener.Addr()
}

// Serve answers requests until ctx ends, then ends the streams of open pages at once, and other
// requests after two seconds at most. It blocks; when it returns, the socket is closed and no
// goroutine is left. Without a socket it waits for ctx. An error is that of a broken socket.
func (s *Server) Serve(ctx context.Context) error {
	if s.listener == nil {
		<-ctx.Done()
		return nil
	}
	// Runs the accept loop, ends by Shutdown below or by a broken socket; Serve waits for it.
	ended := make(chan error, 1)
	go func() { ended <- s.server.Serve(s.listener) }()
	var broken error
	select {
	case broken = <-ended:
	case <-ctx.Done():
	}
	if s.live != nil {
		s.live.close()
	}
	if broken != nil {
		return errors.Join(fmt.Errorf("serve http on %s: %w", s.config.Listen, broken),
			s.server.Close())
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.grace)
	defer cancel()
	if err := s.server.Shutdown(last); err != nil {
		s.log.Debug().Err(err).Msg("http requests cut off")
		_ = s.server.Close() // the connections are lost either way
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		s.log.Debug().Err(err).Msg("http listener broke while it was closed")
	}
	return nil
}

// errorLog logs net/http's messages: broken connections of clients, and panics of handlers.
type errorLog struct{ log zerolog.Logger }

func (l errorLog) Write(p []byte) (int, error) {
	l.log.Warn().Str("error", strings.TrimRight(string(p), "\r\n")).Msg("http request failed")
	return len(p), nil
}
