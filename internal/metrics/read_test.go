package metrics

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

func TestSet_ReadsItselfBack(t *testing.T) {
	s := New(prometheus.NewRegistry(), "orders")
	require.Empty(t, s.Topics())
	require.Zero(t, s.Failed())
	s.Topic("b").Published.Add(2)
	s.Topic("a").Bytes.Add(7)
	s.Topic("a").Last.Set(1_700_000_000.5)
	require.Equal(t, []TopicReading{
		{Topic: "a", Bytes: 7, Last: 1_700_000_000.5}, {Topic: "b", Published: 2},
	}, s.Topics())
	s.PublishErrors.WithLabelValues("too_large").Inc()
	s.PublishErrors.WithLabelValues("broker_unreachable").Add(2)
	require.Equal(t, 3.0, s.Failed())
	s.CommitToAck.Observe(0.0009)
	s.CommitToAck.Observe(1000)
	bounds, counts := s.Latency()
	require.Equal(t, latencyBuckets, bounds)
	require.Len(t, counts, len(bounds)+1)
	require.Equal(t, []uint64{0, 1}, counts[:2])
	require.Equal(t, uint64(2), counts[len(bounds)])
}
