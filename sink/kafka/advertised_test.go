package kafka

import (
	"net"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"postrider/sink"
)

// advertise has the cluster name these addresses for its brokers.
func advertise(t *testing.T, c *kfake.Cluster, addresses ...string) {
	t.Helper()
	response := kmsg.NewPtrDescribeClusterResponse()
	for i, address := range addresses {
		host, port, err := net.SplitHostPort(address)
		require.NoError(t, err)
		number, err := strconv.ParseInt(port, 10, 32)
		require.NoError(t, err)
		b := kmsg.NewDescribeClusterResponseBroker()
		b.NodeID, b.Host, b.Port = int32(i+7), host, int32(number) //nolint:gosec // a handful
		response.Brokers = append(response.Brokers, b)
	}
	c.ControlKey(int16(kmsg.DescribeCluster), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		response.Version = req.GetVersion()
		return response, nil, true
	})
}

// The first contact works, and nothing that comes after it: rows would time out without a word of why.
func TestOpen_NamesABrokerThatCannotBeReachedUnderItsAddress(t *testing.T) {
	c := cluster(t)
	gone := nobody(t)
	advertise(t, c, gone)
	err := openFails(t, quick(c.ListenAddrs()...))
	require.ErrorIs(t, err, sink.ErrNoBroker)
	require.ErrorContains(t, err, "broker 7 cannot be reached under the address that it advertises: "+gone+": connection refused")
	requireAdvice(t, err)
}

// Of several brokers some may be down: the relay can start with one.
func TestOpen_IsContentWithOneAdvertisedBroker(t *testing.T) {
	c := cluster(t)
	advertise(t, c, nobody(t), c.ListenAddrs()[0])
	openSink(t, quick("localhost:"+portOf(t, c.ListenAddrs()[0])), newOutcomes().done)
}

func portOf(t *testing.T, address string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	return port
}
