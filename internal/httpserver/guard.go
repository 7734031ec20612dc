package httpserver

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/rs/zerolog"
)

// guarded refuses requests without the token. It also refuses, with any token, what another site
// may make a browser send: requests under a foreign name of this machine (DNS rebinding), and
// cross-origin ones.
func (a *admin) guarded(next http.Handler) http.Handler {
	origin := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxAdminBody)
		if !isLocal(r.Host, a.configured) {
			a.refuse(w, r, http.StatusMisdirectedRequest, "host",
				"admin.listen is not known by this name",
				"use an address, localhost, or the host in admin.listen")
			return
		}
		if err := origin.Check(r); err != nil {
			a.refuse(w, r, http.StatusForbidden, "origin", "a page of another site may not do this",
				"postrider pause, postrider resume, or curl")
			return
		}
		switch valid, err := a.valid(r.Header.Get("Authorization")); {
		case err != nil:
			a.Log.Error().Err(err).Msg("admin token not read; every request is refused")
			a.refuse(w, r, http.StatusServiceUnavailable, "no_token",
				"the relay cannot read admin.token_file, its log says why", "")
		case !valid:
			w.Header().Set("WWW-Authenticate", `Bearer realm="postrider admin"`)
			a.refuse(w, r, http.StatusUnauthorized, "token", "the token is missing or wrong",
				"send the header Authorization: Bearer TOKEN, with the token that admin.token or the "+
					"file admin.token_file holds")
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// valid compares the token in constant time. It reads the token again each time: its file may be
// rotated.
func (a *admin) valid(authorization string) (bool, error) {
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

// refuse answers and logs, a few times a minute at most.
func (a *admin) refuse(w http.ResponseWriter, r *http.Request, code int,
	reason, text, next string) {
	if a.refused.Sample(zerolog.WarnLevel) {
		a.Log.Warn().Str("client", r.RemoteAddr).Str("reason", reason).Int("status", code).
			Str("method", r.Method).Str("path", r.URL.Path).Msg("admin request refused")
	}
	a.fail(w, code, text, next)
}
