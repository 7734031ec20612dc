package producer

import (
	"context"
	"fmt"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/test/parts"
)

func openProgress(t *testing.T, cfg kafka.Config, topic string) *Progress {
	t.Helper()
	p, err := OpenProgress(parts.Within(t, 3*patience), cfg, topic, zerolog.Nop())
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

// load returns the values of a key.
func load(t *testing.T, p *Progress, key string) (values []string) {
	t.Helper()
	require.NoError(t, p.Load(parts.Within(t, 3*patience), key,
		func(value []byte) { values = append(values, string(value)) }))
	return values
}

func TestProgress_KeepsTheNewestRecordOfEachKey(t *testing.T) {
	b := parts.RealKafka(t)
	topic := parts.Unique("snapshot")
	p := openProgress(t, real(b), topic)
	require.Empty(t, load(t, p, "a"))
	for i := range 3 {
		for _, key := range []string{"a", "b"} {
			require.NoError(t, p.Save(parts.Within(t, 3*patience), key, fmt.Appendf(nil, "%s%d", key, i)))
		}
	}
	again := openProgress(t, real(b), topic) // which finds the topic there, and made as it has to be
	for _, key := range []string{"a", "b"} {
		values := load(t, again, key)
		require.NotEmpty(t, values)
		require.Equal(t, key+"2", values[len(values)-1])
	}
	report, err := kafka.Inspect(parts.Within(t, 3*patience), real(b), []string{topic})
	require.NoError(t, err)
	require.Equal(t, "compact", report.Topics[0].CleanupPolicy)
	require.Equal(t, 1, report.Topics[0].Partitions)
	b.DeleteTopic(t, topic)
}

func TestProgress_ReadsWhatWasPublishedBehindAnOffset(t *testing.T) {
	t.Parallel()
	b := parts.RealKafka(t)
	for _, compression := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		t.Run(compression, func(t *testing.T) {
			topic := b.Topic(t, 3)
			cfg := real(b)
			cfg.Compression = compression
			p := openProgress(t, cfg, b.Topic(t, 1)+".none-of-mine")
			ends, err := p.Ends(parts.Within(t, 3*patience), []string{topic, "does-not-exist"})
			require.NoError(t, err)
			require.Equal(t, map[string][]int64{topic: {0, 0, 0}, "does-not-exist": {}}, ends)

			publish := func(from, to int) {
				got := newOutcomes()
				s := openSink(t, cfg, got.done)
				var ms []*sink.Message
				for i := from; i < to; i++ {
					ms = append(ms, &sink.Message{
						Topic: topic, Partition: sink.ByKey, Key: fmt.Appendf(nil, "key %d", i%7),
						Value:   fmt.Appendf(nil, "%d", i),
						Headers: []sink.Header{{Key: "id", Value: fmt.Appendf(nil, "%d", i)}, {Key: "id"}},
					})
				}
				require.NoError(t, s.Publish(parts.Within(t, 3*patience), ms))
				for _, o := range got.wait(t, to-from) {
					require.NoError(t, o.err)
				}
			}
			publish(0, 100)
			middle, err := p.Ends(parts.Within(t, 3*patience), []string{topic})
			require.NoError(t, err)
			publish(100, 300)

			read := func(from []int64) map[string]bool {
				found := map[string]bool{}
				require.NoError(t, p.Read(parts.Within(t, 3*patience), topic, from, func(m *sink.Message) {
					require.Equal(t, topic, m.Topic)
					require.Equal(t, []sink.Header{{Key: "id", Value: m.Value}, {Key: "id"}}, m.Headers)
					require.False(t, found[string(m.Value)])
					found[string(m.Value)] = true
				}))
				return found
			}
			require.Len(t, read(nil), 300)
			late := read(middle[topic])
			require.Len(t, late, 200)
			require.True(t, late["100"] && late["299"])
		})
	}
}

func TestOpenProgress_RefusesATopicThatForgets(t *testing.T) {
	c := parts.Cluster(t, kfake.SeedTopics(1, "postrider.snapshot"))
	_, err := OpenProgress(parts.Within(t, 3*patience), quick(c.ListenAddrs()...),
		"postrider.snapshot", zerolog.Nop())
	require.ErrorContains(t, err,
		"kafka-configs.sh --bootstrap-server "+c.ListenAddrs()[0]+" --alter --topic postrider.snapshot --add-config cleanup.policy=compact")
	requireAdvice(t, err)
}

func TestProgress_EndsWithItsContext(t *testing.T) {
	b := parts.ExclusiveKafka(t, parts.KafkaConfig{})
	p := openProgress(t, real(b), "postrider.snapshot")
	b.Pause(t)
	defer b.Resume(t)
	ctx, cancel := context.WithCancelCause(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Save(ctx, "a", []byte("b")) }()
	cancel(context.Canceled)
	require.ErrorIs(t, <-ended, context.Canceled)
}
