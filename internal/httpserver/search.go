package httpserver

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

const (
	searchTimeout = 10 * time.Second       // less than writeTimeout
	searchRest    = 4                      // times the duration of a search are without another, and
	leastRest     = 500 * time.Millisecond // at least so long: one that is broken off is short
	longestID     = 200                    // bytes of an event id
)

// search answers searches for an event. Each takes connections to the database and the broker, and
// the page has no login: there is one at a time, and searches take a fifth of the time at most.
type search struct {
	find func(ctx context.Context, id string) (code int, answer any)
	log  zerolog.Logger

	mu   sync.Mutex // guards what follows
	busy bool
	next time.Time // no search begins before
}

func (s *search) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	refuse := func(code int, text string) {
		writeJSON(w, code, AdminError{Error: text}, s.log)
	}
	// A page of another site cannot read the answer, but could have a browser search all the time.
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" &&
		site != "none" {
		refuse(http.StatusForbidden, "a page of another site may not search")
		return
	}
	id := r.URL.Query().Get("id")
	if id == "" || len(id) > longestID {
		refuse(http.StatusBadRequest,
			fmt.Sprintf("send the id of an event, of at most %d bytes: /api/trace?id=ID", longestID))
		return
	}
	if wait := s.begin(time.Now()); wait > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(wait/time.Second)+1))
		refuse(http.StatusTooManyRequests,
			"another search is running or has just ended: there is one at a time; try again")
		return
	}
	began := time.Now()
	defer func() { s.end(began, time.Now()) }()
	ctx, cancel := context.WithTimeout(r.Context(), searchTimeout)
	defer cancel()
	code, answer := s.find(ctx, id)
	writeJSON(w, code, answer, s.log)
}

// begin reserves a search, or returns how long to wait for one, as far as is known.
func (s *search) begin(now time.Time) (wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.busy:
		return time.Second
	case now.Before(s.next):
		return s.next.Sub(now)
	}
	s.busy = true
	return 0
}

func (s *search) end(began, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy, s.next = false, now.Add(max(searchRest*now.Sub(began), leastRest))
}
