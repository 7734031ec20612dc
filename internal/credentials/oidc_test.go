package credentials_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/credentials"
	"github.com/postrider/postrider/internal/secret"
	"github.com/postrider/postrider/test/parts"
)

const section = "sink.kafka.sasl.oauth"

const patience = 30 * time.Second

func withSecret(o *parts.OIDC) credentials.OIDC {
	return credentials.OIDC{TokenURL: o.TokenURL(), ClientID: parts.OIDCClient,
		ClientSecret: secret.Of(parts.OIDCSecret)}
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestOIDC_SendsWhatTheGrantRequires(t *testing.T) {
	o := parts.NewOIDC(t, time.Hour)
	assertion := file(t, "eyJ.assertion.one\n")
	for name, tt := range map[string]struct {
		login credentials.OIDC
		want  map[string]string
	}{
		"secret": {
			credentials.OIDC{ClientID: parts.OIDCClient, ClientSecret: secret.Of(parts.OIDCSecret),
				Scope: "a  b", Audience: "https://kafka.example"},
			map[string]string{"grant_type": "client_credentials", "client_id": parts.OIDCClient,
				"client_secret": parts.OIDCSecret, "scope": "a b", "audience": "https://kafka.example"},
		},
		"assertion in place of the secret": {
			credentials.OIDC{ClientID: parts.OIDCClient, AssertionFile: assertion},
			map[string]string{"grant_type": "client_credentials", "client_id": parts.OIDCClient,
				"client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
				"client_assertion":      "eyJ.assertion.one", "client_secret": "", "scope": ""},
		},
		"assertion as the grant": {
			credentials.OIDC{Grant: "jwt_bearer", AssertionFile: assertion},
			map[string]string{"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
				"assertion": "eyJ.assertion.one", "client_assertion": ""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tt.login.TokenURL = o.TokenURL()
			begin := time.Now()
			token, err := tt.login.Fetch(parts.Within(t, patience), section)
			require.NoError(t, err)
			require.NotEmpty(t, token.Value)
			require.WithinRange(t, token.Expires, begin.Add(time.Hour-time.Second),
				time.Now().Add(time.Hour))
			forms := o.Forms()
			for key, value := range tt.want {
				require.Equal(t, value, forms[len(forms)-1].Get(key), key)
			}
		})
	}
}

func TestOIDC_ReadsAssertionsAndTokensAgain(t *testing.T) {
	o := parts.NewOIDC(t, time.Hour)
	path := file(t, "eyJ.assertion.one")
	login := credentials.OIDC{TokenURL: o.TokenURL(), ClientID: "c", AssertionFile: path}
	_, err := login.Fetch(parts.Within(t, patience), section)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, []byte("eyJ.assertion.two"), 0o600))
	_, err = login.Fetch(parts.Within(t, patience), section)
	require.NoError(t, err)
	require.Equal(t, "eyJ.assertion.two", o.Forms()[1].Get("client_assertion"))

	first, second := o.Token(time.Hour), o.Token(2*time.Hour)
	path = file(t, first+"\n")
	login = credentials.OIDC{TokenFile: path}
	token, err := login.Fetch(t.Context(), section)
	require.NoError(t, err)
	require.Equal(t, first, token.Value)
	require.WithinDuration(t, time.Now().Add(time.Hour), token.Expires, time.Minute)
	require.NoError(t, os.WriteFile(path, []byte(second), 0o600))
	token, err = login.Fetch(t.Context(), section)
	require.NoError(t, err)
	require.Equal(t, second, token.Value)

	require.NoError(t, os.WriteFile(path, []byte(o.Token(-time.Hour)), 0o600))
	_, err = login.Fetch(t.Context(), section)
	require.ErrorIs(t, err, credentials.ErrUnavailable)
	require.ErrorContains(t, err, "ended at")
}

