package topicreader

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/test/parts"
)

func TestMain(m *testing.M) {
	parts.Main(m)
}

// quick is a configuration whose retries and time-outs suit a test.
func quick(brokers ...string) kafka.Config {
	cfg := kafka.DefaultConfig()
	cfg.Brokers = brokers
	cfg.DialTimeout = 2 * time.Second
	cfg.ProduceTimeout = time.Second
	cfg.ReadTimeout = 2 * time.Second
	cfg.WriteTimeout = 2 * time.Second
	cfg.DeliveryTimeout = 30 * time.Second
	cfg.RetryBackoff = 5 * time.Millisecond
	return cfg
}

// unhurried is quick, but nothing times out because the machine is busy.
func unhurried(brokers ...string) kafka.Config {
	cfg := quick(brokers...)
	cfg.DialTimeout, cfg.ProduceTimeout, cfg.ReadTimeout, cfg.WriteTimeout = 10*time.Second, 10*time.Second, 20*time.Second, 20*time.Second
	return cfg
}

// real is a configuration for a real broker, which is slower than one in memory.
func real(b *parts.Broker) kafka.Config {
	cfg := unhurried(b.Brokers()...)
	cfg.RetryBackoff = 50 * time.Millisecond
	return cfg
}

var noTime time.Time

// deleteBefore does what retention does.
func deleteBefore(t testing.TB, client *kgo.Client, topic string, offset int64) {
	t.Helper()
	deleted, err := kadm.NewClient(client).DeleteRecords(parts.Within(t, parts.Patience),
		kadm.OffsetsList{{Topic: topic, At: offset}}.Offsets())
	require.NoError(t, err)
	require.NoError(t, deleted.Error())
}
