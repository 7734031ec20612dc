package parts

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// OIDC is a provider of tokens: RS256 JWTs, by client credentials (RFC 6749, 4.4), and by an
// assertion that is whatever the test says (RFC 7523). It ends with the test.
type OIDC struct {
	t      testing.TB
	key    *rsa.PrivateKey
	server *httptest.Server

	Issued   atomic.Int64 // tokens
	Requests atomic.Int64 // for tokens

	mu       sync.Mutex // guards what follows
	lifetime time.Duration
	claims   map[string]any
	answer   http.HandlerFunc // in place of a token; nil: a token
	forms    []url.Values     // of the requests; client_id and client_secret also of the header
}

// The one client of OIDC.
const (
	OIDCClient   = "relay"
	OIDCSecret   = "s3cret-canary"
	OIDCAudience = "kafka"
)

// NewOIDC starts one whose tokens live for lifetime.
func NewOIDC(t testing.TB, lifetime time.Duration) *OIDC {
	t.Helper()
	o := newOIDC(t, lifetime)
	o.server.Start()
	return o
}

// NewSecureOIDC is NewOIDC with TLS, and a certificate of a.
func NewSecureOIDC(t testing.TB, a *Authority, lifetime time.Duration) *OIDC {
	t.Helper()
	o := newOIDC(t, lifetime)
	o.server.TLS = a.Server(x509.Certificate{})
	o.server.StartTLS()
	return o
}

func newOIDC(t testing.TB, lifetime time.Duration) *OIDC {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	o := &OIDC{t: t, key: key, lifetime: lifetime}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /token", o.token)
	mux.HandleFunc("GET /jwks", o.jwks)
	o.server = httptest.NewUnstartedServer(mux)
	t.Cleanup(o.server.Close)
	return o
}

// TokenURL is the token endpoint.
func (o *OIDC) TokenURL() string { return o.server.URL + "/token" }

// JWKS is where the public key is.
func (o *OIDC) JWKS() string { return o.server.URL + "/jwks" }

// Issuer is the claim iss.
func (o *OIDC) Issuer() string { return o.server.URL }

// Claims of further tokens, beside or in place of the usual ones.
func (o *OIDC) Claims(c map[string]any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.claims = c
}

// Answer has requests for tokens answered like this; nil: by tokens again.
func (o *OIDC) Answer(answer http.HandlerFunc) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answer = answer
}

// Refuse answers further requests with an error of OAuth 2.0.
func (o *OIDC) Refuse(status int, code, description string) {
	o.Answer(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": code, "error_description": description})
	})
}

// Forms are the requests so far.
func (o *OIDC) Forms() []url.Values {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]url.Values{}, o.forms...)
}

func (o *OIDC) token(w http.ResponseWriter, r *http.Request) {
	o.Requests.Add(1)
	if err := r.ParseForm(); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	form := maps.Clone(r.PostForm)
	if user, password, ok := r.BasicAuth(); ok {
		form.Set("client_id", user)
		form.Set("client_secret", password)
	}
	w.Header().Set("Content-Type", "application/json")
	o.mu.Lock()
	o.forms = append(o.forms, form)
	answer, lifetime := o.answer, o.lifetime
	o.mu.Unlock()
	switch {
	case answer != nil:
		answer(w, r)
		return
	case form.Get("client_assertion") == "" && form.Get("assertion") == "" &&
		(form.Get("client_id") != OIDCClient || form.Get("client_secret") != OIDCSecret):
		w.WriteHeader(http.StatusUnauthorized)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": "invalid_client"})
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"access_token": o.Token(lifetime),
		"token_type": "Bearer", "expires_in": int(lifetime.Seconds())})
	o.Issued.Add(1)
}

// Token signs one.
func (o *OIDC) Token(lifetime time.Duration) string {
	now := time.Now()
	claims := map[string]any{"iss": o.Issuer(), "sub": OIDCClient, "aud": OIDCAudience,
		"iat": now.Unix(), "exp": now.Add(lifetime).Unix(), "scope": "produce"}
	o.mu.Lock()
	maps.Copy(claims, o.claims)
	o.mu.Unlock()
	part := func(v any) string {
		text, err := json.Marshal(v)
		require.NoError(o.t, err)
		return base64.RawURLEncoding.EncodeToString(text)
	}
	signed := part(map[string]string{"alg": "RS256", "typ": "JWT", "kid": "1"}) + "." + part(claims)
	digest := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(rand.Reader, o.key, crypto.SHA256, digest[:])
	require.NoError(o.t, err)
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature)
}

func (o *OIDC) jwks(w http.ResponseWriter, _ *http.Request) {
	part := func(n *big.Int) string { return base64.RawURLEncoding.EncodeToString(n.Bytes()) }
	_ = json.NewEncoder(w).Encode(map[string]any{"keys": []map[string]string{{"kty": "RSA",
		"kid": "1", "use": "sig", "alg": "RS256", "n": part(o.key.N),
		"e": part(big.NewInt(int64(o.key.E)))}}})
}

// Listener is how a broker's listener CLIENT takes the tokens. Sessions end with their tokens
// (KIP-368).
func (o *OIDC) Listener() KafkaConfig {
	const listener = "listener.name.client.oauthbearer."
	const kafka = "org.apache.kafka.common.security.oauthbearer."
	return KafkaConfig{Protocol: "SASL_PLAINTEXT",
		Java: []string{fmt.Sprintf("-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=%s", o.JWKS())},
		Properties: map[string]string{
			"sasl.enabled.mechanisms":                       "OAUTHBEARER",
			listener + "sasl.jaas.config":                   kafka + "OAuthBearerLoginModule required;",
			listener + "sasl.server.callback.handler.class": kafka + "OAuthBearerValidatorCallbackHandler",
			listener + "sasl.oauthbearer.jwks.endpoint.url": o.JWKS(),
			listener + "sasl.oauthbearer.expected.audience": OIDCAudience,
			listener + "sasl.oauthbearer.expected.issuer":   o.Issuer(),
			listener + "connections.max.reauth.ms":          "3600000",
		}}
}
