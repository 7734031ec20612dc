package kafka

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/xdg-go/scram"

	"github.com/postrider/postrider/sink"
)

const saslPlain = "PLAIN"

var scramHashes = map[string]scram.HashGeneratorFcn{
	"SCRAM-SHA-256": scram.SHA256,
	"SCRAM-SHA-512": scram.SHA512,
}

// mechanisms are all of them.
var mechanisms = []string{saslPlain, "SCRAM-SHA-256", "SCRAM-SHA-512", saslOAuth, saslKerberos}

// mechanism makes the exchange of a connection; nil: none is configured. The password is read
// again for each client.
func (c *Config) mechanism(log zerolog.Logger) (sasl.Mechanism, error) {
	s := &c.SASL
	switch s.Mechanism {
	case "":
		return nil, nil //nolint:nilnil // there is none
	case saslOAuth:
		return c.oauthMechanism(log), nil
	case saslKerberos:
		return c.kerberosMechanism()
	}
	password, err := s.Password.Reveal()
	switch {
	case err != nil:
		return nil, fmt.Errorf("sink.kafka.sasl.password: %w", err)
	case s.Mechanism == saslPlain:
		return plain.Auth{User: s.Username, Pass: password}.AsMechanism(), nil
	}
	return scramMechanism{s.Mechanism, s.Username, password, scramHashes[s.Mechanism]}, nil
}

func (c *Config) validateSASL(bad func(key, format string, args ...any)) {
	s := &c.SASL
	if s.Mechanism == "" {
		for _, login := range append(s.logins(), login{key: "sasl.provider",
			given: s.Provider != "" && s.Provider != ProviderOIDC}) {
			if login.given {
				bad("sasl.mechanism", "is empty although %s is given; use %s", login.key,
					strings.Join(mechanisms, ", "))
				return
			}
		}
		return
	}
	if s.Mechanism == "AWS_MSK_IAM" {
		bad("sasl.mechanism", `"AWS_MSK_IAM": Amazon MSK takes that login as mechanism = `+
			`"OAUTHBEARER" with provider = "aws_msk_iam"`)
		return
	}
	if !slices.Contains(mechanisms, s.Mechanism) {
		bad("sasl.mechanism", "%q is none of %s", s.Mechanism, strings.Join(mechanisms, ", "))
		return
	}
	s.validateOthers(bad)
	switch s.Mechanism {
	case saslOAuth:
		c.validateOAuth(bad)
	case saslKerberos:
		s.Kerberos.validate(bad)
	default:
		if s.Username == "" {
			bad("sasl.username", "is empty")
		}
		if !s.Password.IsSet() {
			bad("sasl.password", "is empty; give sasl.password or sasl.password_file")
		}
	}
}

// InTheClear reports whether the mechanism sends the secret itself.
func (s *SASLConfig) InTheClear() bool {
	return s.Mechanism == saslPlain || s.Mechanism == saslOAuth
}

// advice is what to check when a broker refuses the login.
func (s *SASLConfig) advice() string {
	switch s.Mechanism {
	case saslOAuth:
		return "compare issuer, audience, scope and lifetime of the token with what the broker " +
			"expects (its log has the reason), and the clocks (chronyc tracking): " +
			"sink.kafka.sasl." + s.section() + " and extensions"
	case saslKerberos:
		return "check that the broker has the keys of " + s.Kerberos.ServiceName + "/HOST under which " +
			"it is addressed, and the clocks (chronyc tracking); its log has the reason"
	}
	return "check sink.kafka.sasl.mechanism, username and password"
}

// login is a setting that belongs to some mechanisms.
type login struct {
	key   string
	given bool
	fits  bool // the mechanism
}

func (s *SASLConfig) logins() []login {
	byPassword := s.Mechanism == saslPlain || scramHashes[s.Mechanism] != nil
	byToken := s.Mechanism == saslOAuth
	return []login{
		{"sasl.username", s.Username != "",
			byPassword || byToken && s.Provider == ProviderGoogle},
		{"sasl.password", s.Password.IsSet(), byPassword},
		{"sasl.kerberos", s.Kerberos.isSet(), s.Mechanism == saslKerberos},
		{"sasl.extensions", len(s.Extensions) > 0, byToken},
		{"sasl.oauth", s.OAuth.IsSet(), byToken && s.Provider == ProviderOIDC},
		{"sasl.aws", s.AWS.IsSet(), byToken && s.Provider == ProviderAWS},
		{"sasl.azure", s.Azure.IsSet(), byToken && s.Provider == ProviderAzure},
		{"sasl.google", s.Google.IsSet(), byToken && s.Provider == ProviderGoogle},
	}
}

// validateOthers refuses a second login beside that of the mechanism.
func (s *SASLConfig) validateOthers(bad func(key, format string, args ...any)) {
	for _, login := range s.logins() {
		if login.given && !login.fits {
			bad(login.key, "does not belong to mechanism %s with provider %s; remove it, or choose "+
				"another login", s.Mechanism, s.Provider)
		}
	}
}

// scramMechanism replaces franz-go's, which does not prepare names and passwords as RFC 5802
// requires.
type scramMechanism struct {
	name, user, password string
	hash                 scram.HashGeneratorFcn
}

func (m scramMechanism) Name() string { return m.name }

func (m scramMechanism) Authenticate(context.Context, string) (sasl.Session, []byte, error) {
	client, err := m.hash.NewClient(m.user, m.password, "")
	if err != nil {
		return nil, nil, fmt.Errorf("%w: prepare SCRAM credentials: %w", sink.ErrAuthentication, err)
	}
	conversation := client.NewConversation()
	first, err := conversation.Step("")
	return scramSession{conversation}, []byte(first), err
}

type scramSession struct{ conversation *scram.ClientConversation }

// Challenge also checks the server's proof: a broker that does not have the password is refused.
func (s scramSession) Challenge(challenge []byte) (bool, []byte, error) {
	response, err := s.conversation.Step(string(challenge))
	if err != nil {
		return false, nil, fmt.Errorf("%w: SCRAM: %w", sink.ErrAuthentication, err)
	}
	return s.conversation.Done(), []byte(response), nil
}
