// Package httpserver answers metrics, probes, the status and the status page over HTTP. Everything it serves there is read-only; what changes
// the relay, or looks inside the process, has a listener of its own, and a token: see NewAdmin.
//
//	server.go  Server: listening and ending
//	handler.go /metrics, /livez, /readyz, /status
//	page.go    the status page
//	stream.go  its data, as server-sent events
//	runbook.go pages of docs as HTML
//	host.go    which Host headers are answered
//	admin.go   the listener that changes the relay
//	config.go  the section [http]
package httpserver

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

// A client that is slow, or gone, must not hold a connection for longer than this.
const (
	readTimeout     = 5 * time.Second
	writeTimeout    = 15 * time.Second
	idleTimeout     = time.Minute // longer than the usual scrape interval: a scraper keeps its connection
	maxHeaderBytes  = 16 << 10
	shutdownTimeout = 2 * time.Second // for the requests that are being answered when the process stops
)

// Handlers are the questions the server answers and who answers them. They are called from many goroutines and must not
// block. Live, Ready and Metrics must be set; without Status there is no /status.
type Handlers struct {
	// Live is nil while the process makes progress of its own. It must not depend on the database or the broker:
	// a restart would not heal them.
	Live func() error
	// Ready returns in one word what the relay does, while that is its work, or standing by for it. Otherwise the error says why not; a
	// *Reason is passed on to the caller.
	Ready func() (state string, err error)
	// Status is what /status shows, as JSON.
	Status func() any
	// Parts are what the page shows, each with a JSON twin at /api/NAME. Without them there is no page.
	Parts []Part
	// Runbook returns the section of a page of docs, given as the JSON of the parts names it: "postriderslotlost", "docs/CHECK.md#wal_level".
	// Empty if there is none. Without it the page names sections and links to none.
	Runbook func(section string) string
	Metrics prometheus.Gatherer
	Log     zerolog.Logger
}

// Part is one of the ten parts of the status page.
type Part struct {
	Name string // of its JSON twin: "verdict" is /api/verdict
	// Get returns what stands in the JSON. It is called from many goroutines and must not block.
	Get func() any
}

// Reason says in one word, and in one sentence, why a probe fails.
type Reason struct {
	Code string // for machines: snake_case, from a small set
	Text string // for people
}

func (r *Reason) Error() string {
	if r.Text == "" {
		return r.Code
	}
	return r.Code + ": " + r.Text
}

// Why an address cannot be listened on.
var (
	ErrInUse      = errors.New("address is in use by another process")
	ErrPermission = errors.New("not permitted to listen on the address")
	ErrNoAddress  = errors.New("address does not belong to this machine")
)

// Server serves one Config, or one Admin. Listen, then Serve; or Listen, then Close.
type Server struct {
	config   Config
	key      string // of config.Listen, for errors: "http.listen"
	server   *http.Server
	log      zerolog.Logger
	live     *stream      // nil without parts
	listener net.Listener // nil before Listen, and if there is no server
}

// New makes a server that does not listen yet.
func New(c Config, h Handlers) *Server {
	s := newServer(c.Listen, "http.listen", h.Log)
	if len(h.Parts) > 0 {
		s.live = newStream(h.Parts, h.Log)
	}
	s.server.Handler = handler(h, s.live, s.localOnly)
	return s
}

func newServer(listen, key string, logger zerolog.Logger) *Server {
	return &Server{
		config: Config{Listen: listen},
		key:    key,
		log:    logger,
		server: &http.Server{
			ReadHeaderTimeout: readTimeout,
			ReadTimeout:       readTimeout,
			WriteTimeout:      writeTimeout,
			IdleTimeout:       idleTimeout,
			MaxHeaderBytes:    maxHeaderBytes,
			ErrorLog:          log.New(errorLog{logger}, "", 0),
		},
	}
}

// Listen opens the socket, so that a wrong address ends the start before the slot is touched. With an empty address it does
// nothing. Errors are ErrInUse, ErrPermission, ErrNoAddress, or the system's.
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
	var lookup *net.DNSError
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return ErrInUse
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return ErrPermission
	case errors.Is(err, syscall.EADDRNOTAVAIL), errors.As(err, &lookup):
		return ErrNoAddress
	}
	return err
}

// Addr is where the server listens, nil if it does not.
func (s *Server) Addr() net.Addr {
	if s.listener == nil {
		return nil
	}
	return s.listener.Addr()
}

// Serve answers requests until ctx ends, then lets those that are being answered finish, for two seconds at most; open pages are ended
// at once.
// It blocks; when it returns, the socket is closed and no goroutine is left. Without a socket it only waits for ctx.
// An error means that the socket broke.
func (s *Server) Serve(ctx context.Context) error {
	if s.listener == nil {
		<-ctx.Done()
		return nil
	}
	// Started here, owns the accept loop, ends by Shutdown below or by a broken socket; this function waits for it.
	ended := make(chan error, 1)
	go func() { ended <- s.server.Serve(s.listener) }()
	endPages := func() {
		if s.live != nil {
			s.live.close()
		}
	}

	select {
	case err := <-ended:
		endPages()
		return errors.Join(fmt.Errorf("serve http on %s: %w", s.config.Listen, err), s.server.Close())
	case <-ctx.Done():
	}
	endPages()
	// ctx has ended: the last answers need a context of their own.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := s.server.Shutdown(last); err != nil {
		s.log.Debug().Err(err).Msg("http requests cut off")
		_ = s.server.Close() // connections that would not finish; there is nothing to do about an error
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		s.log.Debug().Err(err).Msg("http listener broke while it was closed")
	}
	return nil
}

// Close gives the socket up when Serve will not be called. It is harmless without Listen.
func (s *Server) Close() error {
	if s.listener == nil {
		return nil
	}
	return s.listener.Close()
}

// errorLog takes net/http's own messages: broken connections of clients, and panics of handlers.
type errorLog struct{ log zerolog.Logger }

func (l errorLog) Write(p []byte) (int, error) {
	l.log.Warn().Str("error", trim(p)).Msg("http request failed")
	return len(p), nil
}

func trim(p []byte) string {
	for len(p) > 0 && (p[len(p)-1] == '\n' || p[len(p)-1] == '\r') {
		p = p[:len(p)-1]
	}
	return string(p)
}
