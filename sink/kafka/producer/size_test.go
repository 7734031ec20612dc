package producer

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/test/parts"
)

// noise is what no compression makes smaller.
func noise(n int) []byte {
	r := rand.New(rand.NewPCG(rand.Uint64(), 1))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// half is text of which about half is left.
func half(n int) []byte {
	return append(noise(n/2), bytes.Repeat([]byte("compressible "), n/2/13)...)
}

// What the broker takes because it is compressed goes through, and nothing is refused because of
// what stands beside it.
func TestSink_LimitsWhatIsSent(t *testing.T) {
	t.Parallel()
	b := parts.ExclusiveKafka(t, parts.KafkaConfig{}) // which takes batches of 1,048,588 bytes
	for _, compression := range []string{"gzip", "snappy", "lz4", "zstd"} {
		t.Run(compression, func(t *testing.T) {
			topic := b.Topic(t, 1)
			cfg := real(b)
			cfg.Compression = compression
			got := newOutcomes()
			s := openSink(t, cfg, got.done)
			var ms []*sink.Message
			add := func(value []byte) {
				ms = append(ms, &sink.Message{Topic: topic, Key: fmt.Append(nil, len(ms)), Value: value,
					Partition: sink.ByKey})
			}
			for range 2 {
				add(bytes.Repeat([]byte("compressible "), 200_000/13))
				for range 20 {
					add(noise(40_000))
				}
				add(half(1_800_000)) // together with one row before or behind it, it would be too large
				for range 20 {
					add(noise(40_000))
				}
				add(bytes.Repeat([]byte("compressible "), 2_000_000/13))
				add(half(1_700_000))
				add(half(1_700_000))
			}
			require.NoError(t, s.Topic(parts.Within(t, patience), topic))
			b.Pause(t) // so that they meet in batches
			published := make(chan error, 1)
			go func() { published <- s.Publish(parts.Within(t, patience), ms) }()
			eventuallyInFlight(t, s, len(ms))
			b.Resume(t)
			require.NoError(t, <-published)
			for _, o := range got.wait(t, len(ms)) {
				require.NoError(t, o.err)
			}
			for i, r := range b.Consume(t, topic, len(ms)) {
				require.Equal(t, fmt.Sprint(i), string(r.Key))
				require.True(t, bytes.Equal(ms[i].Value, r.Value), "message %d", i)
			}

			err := s.Publish(parts.Within(t, patience), []*sink.Message{
				{Topic: topic, Key: []byte("before"), Value: []byte("small"), Partition: sink.ByKey},
				{Topic: topic, Key: []byte("large"), Value: half(2_300_000), Partition: sink.ByKey,
					Origin: sink.Origin{EventID: "e7"}},
			})
			require.ErrorIs(t, err, sink.ErrTooLarge)
			var failed *sink.MessageError
			require.True(t, errors.As(err, &failed) && failed.Untaken)
			require.Equal(t, "e7", failed.Origin.EventID)
			require.ErrorContains(t, err, "after "+compression)
			t.Log(err)
			require.NoError(t, got.wait(t, len(ms)+1)[len(ms)].err)
			require.NoError(t, s.Publish(parts.Within(t, patience),
				[]*sink.Message{{Topic: topic, Key: []byte("behind"), Partition: sink.ByKey}}))
			require.NoError(t, got.wait(t, len(ms)+2)[len(ms)+1].err)
		})
	}
}

// eventuallyInFlight waits until the sink has taken n messages.
func eventuallyInFlight(t *testing.T, s *Sink, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return s.published.Load() >= int64(n) }, patience,
		5*time.Millisecond)
}

func TestSink_RefusesWhatCannotBeMadeSmaller(t *testing.T) {
	b := parts.RealKafka(t)
	topic := b.Topic(t, 1)
	for name, test := range map[string]struct {
		compression string
		message     sink.Message
		says        string
	}{
		"no compression": {"none", sink.Message{Value: make([]byte, 2<<20)},
			"sink.kafka.max_message_bytes is 1048576"},
		"raw limit": {"zstd", sink.Message{Value: make([]byte, 100<<20)}, "before compression"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := real(b)
			cfg.Compression = test.compression
			s := openSink(t, cfg, newOutcomes().done)
			m := test.message
			m.Topic, m.Partition = topic, sink.ByKey
			err := s.Publish(parts.Within(t, patience), []*sink.Message{&m})
			require.ErrorIs(t, err, sink.ErrTooLarge)
			require.ErrorContains(t, err, test.says)
		})
	}
}

// The key may be what is large, as of a tombstone, or a header.
func TestSink_SendsALargeKeyOrHeader(t *testing.T) {
	b := parts.RealKafka(t)
	topic := b.Topic(t, 1)
	cfg := real(b)
	cfg.Compression = "zstd"
	session(t, cfg, []*sink.Message{
		{Topic: topic, Key: bytes.Repeat([]byte("k"), 2<<20), Partition: sink.ByKey},
		{Topic: topic, Key: []byte("k"), Headers: []sink.Header{{Key: "h", Value: make([]byte, 2<<20)}},
			Partition: sink.ByKey},
	})
	records := b.Consume(t, topic, 2)
	require.Len(t, records[0].Key, 2<<20)
	require.Len(t, records[1].Headers[0].Value, 2<<20)
}
