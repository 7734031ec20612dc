package topics

import (
	"context"
	"fmt"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"

	"github.com/postrider/postrider/sink/kafka"
)

// logIn configures sarama's login as that of the relay.
func logIn(s *sarama.Config, cfg *kafka.Config) error {
	login := &s.Net.SASL
	switch login.Mechanism = sarama.SASLMechanism(cfg.SASL.Mechanism); login.Mechanism {
	case "":
		return nil
	case sarama.SASLTypeOAuth:
		login.Enable, login.TokenProvider = true, tokens{cfg}
		return nil
	case sarama.SASLTypeGSSAPI:
		krb := &cfg.SASL.Kerberos
		login.Enable = true
		login.GSSAPI = sarama.GSSAPIConfig{AuthType: sarama.KRB5_KEYTAB_AUTH,
			KeyTabPath: krb.Keytab, KerberosConfigPath: krb.Path(), ServiceName: krb.ServiceName,
			DisablePAFXFAST: true}
		var err error
		login.GSSAPI.Username, login.GSSAPI.Realm, err = krb.Names()
		return err
	}
	password, err := cfg.SASL.Password.Reveal()
	if err != nil {
		return fmt.Errorf("sink.kafka.sasl.password: %w", err)
	}
	login.Enable, login.User, login.Password = true, cfg.SASL.Username, password
	hash := scram.SHA512
	if login.Mechanism == sarama.SASLTypeSCRAMSHA256 {
		hash = scram.SHA256
	}
	login.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient {
		return &scramClient{hash: hash}
	}
	return nil
}

// tokens are those of OAUTHBEARER.
type tokens struct{ cfg *kafka.Config }

// Token implements sarama.AccessTokenProvider. It ends by the configuration's dial_timeout.
func (t tokens) Token() (*sarama.AccessToken, error) {
	token, extensions, err := t.cfg.Token(context.Background())
	if token == "" {
		return nil, err
	}
	return &sarama.AccessToken{Token: token, Extensions: extensions}, nil
}

// scramClient is one SCRAM exchange.
type scramClient struct {
	hash scram.HashGeneratorFcn
	*scram.ClientConversation
}

func (c *scramClient) Begin(user, password, authzID string) error {
	client, err := c.hash.NewClient(user, password, authzID)
	if err == nil {
		c.ClientConversation = client.NewConversation()
	}
	return err
}
