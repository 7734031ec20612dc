package parts

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
)

// FakeKafka starts an in-process cluster for this test alone, whose answers the test chooses:
// errors of brokers on demand, leaders that move. It shows how the relay handles such an answer,
// not what a real broker does. It ends with the test.
func FakeKafka(t testing.TB, cfg embedded.KafkaConfig) (*Broker, *embedded.Kafka) {
	t.Helper()
	fake, err := embedded.StartKafka(cfg)
	require.NoError(t, err)
	t.Cleanup(fake.Close)
	return &Broker{clients: fake.Brokers(), direct: fake.Brokers()}, fake
}
