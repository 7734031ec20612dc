package producer

import (
	"sync/atomic"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/test/parts"
)

func TestSink_TellsOfEachRequestToProduce(t *testing.T) {
	c := parts.Cluster(t, kfake.SeedTopics(6, "orders"))
	var arrived, reported, bytes atomic.Int64
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		arrived.Add(1)
		return nil, nil, false
	})
	cfg, got := quick(c.ListenAddrs()...), newOutcomes()
	cfg.Requested = func(n int) {
		reported.Add(1)
		bytes.Add(int64(n))
	}
	s := openSink(t, cfg, got.done)
	ms := numbered("orders", 500)
	require.NoError(t, s.Publish(parts.Within(t, patience), ms))
	values := 0
	for _, o := range got.wait(t, len(ms)) {
		require.NoError(t, o.err)
		values += len(o.message.Value)
	}
	require.NoError(t, s.Close(parts.Within(t, patience)))
	require.Positive(t, arrived.Load())
	require.Equal(t, arrived.Load(), reported.Load())
	require.Greater(t, bytes.Load(), int64(values))
}

// The settings that the guarantees rest on.
func TestClient_IsIdempotent(t *testing.T) {
	for _, compression := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		for _, limit := range []int{1024, 1 << 20, 100 << 20, 1<<30 - 1<<20} {
			cfg := quick("kafka-1:9092")
			cfg.Compression, cfg.MaxMessageBytes = compression, limit
			require.NoError(t, cfg.Validate())
			for name, options := range map[string][]kgo.Opt{
				"of the sink": idempotent(&cfg, presetPartitioner{}, &Sink{}), "of single records": synchronous(&cfg),
				"of transactions": transactional(&cfg, "id"),
			} {
				d := kafka.NewDialer(&cfg)
				defer d.Cut(sink.ErrClosed)
				client, err := cfg.NewClient(d, zerolog.Nop(), options...)
				require.NoError(t, err, name)
				defer client.Close()
				require.Equal(t, false, client.OptValue(kgo.DisableIdempotentWrite))
				require.Equal(t, kgo.AllISRAcks(), client.OptValue(kgo.RequiredAcks))
				require.Equal(t, false, client.OptValue(kgo.AllowAutoTopicCreation))
				require.Equal(t, name == "of the sink", client.OptValue(kgo.StopProducerOnDataLossDetected))
				require.Equal(t, false, client.OptValue(kgo.AllowIdempotentProduceCancellation))
			}
		}
	}
}
