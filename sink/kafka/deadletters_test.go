package kafka

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"postrider/sink"
	"postrider/test/parts"
)

func openDeadLetters(t testing.TB, broker *parts.Broker, topic, transactional string, with func(*Config)) *DeadLetters {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Brokers = broker.Brokers()
	if with != nil {
		with(&cfg)
	}
	d, err := OpenDeadLetters(t.Context(), cfg, topic, transactional, zerolog.Nop())
	require.NoError(t, err)
	t.Cleanup(d.Close)
	return d
}

func readLetters(t testing.TB, d *DeadLetters, wait time.Duration) (values []string, at []int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, d.Read(ctx, wait, func(m *sink.Message, offset int64) {
		values, at = append(values, string(m.Value)), append(at, offset)
	}))
	return values, at
}

// What fails in a transaction leaves nothing behind, and the store can be used again at once.
func TestDeadLetters_AppendAllOrNothing(t *testing.T) {
	broker := parts.RealKafka(t)
	topic, small := parts.Unique("letters"), parts.Unique("small")
	broker.CreateTopic(t, topic, 1, nil)
	broker.CreateTopic(t, small, 1, map[string]string{"max.message.bytes": "2000"})
	d := openDeadLetters(t, broker, topic, parts.Unique("id"), func(c *Config) { c.MaxMessageBytes = 50_000 })
	letter := func(topic string, n int, value string) *sink.Message {
		return &sink.Message{Topic: topic, Partition: 0, Value: []byte(value), Origin: sink.Origin{Index: uint32(n)}}
	}
	for _, size := range []int{10_000, 60_000} { // refused by the broker, and by us
		began := time.Now()
		err := d.Append(t.Context(), []*sink.Message{letter(topic, 1, "before"), letter(small, 2, string(bytes.Repeat([]byte("x"), size))), letter(topic, 3, "behind")})
		require.ErrorIs(t, err, sink.ErrTooLarge)
		failed := new(sink.MessageError)
		require.ErrorAs(t, err, &failed)
		require.EqualValues(t, 2, failed.Origin.Index)
		require.Less(t, time.Since(began), 20*time.Second)
	}
	require.NoError(t, d.Append(t.Context(), []*sink.Message{letter(topic, 1, "a"), letter(small, 2, "b")}))
	values, at := readLetters(t, d, time.Second)
	require.Equal(t, []string{"a"}, values)
	m, err := d.Get(t.Context(), 0, at[0])
	require.NoError(t, err)
	require.Equal(t, "a", string(m.Value))
	values, _ = readLetters(t, d, 0)
	require.Empty(t, values)
	require.Len(t, broker.All(t, small), 1)
}
