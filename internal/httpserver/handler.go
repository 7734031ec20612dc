package httpserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"log"
	"net/http"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"
)

// maxScrapes bounds the scrapes at a time: each takes milliseconds, so more are a mistake.
const maxScrapes = 8

const index = `postrider

/         the status page, for browsers
/livez    200 while the process makes progress; depends on neither the database nor the broker
/readyz   200 while rows are relayed or this process stands by; 503 with a reason otherwise
/status   positions, slot, sink and a verdict, as JSON; for people: postrider status
/metrics  Prometheus metrics
`

// handler serves h. live is nil without parts.
func handler(h Handlers, live *stream, localOnly func(http.Handler) http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", localOnly(front(h)))
	if live != nil {
		mux.Handle("GET /api/stream", localOnly(live))
	}
	for _, p := range h.Parts {
		mux.Handle("GET /api/"+p.Name, localOnly(show(p.Get, h.Log)))
	}
	if h.Trace != nil {
		mux.Handle("GET /api/trace", localOnly(&search{find: h.Trace, log: h.Log}))
	}
	if h.Runbook != nil {
		mux.HandleFunc("GET /runbook/{section}", func(w http.ResponseWriter, r *http.Request) {
			writeRunbook(w, r, h.Runbook)
		})
	}
	mux.HandleFunc("GET /livez", probe(func() (string, error) { return "", h.Live() }, h.Log))
	mux.HandleFunc("GET /readyz", probe(h.Ready, h.Log))
	if h.Status != nil {
		mux.Handle("GET /status", localOnly(show(h.Status, h.Log)))
	}
	mux.Handle("GET /metrics", localOnly(promhttp.HandlerFor(h.Metrics, promhttp.HandlerOpts{
		ErrorLog:            log.New(errorLog{h.Log}, "", 0),
		ErrorHandling:       promhttp.ContinueOnError, // one broken series does not hide the others
		MaxRequestsInFlight: maxScrapes,
	})))
	return secured(mux)
}

// show answers with the JSON of what get returns.
func show(get func() any, logger zerolog.Logger) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, get(), logger) }
}

// front answers / with the page for browsers, and with the list of endpoints for curl.
func front(h Handlers) http.Handler {
	list := index
	if h.Runbook != nil {
		list += "/runbook/HEADING  a section of docs/RUNBOOKS.md; CHECK.md%23HEADING of " +
			"docs/CHECK.md\n"
	}
	if len(h.Parts) == 0 {
		return text(list)
	}
	var names []string
	for _, p := range h.Parts {
		names = append(names, p.Name)
	}
	list += "/api/NAME  a part of the status page, as JSON: " + strings.Join(names, ", ") + "\n" +
		"/api/stream  all of them, again whenever they change, as server-sent events\n"
	if h.Trace != nil {
		list += "/api/trace?id=ID  where an event is; one search at a time\n"
	}
	document := sync.OnceValue(func() page { return newPage(h.Runbook != nil, h.Trace != nil) })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if wantsHTML(r) {
			document().ServeHTTP(w, r)
			return
		}
		w.Header().Set("Vary", "Accept")
		writeText(w, list)
	})
}

// text answers with a fixed text.
func text(s string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { writeText(w, s) }
}

func writeText(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte(text)) // the client may be gone
}

// Probe is the answer of /livez and /readyz.
type Probe struct {
	OK     bool   `json:"ok"`
	State  string `json:"state,omitempty"`  // of /readyz if OK: streaming, snapshot or standby
	Reason string `json:"reason,omitempty"` // one word; empty if OK
	Detail string `json:"detail,omitempty"`
}

func probe(get func() (state string, err error), logger zerolog.Logger) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		state, err := get()
		if err == nil {
			writeJSON(w, http.StatusOK, Probe{OK: true, State: state}, logger)
			return
		}
		answer := Probe{Reason: "error", Detail: err.Error()}
		if r, ok := errors.AsType[*Reason](err); ok {
			answer.Reason, answer.Detail = r.Code, r.Text
		}
		writeJSON(w, http.StatusServiceUnavailable, answer, logger)
	}
}

func writeJSON(w http.ResponseWriter, code int, v any, logger zerolog.Logger) {
	// Into memory first: an error after the first byte could not change the code any more.
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		logger.Error().Err(err).Msg("status not encoded")
		http.Error(w, "the status cannot be encoded, see the log", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(b.Bytes()) // the client may be gone
}

// secured forbids browsers to store, frame, sniff or run the answers.
func secured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		head := w.Header()
		head.Set("Cache-Control", "no-store")
		head.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		head.Set("Referrer-Policy", "no-referrer")
		head.Set("X-Content-Type-Options", "nosniff")
		next.ServeHTTP(w, r)
	})
}
