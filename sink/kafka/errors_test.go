package kafka

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/postrider/postrider/sink"
)

// From Kafka 4.1 on the client names the topic of a record by its id: one that was deleted, or deleted
// and created again, is an id that brokers do not have.
func TestClass_AnUnknownIDIsAnUnknownTopic(t *testing.T) {
	require.ErrorIs(t, Class(kerr.UnknownTopicID), sink.ErrUnknownTopic)
}
