package httpserver

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rs/zerolog"

	"github.com/postrider/postrider/internal/secret"
)

const (
	maxAdminBody   = 4 << 10
	maxPauseReason = 200 // bytes: it stands in logs, on the page and in notifications
	// DefaultPause is how long a pause lasts if nobody says for how long: one that is forgotten fills the database's disk.
	DefaultPause = time.Hour
)

// AdminHandlers are who does what the admin listener is asked for. They are called from many goroutines and must not block. All must be
// set.
type AdminHandlers struct {
	// State is what GET /state shows, as JSON.
	State func() any
	// Pause and Resume answer with what the relay does now. A limit of zero is none. An error says why it cannot be.
	Pause  func(limit time.Duration, reason string) (any, error)
	Resume func() any
	// LogLevel answers with the level that was and the one that is. An error says which there are.
	LogLevel func(level string) (any, error)
	Log      zerolog.Logger
}

// AdminError is the JSON of every answer that is not what was asked for.
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

// NewAdmin makes a server for what changes the relay or looks inside it. It does not listen yet.
func NewAdmin(c Admin, h AdminHandlers) *Server {
	s := newServer(c.Listen, "admin.listen", h.Log)
	a := &admin{AdminHandlers: h, token: c.Token, refused: zerolog.BurstSampler{Burst: 10, Period: time.Minute}}
	a.configured, _, _ = net.SplitHostPort(c.Listen)
	s.server.Handler = secured(a.guarded(a.mux()))
	return s
}

// Exposed tells whether the server listens where other machines may reach it. Call it after Listen.
func (s *Server) Exposed() bool {
	tcp, ok := s.Addr().(*net.TCPAddr)
	return ok && !tcp.IP.IsLoopback()
}

func (a *admin) mux() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { writeText(w, adminIndex) })
	mux.HandleFunc("GET /state", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, a.State(), a.Log) })
	mux.HandleFunc("POST /pause", a.pause)
	mux.HandleFunc("POST /resume", a.resume)
	mux.HandleFunc("POST /log-level", a.logLevel)
	for path, handler := range map[string]http.HandlerFunc{
		"/debug/pprof/":        pprof.Index,
		"/debug/pprof/profile": pprof.Profile,
		"/debug/pprof/symbol":  pprof.Symbol,
		"/debug/pprof/trace":   pprof.Trace,
		// An argument may be a secret: --set postgres.url=...
		"/debug/pprof/cmdline": func(w http.ResponseWriter, _ *http.Request) { writeText(w, "postrider") },
	} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			a.note(r, "profile").Str("path", r.URL.Path).Msg("admin asked")
			handler(w, r)
		})
	}
	return mux
}

const adminIndex = `postrider, admin listener

GET  /state         the status, and figures of the process, as JSON
POST /pause         let go of the slot: {"for": "10m", "reason": "..."}; without for an hour, "0s" without a limit
POST /resume        end a pause
POST /log-level     {"level": "debug"}, until the next reload or restart
GET  /debug/pprof/  profiles of the process, for go tool pprof
`

