package snapshot

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
)

func TestPublished_FindsEachMessageOnce(t *testing.T) {
	message := func(change func(*sink.Message)) *sink.Message {
		m := &sink.Message{Topic: "t", Key: []byte("k"), Value: []byte("v"), Headers: []sink.Header{{Key: "id", Value: []byte("1")}, {Key: "x"}}}
		change(m)
		return m
	}
	same := func(*sink.Message) {}
	p := newPublished()
	p.add(message(same))
	p.add(message(same))
	for _, change := range []func(*sink.Message){
		func(m *sink.Message) { m.Topic = "u" },
		func(m *sink.Message) { m.Key, m.Value = []byte("kv"), nil },
		func(m *sink.Message) { m.Value = []byte("w") },
		func(m *sink.Message) { m.Headers[0].Value = []byte("2") },
		func(m *sink.Message) { m.Headers = m.Headers[:1] },
		func(m *sink.Message) { m.Headers[1].Key = "y" },
	} {
		require.False(t, p.take(message(change)))
	}
	require.True(t, p.take(message(func(m *sink.Message) { // what differs from run to run
		m.Partition = 3
		m.Headers = append(m.Headers, sink.Header{Key: router.HeaderLSN, Value: []byte("0/1")}, sink.Header{Key: router.HeaderIndex, Value: []byte("7")},
			sink.Header{Key: sink.HeaderSource, Value: []byte("7/1/s/p@1")}, sink.Header{Key: sink.HeaderRedriven, Value: []byte("0f")},
			sink.Header{Key: "__debezium.context.runId", Value: []byte("a uuid")})
	})))
	require.True(t, p.take(message(same)))
	require.False(t, p.take(message(same)))
	require.Zero(t, p.left)
	require.False(t, (*published)(nil).take(message(same)))
}
