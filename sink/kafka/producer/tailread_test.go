package producer

import (
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/test/parts"
)

// With many partitions that cannot be read, a session ends at the first, and its error is of that
// one alone: the next session reads all of them again.
func TestPublished_EndsAtTheFirstPartitionThatCannotBeRead(t *testing.T) {
	c := parts.Cluster(t, kfake.SeedTopics(100, "orders"))
	var mu sync.Mutex
	requested := map[int32]bool{}
	c.ControlKey(int16(kmsg.ListOffsets), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		answer := r.ResponseKind().(*kmsg.ListOffsetsResponse)
		topic, p := kmsg.NewListOffsetsResponseTopic(), kmsg.NewListOffsetsResponseTopicPartition()
		topic.Topic = "orders"
		p.Partition = r.(*kmsg.ListOffsetsRequest).Topics[0].Partitions[0].Partition
		p.ErrorCode = kerr.TopicAuthorizationFailed.Code
		requested[p.Partition] = true
		topic.Partitions = append(topic.Partitions, p)
		answer.Topics = append(answer.Topics, topic)
		return answer, nil, true
	})
	s := openSink(t, quick(c.ListenAddrs()...), newOutcomes().done)
	_, err := s.Published(parts.Within(t, patience), us, event("orders", us, 7, 0, "k"))
	require.ErrorIs(t, err, sink.ErrPermission)
	require.Equal(t, 1, strings.Count(err.Error(), `of topic "orders"`), err)
	mu.Lock()
	defer mu.Unlock()
	require.LessOrEqual(t, len(requested), tailReaders)
}