// guarded lets nobody through but who knows the token. A browser does not, but may be made to send what it does know: so requests under a
// foreign name of this machine (DNS rebinding), and those that another site caused, are refused whatever they carry.
func (a *admin) guarded(next http.Handler) http.Handler {
	origin := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxAdminBody)
		if !isLocal(r.Host, a.configured) {
			a.refuse(w, r, http.StatusMisdirectedRequest, "host", AdminError{"admin.listen is not known by this name", "ask for an address, for localhost, or for the host in admin.listen"})
			return
		}
		if err := origin.Check(r); err != nil {
			a.refuse(w, r, http.StatusForbidden, "origin", AdminError{"a page of another site may not do this", "postrider pause, postrider resume, or curl"})
			return
		}
		known, err := a.knows(r.Header.Get("Authorization"))
		if err != nil {
			a.Log.Error().Err(err).Msg("admin token not read; every request is refused")
			a.refuse(w, r, http.StatusServiceUnavailable, "no_token", AdminError{"the relay cannot read admin.token_file, its log says why", ""})
			return
		}
		if !known {
			w.Header().Set("WWW-Authenticate", `Bearer realm="postrider admin"`)
			a.refuse(w, r, http.StatusUnauthorized, "token", AdminError{"the token is missing or wrong", "send the header Authorization: Bearer TOKEN, with the token that admin.token or the file admin.token_file holds"})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// knows compares in constant time. The token is read anew, so that the one in a file can be replaced without a restart.
func (a *admin) knows(authorization string) (bool, error) {
	token, err := a.token.Reveal()
	if err != nil {
		return false, err
	}
	scheme, given, _ := strings.Cut(authorization, " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return false, nil
	}
	want, got := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(strings.TrimSpace(given)))
	return subtle.ConstantTimeCompare(want[:], got[:]) == 1, nil
}

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
			a.answer(w, http.StatusBadRequest, AdminError{fmt.Sprintf("for is %q", *request.For), `send a duration such as "10m", or "0s" for no limit`})
			return
		}
	}
	if len(request.Reason) > maxPauseReason || !utf8.ValidString(request.Reason) {
		a.answer(w, http.StatusBadRequest, AdminError{fmt.Sprintf("reason is too long, or is not text: at most %d bytes", maxPauseReason), ""})
		return
	}
	line := a.note(r, "pause").Dur("for", limit).Str("reason", request.Reason)
	answer, err := a.Pause(limit, request.Reason)
	if err != nil {
		line.AnErr("refused", err).Msg("admin asked")
		a.answer(w, http.StatusConflict, AdminError{err.Error(), ""})
		return
	}
	line.Msg("admin asked")
	a.answer(w, http.StatusOK, answer)
}

func (a *admin) resume(w http.ResponseWriter, r *http.Request) {
	if !a.read(w, r, &struct{}{}) {
		return
	}
	a.note(r, "resume").Msg("admin asked")
	a.answer(w, http.StatusOK, a.Resume())
}

func (a *admin) logLevel(w http.ResponseWriter, r *http.Request) {
	var request struct {
		Level string `json:"level"`
	}
	if !a.read(w, r, &request) {
		return
	}
	a.note(r, "log-level").Str("log_level", request.Level).Msg("admin asked")
	answer, err := a.LogLevel(request.Level)
	if err != nil {
		a.answer(w, http.StatusBadRequest, AdminError{err.Error(), `send {"level": "debug"}`})
		return
	}
	a.answer(w, http.StatusOK, answer)
}

// read takes the JSON object of a request, which may be missing, and answers if there is something wrong with it.
func (a *admin) read(w http.ResponseWriter, r *http.Request, into any) bool {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil {
		if _, more := d.Token(); errors.Is(more, io.EOF) {
			return true
		}
		err = errors.New("more than one JSON object")
	}
	if errors.Is(err, io.EOF) {
		return true
	}
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		a.answer(w, http.StatusRequestEntityTooLarge, AdminError{fmt.Sprintf("the request is larger than %d bytes", maxAdminBody), ""})
		return false
	}
	a.answer(w, http.StatusBadRequest, AdminError{"the request is not the JSON object that is expected: " + err.Error(), "GET / of this listener lists what can be sent"})
	return false
}

func (a *admin) answer(w http.ResponseWriter, code int, v any) { writeJSON(w, code, v, a.Log) }

// refuse keeps the log from being filled by somebody who tries tokens.
func (a *admin) refuse(w http.ResponseWriter, r *http.Request, code int, reason string, e AdminError) {
	if a.refused.Sample(zerolog.WarnLevel) {
		a.Log.Warn().Str("client", r.RemoteAddr).Str("reason", reason).Int("status", code).Str("method", r.Method).Str("path", r.URL.Path).
			Msg("admin request refused")
	}
	a.answer(w, code, e)
}

// note begins the line of the log that says who did what.
func (a *admin) note(r *http.Request, action string) *zerolog.Event {
	return a.Log.Info().Str("action", action).Str("client", r.RemoteAddr)
}

// ShortToken is the least length of a token that is not warned of, in bytes.
const ShortToken = 16
