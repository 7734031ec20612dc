package httpserver

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
)

func TestSearch_OneAtATimeAndWithPausesBetween(t *testing.T) {
	running, finish := make(chan string), make(chan struct{})
	s := &search{log: zerolog.Nop(), find: func(ctx context.Context, id string) (int, any) {
		deadline, limited := ctx.Deadline()
		require.True(t, limited)
		require.LessOrEqual(t, time.Until(deadline), searchTimeout)
		running <- id
		<-finish
		return http.StatusOK, map[string]string{"id": id}
	}}
	get := func(path string, headers ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w
	}
	first := make(chan *httptest.ResponseRecorder)
	go func() { first <- get("/api/trace?id=a%2Bb", "Sec-Fetch-Site", "same-origin") }()
	require.Equal(t, "a+b", <-running)
	second := get("/api/trace?id=b")
	require.Equal(t, http.StatusTooManyRequests, second.Code)
	require.NotEmpty(t, second.Header().Get("Retry-After"))
	close(finish)
	require.Equal(t, http.StatusOK, (<-first).Code)

	now := time.Now()
	s.end(now.Add(-time.Second), now)
	require.Equal(t, searchRest*time.Second, s.begin(now))
	require.Equal(t, time.Millisecond, s.begin(now.Add(searchRest*time.Second-time.Millisecond)))
	require.Zero(t, s.begin(now.Add(searchRest*time.Second)))
	require.NotZero(t, s.begin(now.Add(time.Hour)), "it is running")
	s.end(now, now)
	require.Equal(t, leastRest, s.begin(now), "of one that took no time")

	require.Equal(t, http.StatusForbidden, get("/api/trace?id=a", "Sec-Fetch-Site", "cross-site").Code)
	require.Equal(t, http.StatusBadRequest, get("/api/trace").Code)
	require.Equal(t, http.StatusBadRequest, get("/api/trace?id="+strings.Repeat("x", longestID+1)).Code)
}
