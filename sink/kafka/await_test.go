package kafka

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/test/parts"
)

func TestAwaitAnswer_EndsWhenABrokerAnswers(t *testing.T) {
	broker, _ := parts.FakeKafka(t, embedded.KafkaConfig{})
	proxy, err := parts.StartProxy(broker.Brokers()[0])
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	cfg := DefaultConfig()
	cfg.Brokers = []string{proxy.Addr()}
	require.NoError(t, AwaitAnswer(t.Context(), cfg))

	proxy.Refuse()
	ended := make(chan error, 1)
	go func() { ended <- AwaitAnswer(t.Context(), cfg) }()
	proxy.Resume()
	require.NoError(t, <-ended)

	proxy.Refuse()
	ctx, cancel := context.WithCancel(t.Context())
	go func() { ended <- AwaitAnswer(ctx, cfg) }()
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}

// What is no matter of time is for the next session to report.
func TestAwaitAnswer_DoesNotWaitForWhatStays(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	go func() { // ends with the connection
		if conn, err := l.Accept(); err == nil {
			_, _ = conn.Write([]byte("no TLS is spoken here"))
			_ = conn.Close()
		}
	}()
	cfg := DefaultConfig()
	cfg.Brokers, cfg.TLS.Enabled = []string{l.Addr().String()}, true
	require.ErrorIs(t, AwaitAnswer(t.Context(), cfg), sink.ErrTLS)
}

// A broker that takes connections and sends nothing sensible gets a request so often and no oftener.
func TestTurns_WhoAwaitsABrokerAsksNowAndThen(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	cfg := DefaultConfig()
	cfg.Brokers = []string{l.Addr().String()}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- AwaitAnswer(ctx, cfg) }()
	const questions = 5
	var first, last time.Time
	for i := range questions {
		conn, err := l.Accept()
		require.NoError(t, err)
		require.NoError(t, conn.Close())
		if last = time.Now(); i == 0 {
			first = last
		}
	}
	cancel()
	require.Error(t, <-ended)
	require.GreaterOrEqual(t, last.Sub(first), (questions-1)*answerPauseMin)
}
