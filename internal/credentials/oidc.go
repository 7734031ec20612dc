package credentials

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/postrider/postrider/internal/secret"
	"github.com/postrider/postrider/internal/tlsfiles"
)

// OIDC is a section [….oauth]: how a token is obtained from a token endpoint, or read from a file.
// The files are read again for each token.
type OIDC struct {
	TokenURL string `toml:"token_url"` // https://…; http for this machine only
	// client_credentials or jwt_bearer (RFC 7523); empty: client_credentials
	Grant        string        `toml:"grant"`
	ClientID     string        `toml:"client_id"`
	ClientSecret secret.Secret `toml:"client_secret"`
	// a JWT in place of the secret: with client_credentials it identifies the client, with
	// jwt_bearer it is the grant
	AssertionFile string `toml:"assertion_file"`
	Scope         string `toml:"scope"`    // separated by blanks; empty: the provider's default
	Audience      string `toml:"audience"` // as some providers require it; empty: none is sent
	CAFile        string `toml:"ca_file"`  // PEM; empty: the system's authorities
	// a token that something else renews in this file, in place of a token endpoint
	TokenFile string `toml:"token_file"`
}

// The values of Grant, beside empty.
const (
	GrantClientCredentials = "client_credentials"
	GrantJWTBearer         = "jwt_bearer"
)

// Grants are the accepted words.
var Grants = []string{GrantClientCredentials, GrantJWTBearer}

const (
	jwtBearerGrant  = "urn:ietf:params:oauth:grant-type:jwt-bearer"            // RFC 7523, 2.1
	clientAssertion = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer" // RFC 7523, 2.2
)

// IsSet reports whether any key of the section is given.
func (c OIDC) IsSet() bool { return c != OIDC{} }

// Validate reports every setting that cannot be, by its key in the section.
func (c OIDC) Validate(bad func(key, format string, args ...any)) {
	for _, file := range []struct{ key, path string }{{"assertion_file", c.AssertionFile},
		{"ca_file", c.CAFile}, {"token_file", c.TokenFile}} {
		if err := secret.CheckPath(file.path); err != nil {
			bad(file.key, "%v", err)
		}
	}
	if c.TokenFile != "" {
		if c != (OIDC{TokenFile: c.TokenFile}) {
			bad("token_file", "is a login of its own; remove it or the other keys of the section")
		}
		return
	}
	c.validateURL(bad)
	secrets := 0
	for _, given := range []bool{c.ClientSecret.IsSet(), c.AssertionFile != ""} {
		if given {
			secrets++
		}
	}
	switch c.Grant {
	case "", GrantClientCredentials:
		if c.ClientID == "" {
			bad("client_id", "is empty")
		}
		switch secrets {
		case 0:
			bad("client_secret", "is empty; give client_secret, client_secret_file or assertion_file")
		case 2:
			bad("assertion_file", "and client_secret are two logins; remove one")
		}
	case GrantJWTBearer:
		if c.AssertionFile == "" {
			bad("assertion_file", "is empty; grant = %q sends what is in it", c.Grant)
		}
	default:
		bad("grant", "%q is none of %s", c.Grant, strings.Join(Grants, ", "))
	}
}

func (c OIDC) validateURL(bad func(key, format string, args ...any)) {
	u, err := url.Parse(c.TokenURL)
	switch {
	case c.TokenURL == "":
		bad("token_url", "is empty; give the token endpoint of the provider, or token_file")
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		bad("token_url", "is not a URL like https://login.example.com/oauth2/token")
	case u.User != nil:
		bad("token_url", "contains a user; use client_id and client_secret")
	case u.Scheme == "http" && !Local(u.Hostname()):
		bad("token_url", "is http, which sends the secret in the clear; use https")
	}
}

