package kafka

import (
	"net"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/test/parts"
)

// A broker that lies may name as many, and as long, as it likes.
func TestReachAdvertised_IsBoundedWhateverIsNamed(t *testing.T) {
	cfg := quick("localhost:9092")
	d := NewDialer(&cfg)
	defer d.Cut(net.ErrClosed)
	host, port := parts.SplitPort(t, parts.Nobody(t))
	brokers := make([]kmsg.MetadataResponseBroker, 100_000)
	for i := range brokers {
		brokers[i].NodeID, brokers[i].Host, brokers[i].Port = int32(i), host, port //nolint:gosec // few
	}
	brokers[0].Host = strings.Repeat("x", 1<<20)
	before := runtime.NumGoroutine()
	err := d.reachAdvertised(t.Context(), "elsewhere:9092", brokers)
	require.ErrorIs(t, err, sink.ErrNoBroker)
	require.ErrorContains(t, err, "broker 0")
	require.ErrorContains(t, err, "61 more brokers")
	require.Less(t, len(err.Error()), 1000)
	require.LessOrEqual(t, runtime.NumGoroutine(), before+2*advertisedDials)
}