func TestOIDC_AuthoritiesAreThoseOfTheFile(t *testing.T) {
	a := parts.NewAuthority(t)
	o := parts.NewSecureOIDC(t, a, time.Hour)
	login := withSecret(o)
	login.CAFile = a.CAFile()
	_, err := login.Fetch(parts.Within(t, patience), section)
	require.NoError(t, err)
	login.CAFile = parts.NewAuthority(t).CAFile()
	_, err = login.Fetch(parts.Within(t, patience), section)
	require.ErrorIs(t, err, credentials.ErrUnavailable)
	require.ErrorContains(t, err, "check sink.kafka.sasl.oauth.ca_file")
}

// Refused needs a person; everything else may pass.
func TestOIDC_ClassifiesFailures(t *testing.T) {
	o := parts.NewOIDC(t, time.Hour)
	html := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(status)
			_, _ = w.Write([]byte("<html>canary</html>"))
		}
	}
	answers := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) }
	}
	for name, tt := range map[string]struct {
		answer http.HandlerFunc
		class  error
		text   string
	}{
		"down":       {html(503), credentials.ErrUnavailable, "Service Unavailable (503)"},
		"busy":       {html(429), credentials.ErrUnavailable, "Too Many Requests (429)"},
		"not there":  {html(404), credentials.ErrRefused, "Not Found (404); check sink.kafka.sasl.oauth.token_url"},
		"page":       {html(200), credentials.ErrUnavailable, "not a token in JSON"},
		"nothing":    {answers(""), credentials.ErrUnavailable, "not a token in JSON"},
		"no token":   {answers(`{"token_type":"Bearer"}`), credentials.ErrUnavailable, "not a token in JSON"},
		"a MAC":      {answers(`{"access_token":"canary","token_type":"mac"}`), credentials.ErrUnavailable, "not of type Bearer"},
		"line break": {answers(`{"access_token":"canary\nx","token_type":"Bearer"}`), credentials.ErrUnavailable, "characters"},
		"ended":      {answers(`{"access_token":"canary","token_type":"Bearer","expires_in":-5}`), credentials.ErrUnavailable, "has ended before it arrived"},
		"endless":    {answers(`{"access_token":"` + string(make([]byte, 2<<20))), credentials.ErrUnavailable, "not a token in JSON"},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://elsewhere.invalid/token", http.StatusTemporaryRedirect)
		}, credentials.ErrRefused, "Temporary Redirect (307)"},
		"cut": {func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			require.NoError(t, err)
			_ = conn.Close()
		}, credentials.ErrUnavailable, "EOF"},
		"refused with a wrong clock": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Date", time.Now().Add(10*time.Minute+500*time.Millisecond).UTC().Format(http.TimeFormat))
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(`{"error":"invalid_grant","error_description":"assertion is not valid yet"}`))
		}, credentials.ErrRefused, "s behind the provider's"},
	} {
		t.Run(name, func(t *testing.T) {
			o.Answer(tt.answer)
			_, err := withSecret(o).Fetch(parts.Within(t, patience), section)
			t.Log(err)
			require.ErrorIs(t, err, tt.class)
			require.ErrorContains(t, err, tt.text)
			require.NotContains(t, err.Error(), "canary")
		})
	}
}

func TestOIDC_ValidateNamesTheKey(t *testing.T) {
	good := credentials.OIDC{TokenURL: "https://login.example.com/token", ClientID: "c",
		ClientSecret: secret.Of("s")}
	for key, spoil := range map[string]func(*credentials.OIDC){
		"token_url":      func(c *credentials.OIDC) { c.TokenURL = "http://login.example.com/token" },
		"client_id":      func(c *credentials.OIDC) { c.ClientID = "" },
		"client_secret":  func(c *credentials.OIDC) { c.ClientSecret = secret.Secret{} },
		"assertion_file": func(c *credentials.OIDC) { c.AssertionFile = "token" },
		"grant":          func(c *credentials.OIDC) { c.Grant = "password" },
		"ca_file":        func(c *credentials.OIDC) { c.CAFile = "-----BEGIN CERTIFICATE-----" },
		"token_file":     func(c *credentials.OIDC) { c.TokenFile = "token" },
	} {
		c := good
		var keys []string
		record := func(key, _ string, _ ...any) { keys = append(keys, key) }
		c.Validate(record)
		require.Empty(t, keys)
		spoil(&c)
		c.Validate(record)
		require.Equal(t, []string{key}, keys)
	}
}