// Local reports whether a connection to host stays on this machine.
func Local(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Fetch obtains a token. section is the name of the section, for errors. It blocks until the
// provider answers or ctx ends.
func (c OIDC) Fetch(ctx context.Context, section string) (Token, error) {
	if c.TokenFile != "" {
		return c.readToken(section)
	}
	return c.requestToken(ctx, section)
}

func (c OIDC) readToken(section string) (Token, error) {
	failed := func(format string, args ...any) (Token, error) {
		return Token{}, &Error{Class: ErrUnavailable,
			Text: fmt.Sprintf("token of %s.token_file: "+format, append([]any{section}, args...)...),
			Hint: "check that what renews the file runs, and that postrider may read it"}
	}
	value, err := secret.File(c.TokenFile).Reveal()
	if err != nil {
		return failed("%w", err)
	}
	if err := checkToken(value); err != nil {
		return failed("%s: %w", c.TokenFile, err)
	}
	t := Token{Value: value}
	if claims, ok := claimsOf(value); ok {
		t.Expires = claims.expiry()
	}
	if !t.Expires.IsZero() && time.Now().After(t.Expires) {
		return failed("the token in %s ended at %s", c.TokenFile, t.Expires.UTC().Format(time.RFC3339))
	}
	return t, nil
}

func (c OIDC) requestToken(ctx context.Context, section string) (Token, error) {
	request := clientcredentials.Config{ClientID: c.ClientID, TokenURL: c.TokenURL,
		EndpointParams: url.Values{}}
	var err error
	if request.ClientSecret, err = c.ClientSecret.Reveal(); err != nil {
		return Token{}, c.ours(fmt.Errorf("%s.client_secret: %w", section, err))
	}
	if request.ClientSecret == "" {
		request.AuthStyle = oauth2.AuthStyleInParams // else the client would stand in a header
	}
	if c.AssertionFile != "" {
		assertion, err := secret.File(c.AssertionFile).Reveal()
		if err != nil {
			return Token{}, c.ours(fmt.Errorf("%s.assertion_file: %w", section, err))
		}
		if c.Grant == GrantJWTBearer {
			request.EndpointParams.Set("grant_type", jwtBearerGrant)
			request.EndpointParams.Set("assertion", assertion)
		} else {
			request.EndpointParams.Set("client_assertion_type", clientAssertion)
			request.EndpointParams.Set("client_assertion", assertion)
		}
	}
	request.Scopes = strings.Fields(c.Scope)
	if c.Audience != "" {
		request.EndpointParams.Set("audience", c.Audience)
	}
	exchange, err := c.exchange(section)
	if err != nil {
		return Token{}, c.ours(err)
	}
	defer exchange.transport.CloseIdleConnections()
	before := time.Now()
	got, err := request.Token(context.WithValue(ctx, oauth2.HTTPClient,
		&http.Client{Transport: exchange, CheckRedirect: refuseRedirect}))
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return Token{}, c.failure(section, exchange, err)
	}
	return c.accept(section, exchange, before, got)
}

// accept checks a token. Its lifetime counts by the clock of this machine: the provider's may
// differ.
func (c OIDC) accept(section string, x *exchange, before time.Time, got *oauth2.Token) (Token,
	error) {
	if err := checkToken(got.AccessToken); err != nil {
		return Token{}, c.nonsense(section, err.Error())
	}
	if !strings.EqualFold(got.Type(), "Bearer") {
		return Token{}, c.nonsense(section, "the token is not of type Bearer")
	}
	t := Token{Value: got.AccessToken, Expires: got.Expiry}
	claims, isJWT := claimsOf(t.Value)
	switch {
	case !t.Expires.IsZero():
	case isJWT && claims.IssuedAt > 0 && claims.Expires > claims.IssuedAt:
		t.Expires = before.Add(time.Duration((claims.Expires - claims.IssuedAt) * float64(time.Second)))
	case isJWT:
		t.Expires = claims.expiry()
	}
	if !t.Expires.IsZero() && !time.Now().Before(t.Expires) {
		return Token{}, &Error{Class: ErrUnavailable, Text: c.what(section) +
			"the token has ended before it arrived" + x.clock(),
			Hint: "check the lifetime of tokens at the provider, and the clocks (chronyc tracking)"}
	}
	return t, nil
}

func (c OIDC) what(section string) string {
	return fmt.Sprintf("token from %s (%s): ", shownURL(c.TokenURL), section)
}

// shownURL is a URL without what may be secret.
func shownURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "the token endpoint"
	}
	return u.Scheme + "://" + u.Host + u.Path
}

// ours is a failure before anything was sent.
func (c OIDC) ours(err error) error {
	return &Error{Class: ErrRefused, Text: err.Error(),
		Hint: "check that the file is there and that postrider may read it", Err: err}
}

func (c OIDC) nonsense(section, text string) error {
	return &Error{Class: ErrUnavailable, Text: c.what(section) + text,
		Hint: "check " + section + ".token_url: it is the endpoint that issues tokens, not the issuer"}
}

