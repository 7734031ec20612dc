package producer

import (
	"context"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/secret"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/sink/sinktest"
	"github.com/postrider/postrider/test/parts"
)

// real is a configuration for a real broker, which is slower than one in memory.
func real(b *parts.Broker) kafka.Config {
	cfg := unhurried(b.Brokers()...)
	cfg.RetryBackoff = 50 * time.Millisecond
	return cfg
}

// One broker for all of these: each has its own topics, and leaves the broker running.
func TestKafka_OnARealBroker(t *testing.T) {
	// not parallel: the contract looks for goroutines that are left, of whatever test
	b := parts.ExclusiveKafka(t, parts.KafkaConfig{})

	t.Run("FulfilsTheContract", func(t *testing.T) {
		sinktest.Run(t, func(t *testing.T) sinktest.Subject {
			topic := b.Topic(t, 4)
			return sinktest.Subject{
				Open: func(ctx context.Context, done sink.Done) (sink.Sink, error) {
					return Open(ctx, real(b), zerolog.Nop(), done)
				},
				Topic: topic, Partitions: 4,
				Read: func(t *testing.T, n int) []sinktest.Record { return asRecords(b.Consume(t, topic, n)) },
				Stall: func(t *testing.T) func() {
					b.Pause(t)
					return func() { b.Resume(t) }
				},
			}
		})
	})

	t.Run("OutlastsAStallBeyondTheReadTimeout", func(t *testing.T) {
		requireOutlasts(t, b, func(s *Sink) func() {
			b.Pause(t)
			t.Cleanup(func() { b.Resume(t) })
			end := time.After(5 * s.cfg.ReadTimeout)
			return func() {
				<-end
				b.Resume(t)
			}
		})
	})

	t.Run("OutlastsARestart", func(t *testing.T) {
		requireOutlasts(t, b, func(*Sink) func() {
			b.Kill(t)
			return func() { b.Restart(t) }
		})
	})

	t.Run("ReportsWhatTheBrokerRefuses", func(t *testing.T) {
		for name, test := range map[string]struct {
			configs map[string]string
			spoil   func(*sink.Message)
			is      error
		}{
			"size": {map[string]string{"max.message.bytes": "2000"},
				func(m *sink.Message) { m.Value = make([]byte, 5000) }, sink.ErrTooLarge},
			"timestamp": {map[string]string{"message.timestamp.before.max.ms": "1000"},
				func(m *sink.Message) { m.Timestamp = time.Unix(1e9, 0) }, sink.ErrInvalidRecord},
			"key required": {map[string]string{"cleanup.policy": "compact"},
				func(m *sink.Message) { m.Key = nil }, sink.ErrInvalidRecord},
		} {
			t.Run(name, func(t *testing.T) {
				topic := parts.Unique("topic")
				b.CreateTopic(t, topic, 1, test.configs)
				got := newOutcomes()
				s := openSink(t, real(b), got.done)
				ms := numbered(topic, 1)
				test.spoil(ms[0])
				require.NoError(t, s.Publish(parts.Within(t, patience), ms))
				err := got.wait(t, 1)[0].err
				t.Log(err)
				require.ErrorIs(t, err, test.is)
			})
		}
	})

	t.Run("Inspect", func(t *testing.T) {
		topic := b.Topic(t, 3)
		report, err := kafka.Inspect(parts.Within(t, patience), real(b), []string{topic, "nothing"})
		require.NoError(t, err)
		t.Log(report.Version)
		require.Contains(t, report.Version, "v4.")
		require.Len(t, report.Brokers, 1)
		require.NoError(t, report.Brokers[0].Err)
		require.NoError(t, report.Topics[0].Err)
		require.NoError(t, report.Topics[0].ConfigErr)
		require.Equal(t, 3, report.Topics[0].Partitions)
		require.Equal(t, 1, report.Topics[0].MinInsync)
		require.Equal(t, 1048588, report.Topics[0].MaxMessageBytes)
		require.ErrorIs(t, report.Topics[1].Err, sink.ErrUnknownTopic)
		require.Equal(t, kafka.AuthoriserOff, report.Authoriser)
		require.NoError(t, report.Idempotence)
		require.Equal(t, []int{1, 1, 1}, report.Topics[0].InSync)
		require.Equal(t, kafka.Rights{Known: true, Read: true, Write: true}, report.Topics[0].Rights)
		require.Equal(t, "CreateTime", report.Topics[0].TimestampType)
		require.Equal(t, "producer", report.Topics[0].Compression)
		require.Zero(t, report.Topics[0].TimestampMaxAge)
		require.Equal(t, time.Hour, report.Topics[0].TimestampMaxAhead, "the default since Kafka 4")

		strict := parts.Unique("topic")
		b.CreateTopic(t, strict, 1, map[string]string{"message.timestamp.before.max.ms": "86400000",
			"message.timestamp.type": "LogAppendTime", "compression.type": "gzip"})
		report, err = kafka.Inspect(parts.Within(t, patience), real(b), []string{strict})
		require.NoError(t, err)
		require.Equal(t, 24*time.Hour, report.Topics[0].TimestampMaxAge)
		require.Equal(t, "LogAppendTime", report.Topics[0].TimestampType)
		require.Equal(t, "gzip", report.Topics[0].Compression)
	})
}

