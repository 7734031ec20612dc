package httpserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"time"
	"unicode/utf8"

	"github.com/rs/zerolog"

	"github.com/postrider/postrider/internal/secret"
)

const (
	maxAdminBody   = 4 << 10
	maxPauseReason = 200 // bytes: it is in logs, on the page and in notifications
	// DefaultPause is the length of a pause without one: a forgotten pause fills the database's disk.
	DefaultPause = time.Hour
)

// AdminHandlers execute the requests of the admin listener. They are called from many goroutines
// and must not block. All must be set.
type AdminHandlers struct {
	// State is the JSON of GET /state.
	State func() any
	// Pause and Resume return what the relay does now. A limit of zero is none. An error is why it
	// cannot pause.
	Pause  func(limit time.Duration, reason string) (any, error)
	Resume func() any
	// LogLevel returns the levels before and after. An error lists the levels.
	LogLevel func(level string) (any, error)
	Log      zerolog.Logger
}

// AdminError is the JSON of every refusal.
type AdminError struct {
	Error string `json:"error"`
	Next  string `json:"next,omitempty"` // what to send instead
}

// admin answers the requests of an admin listener.
type admin struct {
	AdminHandlers
	token      secret.Secret
	configured string // host of admin.listen
	refused    zerolog.BurstSampler
}

// NewAdmin makes a server for requests that change the relay or read its profiles. It does not
// listen yet.
func NewAdmin(c Admin, h AdminHandlers) *Server {
	s := newServer(c.Listen, "admin.listen", h.Log)
	a := &admin{
		AdminHandlers: h, token: c.Token,
		refused: zerolog.BurstSampler{Burst: 10, Period: time.Minute},
	}
	a.configured, _, _ = net.SplitHostPort(c.Listen)
	s.server.Handler = s.connections.serving(secured(a.guarded(a.mux())))
	return s
}

// Exposed reports whether other machines may reach the server. Call it after Listen.
func (s *Server) Exposed() bool {
	tcp, ok := s.Addr().(*net.TCPAddr)
	return ok && !tcp.IP.IsLoopback()
}

func (a *admin) mux() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", text(adminIndex))
	mux.HandleFunc("GET /state", show(a.State, a.Log))
	mux.HandleFunc("POST /pause", a.pause)
	mux.HandleFunc("POST /resume", a.resume)
	mux.HandleFunc("POST /log-level", a.logLevel)
	for path, handler := range map[string]http.HandlerFunc{
		"/debug/pprof/":        pprof.Index,
		"/debug/pprof/profile": pprof.Profile,
		"/debug/pprof/symbol":  pprof.Symbol,
		"/debug/pprof/trace":   pprof.Trace,
		// An argument may be a secret: --set postgres.url=...
		"/debug/pprof/cmdline": text("postrider"),
	} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			a.note(r, "profile").Str("path", r.URL.Path).Msg("admin request")
			handler(w, r)
		})
	}
	return mux
}

const adminIndex = `postrider, admin listener

GET  /state         the status, and figures of the process, as JSON
POST /pause         release the slot: {"for": "10m", "reason": "..."}; default 1h, "0s": no limit
POST /resume        end a pause
POST /log-level     {"level": "debug"}, until the next reload or restart
GET  /debug/pprof/  profiles of the process, for go tool pprof
`

func (a *admin) pause(w http.ResponseWriter, r *http.Request) {
	var request struct {
		For    *string `json:"for"`
		Reason string  `json:"reason"`
	}
	if !a.read(w, r, &request) {
		return
	}
	limit := DefaultPause
	if request.For != nil {
		var err error
		if limit, err = time.ParseDuration(*request.For); err != nil || limit < 0 {
			a.fail(w, http.StatusBadRequest, fmt.Sprintf("for is %q", *request.For),
				`send a duration such as "10m", or "0s" for no limit`)
			return
		}
	}
	if len(request.Reason) > maxPauseReason || !utf8.ValidString(request.Reason) {
		a.fail(w, http.StatusBadRequest,
			fmt.Sprintf("reason is too long, or is not text: at most %d bytes", maxPauseReason), "")
		return
	}
	answer, err := a.Pause(limit, request.Reason)
	a.note(r, "pause").Dur("for", limit).Str("reason", request.Reason).AnErr("refused", err).
		Msg("admin request")
	if err != nil {
		a.fail(w, http.StatusConflict, err.Error(), "")
		return
	}
	a.answer(w, http.StatusOK, answer)
}

func (a *admin) resume(w http.ResponseWriter, r *http.Request) {
	if !a.read(w, r, &struct{}{}) {
		return
	}
	a.note(r, "resume").Msg("admin request")
	a.answer(w, http.StatusOK, a.Resume())
}

func (a *admin) logLevel(w http.ResponseWriter, r *http.Request) {
	var request struct {
		Level string `json:"level"`
	}
	if !a.read(w, r, &request) {
		return
	}
	a.note(r, "log-level").Str("log_level", request.Level).Msg("admin request")
	answer, err := a.LogLevel(request.Level)
	if err != nil {
		a.fail(w, http.StatusBadRequest, err.Error(), `send {"level": "debug"}`)
		return
	}
	a.answer(w, http.StatusOK, answer)
}

// read decodes the JSON object of a request, which may be missing. false: it has answered with an
// error.
func (a *admin) read(w http.ResponseWriter, r *http.Request, into any) bool {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil {
		if _, err = d.Token(); !errors.Is(err, io.EOF) {
			err = errors.New("more than one JSON object")
		}
	}
	if errors.Is(err, io.EOF) {
		return true
	}
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		a.fail(w, http.StatusRequestEntityTooLarge,
			fmt.Sprintf("the request is larger than %d bytes", maxAdminBody), "")
		return false
	}
	a.fail(w, http.StatusBadRequest,
		"the request is not the JSON object that is expected: "+err.Error(),
		"GET / of this listener lists what can be sent")
	return false
}

func (a *admin) answer(w http.ResponseWriter, code int, v any) { writeJSON(w, code, v, a.Log) }

func (a *admin) fail(w http.ResponseWriter, code int, text, next string) {
	a.answer(w, code, AdminError{text, next})
}

// note begins the line of the log for a request.
func (a *admin) note(r *http.Request, action string) *zerolog.Event {
	return a.Log.Info().Str("action", action).Str("client", r.RemoteAddr)
}
