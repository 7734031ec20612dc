package producer

import (
	"crypto/x509"
	"net"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/test/parts"
)

// advertise has the cluster name these addresses for its brokers, to clients. That at index leader
// leads the one partition of the topic "orders".
func advertise(t *testing.T, c *kfake.Cluster, leader int, addresses ...string) {
	t.Helper()
	var brokers []kmsg.MetadataResponseBroker
	for i, address := range addresses {
		b := kmsg.NewMetadataResponseBroker()
		b.NodeID = int32(i + 7) //nolint:gosec // a handful
		b.Host, b.Port = parts.SplitPort(t, address)
		brokers = append(brokers, b)
	}
	info := c.TopicInfo("orders")
	c.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		out := req.ResponseKind().(*kmsg.MetadataResponse)
		out.Brokers, out.ControllerID = brokers, brokers[leader].NodeID
		if info == nil {
			return out, nil, true
		}
		leads := kmsg.NewMetadataResponseTopicPartition()
		leads.Leader = out.ControllerID
		leads.Replicas, leads.ISR = []int32{leads.Leader}, []int32{leads.Leader}
		one := kmsg.NewMetadataResponseTopic()
		one.Topic, one.TopicID = kmsg.StringPtr("orders"), info.TopicID
		one.Partitions = append(one.Partitions, leads)
		out.Topics = append(out.Topics, one)
		return out, nil, true
	})
}

// The first contact works, and nothing that comes after it: rows would time out without a word of
// why.
func TestOpen_NamesABrokerThatCannotBeReachedUnderItsAddress(t *testing.T) {
	c := parts.Cluster(t)
	gone, other := parts.Nobody(t), parts.Nobody(t)
	advertise(t, c, 0, gone, other)
	err := openFails(t, quick(c.ListenAddrs()...))
	require.ErrorIs(t, err, sink.ErrNoBroker)
	const cause = " cannot be reached under the address that it advertises: "
	require.ErrorContains(t, err, "broker 7"+cause+gone+": connection refused")
	require.ErrorContains(t, err, "broker 8"+cause+other+": connection refused")
	requireAdvice(t, err)
}

// Of several brokers some may be down: the relay can start with one.
func TestOpen_IsContentWithOneAdvertisedBroker(t *testing.T) {
	c := parts.Cluster(t, kfake.SeedTopics(1, "orders"))
	advertise(t, c, 2, parts.Nobody(t), parts.Nobody(t), c.ListenAddrs()[0])
	cfg := quick("localhost:" + portOf(t, c.ListenAddrs()[0]))
	session(t, cfg, []*sink.Message{event("orders", us, 1000, 0, "k")})
}

// Brokers that are off cost dial_timeout each, and not the session.
func TestOpen_WaitsForNoBrokerThatIsSilent(t *testing.T) {
	a := parts.NewAuthority(t)
	names := x509.Certificate{
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	c := parts.Cluster(t, kfake.SeedTopics(1, "orders"), kfake.TLS(a.Server(names)))
	advertise(t, c, 1, silent(t), c.ListenAddrs()[0], silent(t))
	cfg := quick("localhost:" + portOf(t, c.ListenAddrs()[0]))
	cfg.DialTimeout = 2 * patience
	cfg.TLS = kafka.TLSConfig{Enabled: true, CAFile: a.CAFile()}
	session(t, cfg, []*sink.Message{event("orders", us, 1000, 0, "k")})
}

// A proxy may give its own addresses to clients, in Metadata, and leave DescribeCluster, which is
// for tools, as it is.
func TestOpen_TakesTheAddressesThatClientsAreGiven(t *testing.T) {
	c := parts.Cluster(t, kfake.SeedTopics(1, "orders"))
	host, port := parts.SplitPort(t, parts.Nobody(t))
	c.ControlKey(int16(kmsg.DescribeCluster), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		out := req.ResponseKind().(*kmsg.DescribeClusterResponse)
		b := kmsg.NewDescribeClusterResponseBroker()
		b.NodeID, b.Host, b.Port = 7, host, port
		out.Brokers = append(out.Brokers, b)
		return out, nil, true
	})
	cfg := quick("localhost:" + portOf(t, c.ListenAddrs()[0]))
	session(t, cfg, []*sink.Message{event("orders", us, 1000, 0, "k")})
}

// Where nobody names the brokers in time, the session itself finds out what works.
func TestOpen_GoesOnWhereTheBrokersAreNotNamed(t *testing.T) {
	c := parts.Cluster(t, kfake.SeedTopics(1, "orders"))
	var asked atomic.Bool
	c.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
		asked.Store(true) // the answer to the next question is the cluster's
		return nil, net.ErrClosed, true
	})
	session(t, quick(c.ListenAddrs()...), []*sink.Message{event("orders", us, 1000, 0, "k")})
	require.True(t, asked.Load())
}

// silent is the address of a broker that takes connections and sends nothing.
func silent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

func portOf(t *testing.T, address string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	return port
}
