package kafka

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestSink_TellsOfEachRequestToProduce(t *testing.T) {
	c := cluster(t, kfake.SeedTopics(6, "orders"))
	var arrived, told, bytes atomic.Int64
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		arrived.Add(1)
		return nil, nil, false
	})
	cfg, got := quick(c.ListenAddrs()...), newOutcomes()
	cfg.Requested = func(n int) {
		told.Add(1)
		bytes.Add(int64(n))
	}
	s := openSink(t, cfg, got.done)
	ms := numbered("orders", 500)
	require.NoError(t, s.Publish(within(t, patience), ms))
	values := 0
	for _, o := range got.wait(t, len(ms)) {
		require.NoError(t, o.err)
		values += len(o.message.Value)
	}
	require.NoError(t, s.Close(within(t, patience)))
	require.Positive(t, arrived.Load())
	require.Equal(t, arrived.Load(), told.Load())
	require.Greater(t, bytes.Load(), int64(values))
}
