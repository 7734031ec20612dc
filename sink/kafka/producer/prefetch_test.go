package producer

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/test/parts"
)

// Each topic is met once, and a request for one at a time is a round trip for each.
func TestPublish_MeetsManyTopicsInOneRequest(t *testing.T) {
	const topics, batch = 1000, 250
	names := make([]string, topics)
	for i := range names {
		names[i] = fmt.Sprintf("tenant-%d", i)
	}
	c := parts.Cluster(t, kfake.SeedTopics(1, names...))
	var asked atomic.Int64
	c.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		asked.Add(1)
		return nil, nil, false
	})
	got := newOutcomes()
	s := openSink(t, quick(c.ListenAddrs()...), got.done)
	var ms []*sink.Message
	for _, name := range names {
		ms = append(ms, numbered(name, 1)...)
	}
	for at := 0; at < topics; at += batch {
		require.NoError(t, s.Publish(parts.Within(t, patience), ms[at:at+batch]))
	}
	for _, o := range got.wait(t, topics) {
		require.NoError(t, o.err)
	}
	require.Less(t, asked.Load(), int64(topics/10), "metadata requests")
}

func TestPublish_NamesTheOneMissingTopicOfMany(t *testing.T) {
	c := parts.Cluster(t, kfake.SeedTopics(1, "a", "b", "d"))
	got := newOutcomes()
	s := openSink(t, quick(c.ListenAddrs()...), got.done)
	var ms []*sink.Message
	for _, name := range []string{"a", "b", "not a topic", "c", "d"} {
		ms = append(ms, numbered(name, 1)...)
	}
	err := s.Publish(parts.Within(t, patience), ms)
	var failed *sink.MessageError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, "not a topic", failed.Topic)
	require.ErrorIs(t, err, sink.ErrInvalidTopic)
	err = s.Publish(parts.Within(t, patience), ms[3:])
	require.ErrorAs(t, err, &failed)
	require.Equal(t, "c", failed.Topic)
	require.ErrorIs(t, err, sink.ErrUnknownTopic)
	require.NoError(t, s.Publish(parts.Within(t, patience), ms[4:]))
	for _, o := range got.wait(t, 3) {
		require.NoError(t, o.err)
	}
}