// requireOutlasts publishes while the broker is away: the same session delivers everything, once
// and in order.
func requireOutlasts(t *testing.T, b *parts.Broker, away func(*Sink) (back func())) {
	t.Helper()
	topic := b.Topic(t, 3)
	cfg := real(b)
	cfg.ProduceTimeout, cfg.ReadTimeout, cfg.DeliveryTimeout = 500*time.Millisecond, time.Second, time.Minute
	got := newOutcomes()
	s := openSink(t, cfg, got.done)
	const n = 600
	ms := numbered(topic, n)
	require.NoError(t, s.Publish(parts.Within(t, patience), ms[:300]))
	got.wait(t, 300)
	back := away(s)
	require.NoError(t, s.Publish(parts.Within(t, patience), ms[300:]))
	back()
	for _, o := range got.wait(t, n) {
		require.NoError(t, o.err)
	}
	requireInOrder(t, b.Consume(t, topic, n), n)
	require.NoError(t, s.Close(parts.Within(t, patience)))
}

func TestOpen_AuthenticatesAtARealBroker(t *testing.T) {
	t.Parallel()
	b := parts.ExclusiveKafka(t, parts.KafkaConfig{Protocol: "SASL_PLAINTEXT",
		Properties: map[string]string{
			"sasl.enabled.mechanisms":                     "PLAIN",
			"listener.name.client.plain.sasl.jaas.config": `org.apache.kafka.common.security.plain.PlainLoginModule required user_rider="s3cret";`,
		}})
	topic := b.Topic(t, 1)
	cfg := real(b)
	cfg.SASL = kafka.SASLConfig{Mechanism: "PLAIN", Username: "rider", Password: secret.Of("s3cret")}
	got := newOutcomes()
	s := openSink(t, cfg, got.done)
	require.NoError(t, s.Publish(parts.Within(t, patience), numbered(topic, 1)))
	require.NoError(t, got.wait(t, 1)[0].err)

	wrong := cfg
	wrong.SASL.Password = secret.Of("wr0ng-canary")
	err := openFails(t, wrong)
	require.ErrorIs(t, err, sink.ErrAuthentication)
	require.NotContains(t, err.Error(), "canary")

	other := cfg
	other.SASL.Mechanism = "SCRAM-SHA-512"
	require.ErrorIs(t, openFails(t, other), sink.ErrAuthentication)

	none := cfg
	none.SASL = kafka.SASLConfig{}
	err = openFails(t, none)
	require.ErrorContains(t, err, "sink.kafka.sasl")
}
