package kafka

import (
	"fmt"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"

	"github.com/postrider/postrider/sink"
)

// scramClient returns a constructor for one exchange of the mechanism, nil if it is not a SCRAM one.
func scramClient(mechanism string) func() sarama.SCRAMClient {
	switch mechanism {
	case sarama.SASLTypeSCRAMSHA256:
		return func() sarama.SCRAMClient { return &scramExchange{hash: scram.SHA256} }
	case sarama.SASLTypeSCRAMSHA512:
		return func() sarama.SCRAMClient { return &scramExchange{hash: scram.SHA512} }
	default:
		return nil
	}
}

type scramExchange struct {
	hash         scram.HashGeneratorFcn
	conversation *scram.ClientConversation
}

func (e *scramExchange) Begin(user, password, authzID string) error {
	client, err := e.hash.NewClient(user, password, authzID)
	if err != nil {
		return fmt.Errorf("%w: prepare SCRAM credentials: %w", sink.ErrAuthentication, err)
	}
	e.conversation = client.NewConversation()
	return nil
}

// Step also checks the server's proof: a broker that does not know the password is refused as well.
func (e *scramExchange) Step(challenge string) (string, error) {
	response, err := e.conversation.Step(challenge)
	if err != nil {
		return "", fmt.Errorf("%w: SCRAM: %w", sink.ErrAuthentication, err)
	}
	return response, nil
}

func (e *scramExchange) Done() bool { return e.conversation.Done() }
