package kafka

import (
	"context"
	"fmt"

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

// mechanism makes the exchange of a connection; nil: none is configured. The password is read
// again for each client.
func (s *SASLConfig) mechanism() (sasl.Mechanism, error) {
	if s.Mechanism == "" {
		return nil, nil //nolint:nilnil // there is none
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
