package kafka

import (
	"context"
	"encoding/json"
	"net"
	"regexp"
	"strings"
	"sync"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"

	"github.com/postrider/postrider/internal/credentials"
	"github.com/postrider/postrider/sink"
)

const saslOAuth = "OAUTHBEARER"

// The accepted values of SASLConfig.Provider.
const (
	ProviderOIDC   = "oidc"                 // a token endpoint, or a file with a token
	ProviderAWS    = "aws_msk_iam"          // Amazon MSK
	ProviderAzure  = "azure_event_hubs"     // a namespace of Event Hubs
	ProviderGoogle = "google_managed_kafka" // Managed Service for Apache Kafka
)

// Providers are all of them.
var Providers = []string{ProviderOIDC, ProviderAWS, ProviderAzure, ProviderGoogle}

// tokens is the token source that all clients of a configuration share: a provider limits how
// often it may be asked.
type tokens struct {
	once   sync.Once
	source *credentials.Source
}

// source is the token source of the configuration.
func (c *Config) source() *credentials.Source {
	t := c.SASL.tokens
	if t == nil {
		t = new(tokens)
	}
	t.once.Do(func() {
		login := *c
		t.source = credentials.NewSource(login.fetch)
	})
	return t.source
}

func (c *Config) fetch(ctx context.Context) (credentials.Token, error) {
	host, _, _ := net.SplitHostPort(c.Brokers[0]) // validated
	section := "sink.kafka.sasl." + c.SASL.section()
	switch c.SASL.Provider {
	case ProviderAWS:
		return c.SASL.AWS.MSKToken(ctx, section, host)
	case ProviderAzure:
		return c.SASL.Azure.Token(ctx, section, credentials.EventHubsScope(host))
	case ProviderGoogle:
		return c.SASL.Google.KafkaToken(ctx, section, c.SASL.Username)
	}
	return c.SASL.OAuth.Fetch(ctx, section)
}

// section is the name of the provider's section.
func (s *SASLConfig) section() string {
	switch s.Provider {
	case ProviderAWS:
		return "aws"
	case ProviderAzure:
		return "azure"
	case ProviderGoogle:
		return "google"
	}
	return "oauth"
}

// Token returns what OAUTHBEARER sends: a token, which is valid for a while, and the extensions. A
// token with an error is the last one: its renewal failed. It blocks for dial_timeout at most.
func (c *Config) Token(ctx context.Context) (string, map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.DialTimeout)
	defer cancel()
	t, err := c.source().Token(ctx)
	extensions := map[string]string{}
	for _, e := range c.SASL.Extensions {
		name, value, _ := strings.Cut(e, "=")
		extensions[name] = value
	}
	return t.Value, extensions, err
}

// oauthMechanism requests a token for each login of a connection, and for each time that a broker
// ends its session (KIP-368).
func (c *Config) oauthMechanism(log zerolog.Logger) sasl.Mechanism {
	return oauthMechanism{c, oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
		token, extensions, err := c.Token(ctx)
		switch {
		case token == "":
			return oauth.Auth{}, &tokenError{err}
		case err != nil:
			log.Warn().Err(err).Str("next", "the last token is still valid; nothing has ended").
				Msg("token was not renewed")
		}
		return oauth.Auth{Token: token, Extensions: extensions}, nil
	})}
}

// oauthMechanism gives a refusal its words: franz-go only reports that there was an answer.
type oauthMechanism struct {
	cfg *Config
	sasl.Mechanism
}

func (m oauthMechanism) Authenticate(ctx context.Context, host string) (sasl.Session, []byte,
	error) {
	session, first, err := m.Mechanism.Authenticate(ctx, host)
	return oauthSession{m.cfg, session}, first, err
}

type oauthSession struct {
	cfg *Config
	sasl.Session
}

// Challenge reports an answer that is not empty, which is a refusal (RFC 7628, 3.2.2).
func (s oauthSession) Challenge(answer []byte) (bool, []byte, error) {
	if len(answer) == 0 {
		return s.Session.Challenge(answer)
	}
	var refusal struct {
		Status string `json:"status"`
	}
	status := "no reason is given"
	if json.Unmarshal(answer, &refusal) == nil && statusWord.MatchString(refusal.Status) {
		status = refusal.Status
	}
	return false, nil, &refusedToken{status, s.cfg.SASL.advice()}
}

// refusedToken is a broker's refusal.
type refusedToken struct{ status, fix string }

func (e *refusedToken) Error() string {
	return "the broker refused the token: " + e.status + "; " + e.fix
}

// Advice is what the user needs besides the text. The consequence for the WAL is not known here.
func (e *refusedToken) Advice() (wal, fix string) { return "", e.fix }

func (e *refusedToken) Unwrap() error { return sink.ErrAuthentication }

// statusWord is a status that can be printed: invalid_token, insufficient_scope.
var statusWord = regexp.MustCompile(`^[a-z_]{1,64}$`)

// tokenError is a login without a token.
type tokenError struct{ err error }

func (e *tokenError) Error() string { return e.err.Error() }

// Unwrap adds the sentinel of package sink.
func (e *tokenError) Unwrap() []error { return []error{e.class(), e.err} }

func (e *tokenError) class() error {
	if isAny(e.err, credentials.ErrRefused) {
		return sink.ErrAuthentication
	}
	return sink.ErrUnreachable
}

// Temporary has the client try again, for as long as it tries a broker that is away.
func (e *tokenError) Temporary() bool { return !isAny(e.err, credentials.ErrRefused) }

// extension is the form of RFC 7628, 3.1; auth is the token itself.
var extension = regexp.MustCompile(`^[A-Za-z]+=[\x21-\x7E \t\r\n]+$`)

func (c *Config) validateOAuth(bad func(key, format string, args ...any)) {
	s := &c.SASL
	section := func(key, format string, args ...any) {
		bad("sasl."+s.section()+"."+key, format, args...)
	}
	switch s.Provider {
	case ProviderOIDC:
		s.OAuth.Validate(section)
	case ProviderAWS:
		s.AWS.Validate(section)
	case ProviderAzure:
	case ProviderGoogle:
		s.Google.Validate(section)
	default:
		bad("sasl.provider", "%q is none of %s", s.Provider, strings.Join(Providers, ", "))
	}
	if s.Provider != ProviderOIDC && !c.TLS.Enabled {
		bad("tls.enabled", "is false: %s takes no connection without TLS, and the token would be sent "+
			"in the clear", s.Provider)
	}
	for i, e := range s.Extensions {
		if !extension.MatchString(e) || strings.HasPrefix(e, "auth=") {
			bad("sasl.extensions", `entry %d is not name=value, like "logicalCluster=lkc-1a2b3c"`, i+1)
		}
	}
}
