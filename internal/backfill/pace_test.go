package backfill

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/metrics"
	"github.com/postrider/postrider/internal/ratelimit"
)

// A row of a MiB takes 1,000 s at this rate: a stop that waited for it would not end.
func TestCopy_KeepsTheRateAndAStopLiftsIt(t *testing.T) {
	x := newSnapshotPlace(t)
	x.parts.Limiter = ratelimit.New(ratelimit.Rate{Bytes: 1 << 10}, nil, x.parts.Metrics)
	x.exec(`INSERT INTO outbox SELECT n, 'Order', repeat('k', 1 << 20), n FROM generate_series(1, 7) n`)
	x.parts.Limits.Bytes = 1 << 30
	stop, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- x.run(x.begun(), stop) }()
	require.Eventually(t, func() bool { return x.parts.Limiter.State().Limiting != "" }, patience, 1e6)
	require.Equal(t, numbers(1, 1), x.published())
	cancel()
	require.NoError(t, <-ended)
	require.Equal(t, numbers(1, 3), x.published(), "the rest of the chunk")

	x.parts.Limiter.Set(ratelimit.Rate{}, nil)
	require.NoError(t, x.run(x.begun(), context.Background()))
	require.Equal(t, numbers(1, 7), x.published())
}

func TestRecovery_KeepsTheRate(t *testing.T) {
	x := newRecoveryPlace(t)
	x.parts.Limiter = ratelimit.New(ratelimit.Rate{Rows: 1_000_000}, nil, metrics.New(prometheus.NewRegistry(), "s"))
	x.exec(`INSERT INTO outbox SELECT n, 'Order', 'k', n FROM generate_series(1, 7) n`)
	x.published(Selection{})
	require.Equal(t, []int{1, 2, 3, 4, 5, 6, 7}, x.payloads())
	require.EqualValues(t, 7, x.parts.Limiter.State().Messages, "each was counted")
}
