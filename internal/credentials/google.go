package credentials

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"cloud.google.com/go/compute/metadata"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"

	"github.com/postrider/postrider/internal/secret"
)

// Google is a section [….google]: application default credentials, which are those of the file, of
// GOOGLE_APPLICATION_CREDENTIALS (a service account's key, or workload identity federation), or of
// the machine.
type Google struct {
	CredentialsFile string `toml:"credentials_file"` // empty: the default ones
}

// IsSet reports whether any key of the section is given.
func (c Google) IsSet() bool { return c != Google{} }

// Validate reports every setting that cannot be, by its key in the section.
func (c Google) Validate(bad func(key, format string, args ...any)) {
	if err := secret.CheckPath(c.CredentialsFile); err != nil {
		bad("credentials_file", "%v", err)
	}
}

// Scopes of tokens.
const (
	CloudSQLScope = "https://www.googleapis.com/auth/sqlservice.login"
	kafkaScope    = "https://www.googleapis.com/auth/cloud-platform"
)

// Token obtains one. section is the name of the section, for errors. It blocks until Google
// answers or ctx ends.
func (c Google) Token(ctx context.Context, section, scope string) (Token, error) {
	t, _, err := c.token(ctx, section, scope)
	return t, err
}

// KafkaToken obtains one for Managed Service for Apache Kafka, which takes an access token in the
// form of a JSON Web Token (googleapis/managedkafka, kafka-auth-local-server).
// principal is the email of the service account; empty: that in the credentials, or the machine's.
func (c Google) KafkaToken(ctx context.Context, section, principal string) (Token, error) {
	t, found, err := c.token(ctx, section, kafkaScope)
	if err != nil {
		return Token{}, err
	}
	principal, err = emailOf(ctx, found, principal)
	if err != nil {
		return Token{}, &Error{Class: ErrUnavailable, Err: err,
			Text: "Google credentials (" + section + "): email of the service account: " +
				plain(err.Error()),
			Hint: "set sink.kafka.sasl.username to it"}
	}
	part := func(v any) string {
		text, _ := json.Marshal(v)
		return base64.RawURLEncoding.EncodeToString(text)
	}
	t.Value = part(map[string]string{"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}) + "." +
		part(map[string]any{"exp": t.Expires.Unix(), "iat": time.Now().Unix(), "iss": "Google",
			"scope": "kafka", "sub": principal}) + "." +
		base64.RawURLEncoding.EncodeToString([]byte(t.Value))
	return t, nil
}

// token waits for obtain until ctx ends. The client of the metadata server takes no context: it
// gives up by itself, after some requests of 5 s. All other requests end with ctx.
func (c Google) token(ctx context.Context, section, scope string) (Token, *google.Credentials,
	error) {
	type result struct {
		token Token
		found *google.Credentials
		err   error
	}
	obtained := make(chan result, 1)
	go func() {
		var r result
		r.token, r.found, r.err = c.obtain(ctx, section, scope)
		obtained <- r
	}()
	select {
	case r := <-obtained:
		return r.token, r.found, r.err
	case <-ctx.Done():
		return Token{}, nil, c.failure(ctx, section, context.Cause(ctx))
	}
}

// bound sends requests that end with a context, whatever they were made with: the token source of
// a service account's key makes them without one.
type bound struct{ ctx context.Context }

func (b bound) RoundTrip(r *http.Request) (*http.Response, error) {
	return http.DefaultTransport.RoundTrip(r.WithContext(b.ctx))
}

func (c Google) obtain(ctx context.Context, section, scope string) (Token, *google.Credentials,
	error) {
	client := &http.Client{Transport: bound{ctx}}
	found, err := c.find(context.WithValue(ctx, oauth2.HTTPClient, client), scope)
	if ctx.Err() != nil {
		return Token{}, nil, c.failure(ctx, section, context.Cause(ctx))
	}
	if err != nil {
		return Token{}, nil, &Error{Class: ErrRefused, Err: err,
			Text: "Google credentials (" + section + "): " + plain(err.Error()),
			Hint: "set " + section + ".credentials_file, or GOOGLE_APPLICATION_CREDENTIALS, or give the " +
				"machine a service account"}
	}
	got, err := found.TokenSource.Token()
	if err == nil {
		err = checkToken(strings.TrimRight(got.AccessToken, ".")) // Google pads some with dots
	}
	if err != nil {
		return Token{}, nil, c.failure(ctx, section, err)
	}
	return Token{Value: got.AccessToken, Expires: got.Expiry}, found, nil
}

func (c Google) find(ctx context.Context, scope string) (*google.Credentials, error) {
	if c.CredentialsFile == "" {
		return google.FindDefaultCredentials(ctx, scope)
	}
	text, err := os.ReadFile(c.CredentialsFile)
	if err != nil {
		return nil, err
	}
	var file struct {
		Type google.CredentialsType `json:"type"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("%s is not JSON", c.CredentialsFile) // the cause quotes the key
	}
	return google.CredentialsFromJSONWithType(ctx, text, file.Type, scope)
}

// emailOf is the email that the broker expects beside the token.
func emailOf(ctx context.Context, found *google.Credentials, given string) (string, error) {
	var file struct {
		Email         string `json:"client_email"`
		Impersonation string `json:"service_account_impersonation_url"`
	}
	_ = json.Unmarshal(found.JSON, &file) // no JSON: the machine's
	_, impersonated, _ := strings.Cut(file.Impersonation, "/serviceAccounts/")
	impersonated, _, _ = strings.Cut(impersonated, ":")
	if email := cmp.Or(given, file.Email, impersonated); email != "" {
		return email, nil
	}
	return metadata.EmailWithContext(ctx, "default")
}

func (c Google) failure(ctx context.Context, section string, err error) error {
	e := &Error{Class: ErrUnavailable, Err: err, Text: "Google credentials (" + section + "): ",
		Hint: "try gcloud auth application-default print-access-token where the relay runs, as its " +
			"user and with its environment"}
	var answer *oauth2.RetrieveError
	switch {
	case ctx.Err() != nil:
		e.Text += "no answer in time"
	case errors.As(err, &answer):
		var said struct { // not always in the fields of the error
			Code        string `json:"error"`
			Description string `json:"error_description"`
		}
		_ = json.Unmarshal(answer.Body, &said)
		e.Text += plain(cmp.Or(said.Code, "the token endpoint refused")+": "+said.Description) +
			fmt.Sprintf(" (%d)", answer.Response.StatusCode)
		if refusal(answer.Response.StatusCode) {
			e.Class = ErrRefused
		}
	default:
		e.Text += plain(innermost(err).Error())
	}
	return e
}