// provider counts requests, and fails while failure is set.
type provider struct {
	lifetime time.Duration
	requests int
	failure  error
}

func (p *provider) fetch(context.Context) (credentials.Token, error) {
	p.requests++
	return credentials.Token{Value: "t", Expires: time.Now().Add(p.lifetime)}, p.failure
}

func TestSource_RenewsBeforeTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &provider{lifetime: time.Hour}
		s := credentials.NewSource(p.fetch)
		get := func() (credentials.Token, error) { return s.Token(t.Context()) }
		for range 2 {
			token, err := get()
			require.NoError(t, err)
			require.Equal(t, "t", token.Value)
		}
		require.Equal(t, 1, p.requests, "one token serves several logins")
		time.Sleep(45 * time.Minute)
		_, err := get()
		require.NoError(t, err)
		require.Equal(t, 2, p.requests)

		// The provider goes away: the last token serves until it is too short.
		p.failure = errors.New("away")
		time.Sleep(59 * time.Minute)
		token, err := get()
		require.ErrorIs(t, err, p.failure)
		require.Equal(t, "t", token.Value)
		time.Sleep(time.Minute - 2*time.Second)
		token, err = get()
		require.ErrorIs(t, err, p.failure)
		require.Empty(t, token.Value)
		p.failure = nil
		token, err = get()
		require.NoError(t, err)
		require.NotEmpty(t, token.Value)
	})
}

// A provider may answer nothing until the context ends: not each login waits for that.
func TestSource_PausesAfterARenewalThatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &provider{lifetime: time.Minute}
		s := credentials.NewSource(p.fetch)
		_, err := s.Token(t.Context())
		require.NoError(t, err)
		time.Sleep(45 * time.Second)
		p.failure = errors.New("away")
		_, err = s.Token(t.Context())
		require.ErrorIs(t, err, p.failure)
		for range 3 {
			token, err := s.Token(t.Context())
			require.NoError(t, err)
			require.NotEmpty(t, token.Value)
		}
		require.Equal(t, 2, p.requests)
		for until := time.Now().Add(11 * time.Second); time.Now().Before(until); time.Sleep(time.Second) {
			token, _ := s.Token(t.Context())
			require.GreaterOrEqual(t, time.Until(token.Expires), 3*time.Second)
		}
		require.Equal(t, 4, p.requests)
		time.Sleep(time.Second) // three seconds are left, and no pause is longer than the token
		p.failure = nil
		token, err := s.Token(t.Context())
		require.NoError(t, err)
		require.Equal(t, time.Minute, time.Until(token.Expires))
	})
}

// A broker takes a renewed login once a second, and the client renews a second before the end.
func TestSource_ReusesNoTokenThatIsAboutToEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &provider{lifetime: 10 * time.Second}
		s := credentials.NewSource(p.fetch)
		_, err := s.Token(t.Context())
		require.NoError(t, err)
		time.Sleep(7 * time.Second)
		token, err := s.Token(t.Context())
		require.NoError(t, err)
		require.Equal(t, 2, p.requests)
		require.Equal(t, 10*time.Second, time.Until(token.Expires))
	})
}

func TestSource_EndsWithItsContext(t *testing.T) {
	begun, block := make(chan struct{}), make(chan struct{})
	s := credentials.NewSource(func(context.Context) (credentials.Token, error) {
		close(begun)
		<-block
		return credentials.Token{}, errors.New("away")
	})
	first := make(chan struct{})
	go func() {
		defer close(first)
		_, _ = s.Token(context.Background())
	}()
	<-begun
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	cancel(stop)
	_, err := s.Token(ctx)
	require.ErrorIs(t, err, stop)
	close(block)
	<-first
}