// failure words the error of a request, which can hold the whole answer, and classifies it.
func (c OIDC) failure(section string, x *exchange, err error) error {
	e := &Error{Class: ErrUnavailable, Err: err}
	var answer *oauth2.RetrieveError
	var unverified *tls.CertificateVerificationError
	var network net.Error
	switch {
	case errors.As(err, &answer):
		return c.refusal(section, x, answer)
	case errors.As(err, &unverified):
		e.Text = c.what(section) + unverified.Error()
		e.Hint = "check " + section + ".ca_file"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		e.Text, e.Hint = c.what(section)+"no answer in time", "check that the provider is up"
	case x.status/100 == 2:
		return c.nonsense(section, "the answer is not a token in JSON, with access_token")
	default:
		e.Text = c.what(section) + cause(err)
		e.Hint = "check " + section + ".token_url, and that the provider is up"
	}
	return e
}

// refusal is an answer with an error of OAuth 2.0 (RFC 6749, 5.2), or with a status alone.
func (c OIDC) refusal(section string, x *exchange, answer *oauth2.RetrieveError) error {
	status := answer.Response.StatusCode
	text := c.what(section)
	if answer.ErrorCode != "" {
		text += plain(answer.ErrorCode)
		if d := plain(answer.ErrorDescription); d != "" {
			text += ": " + d
		}
	} else {
		text += "answered " + http.StatusText(status)
	}
	e := &Error{Class: ErrRefused, Text: fmt.Sprintf("%s (%d)%s", text, status, x.clock())}
	switch {
	case !refusal(status):
		e.Class, e.Hint = ErrUnavailable, "check that the provider is up"
	case answer.ErrorCode == "invalid_scope":
		e.Hint = "check " + section + ".scope"
	case answer.ErrorCode == "invalid_grant", c.AssertionFile != "":
		e.Hint = "check " + section + ".client_id, and that " + section + ".assertion_file is renewed " +
			"and meant for this provider (claims iss, sub and aud)"
	case answer.ErrorCode == "invalid_client" || status == http.StatusUnauthorized:
		e.Hint = "check " + section + ".client_id and client_secret"
	case status/100 == 3 || status == http.StatusNotFound || status == http.StatusMethodNotAllowed:
		e.Hint = "check " + section + ".token_url"
	default:
		e.Hint = "check " + section + " against the client that is registered at the provider"
	}
	return e
}

// plain is text of a provider for one log line. Its length is bounded.
func plain(s string) string {
	s = strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)), " ")
	const most = 200
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strings.ToValidUTF8(s, "?")
}

// cause is the innermost text of a failed request, without method and URL.
func cause(err error) string {
	var failed *url.Error
	if errors.As(err, &failed) {
		err = failed.Err
	}
	return plain(err.Error())
}

func refuseRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// exchange sends one request for a token and remembers what the answer says beside the token.
type exchange struct {
	transport *http.Transport
	status    int       // of the last answer
	date      time.Time // by the provider's clock; zero: not given
}

// largestAnswer is more than any token with what surrounds it.
const largestAnswer = 1 << 20

func (c OIDC) exchange(section string) (*exchange, error) {
	config, err := tlsfiles.Files{CA: c.CAFile}.Client(section)
	if err != nil {
		return nil, err
	}
	return &exchange{transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, DisableKeepAlives: true,
	}}, nil
}

// RoundTrip implements http.RoundTripper.
func (x *exchange) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := x.transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	x.status = answer.StatusCode
	x.date, _ = http.ParseTime(answer.Header.Get("Date"))
	answer.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(answer.Body, largestAnswer), answer.Body}
	return answer, nil
}

// clockTolerance is more than a request takes, and less than what providers and brokers accept.
const clockTolerance = 30 * time.Second

// clock says by how much the clock of this machine and the provider's differ; empty: not by much.
func (x *exchange) clock() string {
	if x.date.IsZero() {
		return ""
	}
	off := time.Until(x.date).Round(time.Second)
	switch {
	case off > clockTolerance:
		return fmt.Sprintf("; the clock of this machine is %s behind the provider's", off)
	case off < -clockTolerance:
		return fmt.Sprintf("; the clock of this machine is %s ahead of the provider's", -off)
	}
	return ""
}
