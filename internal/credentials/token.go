package credentials

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"
)

// Errors of a login wrap one of these.
var (
	// ErrRefused is a decision of the provider: a person has to act.
	ErrRefused = errors.New("login refused")
	// ErrUnavailable is a provider that does not answer, or not sensibly: it may by itself.
	ErrUnavailable = errors.New("login provider unavailable")
)

// Error is a login that failed. Its text has no secret.
type Error struct {
	Class error  // ErrRefused or ErrUnavailable
	Text  string // what failed, and where
	Hint  string // what to do
	Err   error  // the cause, nil: none. It is not printed
}

func (e *Error) Error() string { return e.Text + "; " + e.Hint }

// Unwrap keeps the class and the cause in the chain.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Class}
	}
	return []error{e.Class, e.Err}
}

// Advice is what the user needs besides the text. The consequence for the WAL is not known here.
func (e *Error) Advice() (wal, fix string) { return "", e.Hint }

// refusal reports whether an HTTP status is a decision of the provider, and not its state.
func refusal(status int) bool {
	return status < http.StatusInternalServerError && status != http.StatusTooManyRequests &&
		status != http.StatusRequestTimeout
}

// Token is a bearer token.
type Token struct {
	Value   string
	Expires time.Time // by the clock of this machine; zero: not known
}

// form is how RFC 6750 writes a bearer token (b64token). Anything else, a line break above all,
// could end the message in which it is sent.
var form = regexp.MustCompile(`^[A-Za-z0-9._~+/-]+=*$`)

// largestToken is more than any provider makes; brokers refuse SASL messages beyond 512 KiB.
const largestToken = 64 << 10

// checkToken returns why a token cannot be one, without showing it.
func checkToken(value string) error {
	switch {
	case value == "":
		return errors.New("the token is empty")
	case len(value) > largestToken:
		return fmt.Errorf("the token has %d bytes, more than %d", len(value), largestToken)
	case !form.MatchString(value):
		return errors.New("the token has characters that no bearer token has (RFC 6750)")
	}
	return nil
}

// claims are those of a JSON Web Token that concern its lifetime, in seconds since 1970.
type claims struct {
	Expires  float64 `json:"exp"`
	IssuedAt float64 `json:"iat"`
}

// claimsOf reads them without a check of the signature, which is the broker's matter; false: the
// token is opaque.
func claimsOf(token string) (c claims, ok bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return c, false
	}
	body, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "="))
	if err != nil || json.Unmarshal(body, &c) != nil {
		return c, false
	}
	return c, true
}

// expiry is when a token ends that says so itself; zero: it does not.
func (c claims) expiry() time.Time {
	if c.Expires <= 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(c.Expires * 1000))
}

// leastLeft is how long a token lasts at least when it is used again. A Kafka broker accepts a
// renewed login on a connection once a second (KIP-368), and the client renews it a second before
// the token ends: with less left the connection would be closed.
const leastLeft = 3 * time.Second

// renewPause is how long a valid token is used after its renewal failed, before the next attempt:
// the provider may not answer at all, and each login would wait for it.
const renewPause = 5 * time.Second

// Source gives tokens, and asks for a new one when three quarters of the lifetime of the last have
// passed. It may be used from any goroutine. It has none of its own, and needs no Close.
type Source struct {
	fetch func(context.Context) (Token, error)
	turn  chan struct{} // one token: the right to read and write the fields below

	last    Token
	renewAt time.Time
}

// NewSource makes one. fetch is called by one goroutine at a time, and ends with its context.
func NewSource(fetch func(context.Context) (Token, error)) *Source {
	return &Source{fetch: fetch, turn: make(chan struct{}, 1)}
}

// Token returns a token. A token with an error is the last one, which is still valid: its renewal
// failed just now. It blocks for as long as a request to the provider takes, or until ctx ends: a
// ctx that also bounds the use of the token would leave no time for that.
func (s *Source) Token(ctx context.Context) (Token, error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return Token{}, context.Cause(ctx)
	}
	now := time.Now()
	if now.Before(s.renewAt) {
		return s.last, nil
	}
	t, err := s.fetch(ctx)
	if err == nil {
		s.last, s.renewAt = t, time.Time{} // a token whose end is not known is never reused
		if !t.Expires.IsZero() {
			left := t.Expires.Sub(now)
			s.renewAt = now.Add(min(left/4*3, left-leastLeft))
		}
		return t, nil
	}
	now = time.Now() // fetch may have taken long
	if left := s.last.Expires.Sub(now); left >= leastLeft {
		s.renewAt = now.Add(min(renewPause, left-leastLeft))
		return s.last, err
	}
	return Token{}, err
}
