package producer

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/test/parts"
)

func TestPublish_SaysHowToMakeAMissingTopic(t *testing.T) {
	c := parts.Cluster(t, kfake.SeedTopics(2, "orders"), kfake.AllowAutoTopicCreation())
	s := openSink(t, quick(c.ListenAddrs()...), newOutcomes().done)
	for range 2 { // the lookup must not have made it
		err := s.Publish(parts.Within(t, patience), numbered("invoices", 1))
		require.ErrorIs(t, err, sink.ErrUnknownTopic)
		require.ErrorContains(t, err,
			"kafka-topics.sh --bootstrap-server "+c.ListenAddrs()[0]+" --create --topic invoices")
		require.ErrorContains(t, err, "sink.kafka.topics.create")
		requireAdvice(t, err)
	}
}

// A cluster refuses more replicas than it has brokers.
func TestPublish_AdvisesAsManyReplicasAsThereAreBrokers(t *testing.T) {
	for brokers, replicas := range map[int]string{1: "1", 2: "2", 4: "3"} {
		c := parts.Cluster(t, kfake.NumBrokers(brokers))
		cfg := quick(c.ListenAddrs()...)
		err := openSink(t, cfg, newOutcomes().done).Topic(parts.Within(t, patience), "invoices")
		require.ErrorContains(t, err, `topic "invoices" does not exist; kafka-topics.sh`)
		require.ErrorContains(t, err, " --replication-factor "+replicas+";")
		require.Contains(t, kafka.CreateDeadLetterTopicCommand(cfg, "dead", brokers),
			" --replication-factor "+replicas+" ")
		require.Contains(t, kafka.CreateCompactedTopicCommand(cfg, "kept", brokers),
			" --replication-factor "+replicas+" ")

		c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Topic: "invoices",
			Err: kerr.InvalidReplicationFactor, Count: -1})
		cfg.Topics = kafka.TopicsConfig{Create: true, Partitions: 5, ReplicationFactor: 5}
		err = openSink(t, cfg, newOutcomes().done).Topic(parts.Within(t, patience), "invoices")
		require.ErrorContains(t, err, "sink.kafka.topics.replication_factor = "+replicas)
	}
	require.Contains(t, kafka.CreateTopicCommand(kafka.DefaultConfig(), "unasked", 0),
		" --replication-factor 3")
}

// requireAdvice requires what to type next by itself and at the end of the text.
func requireAdvice(t *testing.T, err error) {
	t.Helper()
	var advised interface{ Advice() (wal, fix string) }
	require.ErrorAs(t, err, &advised)
	_, fix := advised.Advice()
	require.NotEmpty(t, fix)
	require.True(t, strings.HasSuffix(err.Error(), "; "+strings.ReplaceAll(fix, "\n", "; ")),
		err.Error())
}

func TestPublish_CreatesTopicsWhenConfigured(t *testing.T) {
	c := parts.Cluster(t)
	cfg := quick(c.ListenAddrs()...)
	cfg.Topics = kafka.TopicsConfig{Create: true, Partitions: 5, ReplicationFactor: 1}
	got := newOutcomes()
	s := openSink(t, cfg, got.done)
	require.NoError(t, s.Publish(parts.Within(t, patience), numbered("invoices", 100)))
	for _, o := range got.wait(t, 100) {
		require.NoError(t, o.err)
	}
	requireInOrder(t, read(t, c, "invoices", 100), 100)

	report, err := kafka.Inspect(parts.Within(t, patience), cfg, []string{"invoices"})
	require.NoError(t, err)
	require.Equal(t, 5, report.Topics[0].Partitions)
	require.Equal(t, 1, report.Topics[0].ReplicationFactor)
}

// Brokers learn of a topic some time after the controller has created it.
func TestPublish_WaitsForATopicThatItHasCreated(t *testing.T) {
	c := parts.Cluster(t)
	const late = 16 // twice the answers that come within the patience with a missing topic, and more
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "invoices",
		Err: kerr.UnknownTopicOrPartition, Count: late})
	cfg := unhurried(c.ListenAddrs()...)
	cfg.Topics = kafka.TopicsConfig{Create: true, Partitions: 5, ReplicationFactor: 1}
	got := newOutcomes()
	s := openSink(t, cfg, got.done)
	require.NoError(t, s.Publish(parts.Within(t, patience), numbered("invoices", 1)))
	require.NoError(t, got.wait(t, 1)[0].err)
}

func TestEnsureCompacted_WaitsForTheTopicThatItHasCreated(t *testing.T) {
	c := parts.Cluster(t)
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: positionTopic,
		Err: kerr.UnknownTopicOrPartition, Count: 16})
	client, err := kafka.Connect(parts.Within(t, patience), unhurried(c.ListenAddrs()...), zerolog.Nop())
	require.NoError(t, err)
	t.Cleanup(client.Close)
	require.NoError(t, client.EnsureCompacted(parts.Within(t, patience), positionTopic, zerolog.Nop()))
	require.Contains(t, client.AllPartitions(parts.Within(t, patience), []string{positionTopic}), positionTopic)
}

func TestPublish_SaysWhyATopicCannotBeCreated(t *testing.T) {
	c := parts.Cluster(t)
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Topic: "invoices",
		Err: kerr.TopicAuthorizationFailed, Count: -1})
	cfg := quick(c.ListenAddrs()...)
	cfg.Topics = kafka.TopicsConfig{Create: true, Partitions: 5, ReplicationFactor: 1}
	s := openSink(t, cfg, newOutcomes().done)
	err := s.Publish(parts.Within(t, patience), numbered("invoices", 1))
	require.ErrorIs(t, err, sink.ErrPermission)
	require.ErrorContains(t, err, `create topic "invoices" with 5 partitions`)
}

func TestPublish_RefusesNamesThatCannotBe(t *testing.T) {
	c := parts.Cluster(t, kfake.SeedTopics(2, "orders"))
	s := openSink(t, quick(c.ListenAddrs()...), newOutcomes().done)
	for _, name := range []string{"", ".", "..", "a b", "é", "a/b", strings.Repeat("x", 250)} {
		err := s.Publish(parts.Within(t, patience), numbered(name, 1))
		require.ErrorIs(t, err, sink.ErrInvalidTopic, name)
	}
}

func TestPublish_RefusesAPartitionThatIsNotThere(t *testing.T) {
	c := parts.Cluster(t, kfake.SeedTopics(3, "orders"))
	got := newOutcomes()
	s := openSink(t, quick(c.ListenAddrs()...), got.done)
	for _, partition := range []int32{3, 1000, -2} {
		ms := numbered("orders", 2)
		ms[1].Partition = partition
		err := s.Publish(parts.Within(t, patience), ms)
		require.ErrorIs(t, err, sink.ErrInvalidRecord)
		var which *sink.MessageError
		require.ErrorAs(t, err, &which)
		require.Equal(t, ms[1].Origin, which.Origin)
	}
	for _, o := range got.wait(t, 3) { // what stood before them was taken
		require.NoError(t, o.err)
	}
}

func TestPublish_RefusesATimestampBefore1970(t *testing.T) {
	c := parts.Cluster(t, kfake.SeedTopics(1, "orders"))
	s := openSink(t, quick(c.ListenAddrs()...), newOutcomes().done)
	ms := numbered("orders", 1)
	ms[0].Timestamp = time.Date(1969, 12, 31, 23, 59, 59, 0, time.UTC)
	require.ErrorIs(t, s.Publish(parts.Within(t, patience), ms), sink.ErrInvalidRecord)
	ms[0].Timestamp = time.Unix(0, 0)
	require.NoError(t, s.Publish(parts.Within(t, patience), ms))
}

func TestPublish_RefusesATimestampThatWouldComeOutAsAnother(t *testing.T) {
	c := parts.Cluster(t, kfake.SeedTopics(1, "orders"))
	s := openSink(t, quick(c.ListenAddrs()...), newOutcomes().done)
	ms := numbered("orders", 1)
	ms[0].Timestamp = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	require.ErrorIs(t, s.Publish(parts.Within(t, patience), ms), sink.ErrInvalidRecord)
}

func TestPublish_NoticesAddedPartitions(t *testing.T) {
	c := parts.Cluster(t, kfake.SeedTopics(1, "orders"))
	got := newOutcomes()
	s := openSink(t, quick(c.ListenAddrs()...), got.done)
	ms := numbered("orders", 1)
	require.NoError(t, s.Publish(parts.Within(t, patience), ms))
	got.wait(t, 1)

	addPartitions(t, c, "orders", 4)
	ms = numbered("orders", 1)
	ms[0].Partition = 3
	require.NoError(t, s.Publish(parts.Within(t, patience), ms))
	require.NoError(t, got.wait(t, 2)[1].err)
}

func TestPublish_RefusesAMessageThatIsTooLarge(t *testing.T) {
	c := parts.Cluster(t, kfake.SeedTopics(1, "orders"))
	got := newOutcomes()
	cfg := quick(c.ListenAddrs()...)
	cfg.MaxMessageBytes = 10_000
	s := openSink(t, cfg, got.done)
	ms := numbered("orders", 3)
	ms[1].Value = make([]byte, 10_000)
	err := s.Publish(parts.Within(t, patience), ms)
	require.ErrorIs(t, err, sink.ErrTooLarge)
	require.ErrorContains(t, err, "sink.kafka.max_message_bytes is 10000")
	requireAdvice(t, err)
	var which *sink.MessageError
	require.ErrorAs(t, err, &which)
	require.Equal(t, ms[1].Origin, which.Origin)
	require.NoError(t, got.wait(t, 1)[0].err)
}

func TestPublish_ReportsWhatTheBrokerFindsTooLarge(t *testing.T) {
	c := parts.Cluster(t, kfake.SeedTopics(1, "orders"),
		kfake.BrokerConfigs(map[string]string{"message.max.bytes": "5000"}))
	got := newOutcomes()
	s := openSink(t, quick(c.ListenAddrs()...), got.done)
	ms := numbered("orders", 1)
	ms[0].Value = make([]byte, 6000)
	require.NoError(t, s.Publish(parts.Within(t, patience), ms))
	err := got.wait(t, 1)[0].err
	require.ErrorIs(t, err, sink.ErrTooLarge)
	require.ErrorIs(t, s.Publish(parts.Within(t, patience), numbered("orders", 1)), sink.ErrTooLarge,
		"the sink is to be given up")
}

func TestInspect_ReportsBrokersAndTopics(t *testing.T) {
	c := parts.Cluster(t, kfake.NumBrokers(3), kfake.SeedTopics(4, "orders"))
	report, err := kafka.Inspect(parts.Within(t, patience), quick(c.ListenAddrs()...),
		[]string{"orders", "nothing", "a b"})
	require.NoError(t, err)
	require.NotEqual(t, "unknown", report.Version)
	require.Len(t, report.Brokers, 3)
	for _, b := range report.Brokers {
		require.NoError(t, b.Err)
		require.Contains(t, c.ListenAddrs(), b.Address)
	}

	orders := report.Topics[0]
	require.NoError(t, orders.Err)
	require.NoError(t, orders.ConfigErr)
	require.Equal(t, 4, orders.Partitions)
	require.Equal(t, 3, orders.ReplicationFactor)
	require.Empty(t, orders.Leaderless)
	require.Equal(t, 1, orders.MinInsync)
	require.Equal(t, 1048588, orders.MaxMessageBytes)
	require.False(t, orders.UncleanElection)
	require.Equal(t, "delete", orders.CleanupPolicy)

	require.ErrorIs(t, report.Topics[1].Err, sink.ErrUnknownTopic)
	require.ErrorIs(t, report.Topics[2].Err, sink.ErrInvalidTopic)
}

func TestInspect_NamesABrokerThatCannotBeReachedUnderItsAdvertisedAddress(t *testing.T) {
	c := parts.Cluster(t, kfake.NumBrokers(2), kfake.SeedTopics(4, "orders"))
	gone := parts.Nobody(t)
	host, port := parts.SplitPort(t, gone)
	c.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		in := req.(*kmsg.MetadataRequest)
		out := in.ResponseKind().(*kmsg.MetadataResponse)
		out.Brokers = []kmsg.MetadataResponseBroker{{NodeID: 7, Host: host, Port: port}}
		return out, nil, true
	})
	report, err := kafka.Inspect(parts.Within(t, patience), quick(c.ListenAddrs()...),
		[]string{"orders"})
	require.NoError(t, err)
	require.Len(t, report.Brokers, 1)
	require.Equal(t, gone, report.Brokers[0].Address)
	require.ErrorIs(t, report.Brokers[0].Err, sink.ErrUnreachable)
}

func TestInspect_FailsLikeOpen(t *testing.T) {
	_, err := kafka.Inspect(parts.Within(t, patience), quick(parts.Nobody(t)), nil)
	require.ErrorIs(t, err, sink.ErrUnreachable)
}

// A broker that has just started, or has lost its controller, may not have what the cluster has:
// that is no reason to give rows up.
func TestTopic_IsMissingOnlyIfAllBrokersSaySo(t *testing.T) {
	c := parts.Cluster(t, kfake.NumBrokers(3), kfake.SeedTopics(1, "orders"))
	s := openSink(t, quick(c.ListenAddrs()...), newOutcomes().done)
	require.ErrorIs(t, s.Topic(parts.Within(t, patience), "invoices"), sink.ErrUnknownTopic)
	var failed *sink.MessageError
	require.ErrorAs(t, s.Topic(parts.Within(t, patience), "invoices"), &failed)
	require.Equal(t, "invoices", failed.Topic)
	requireAdvice(t, failed.Err)

	for _, having := range [][]int32{nil, {0}, {1}, {2}} {
		// each remembers what it has found
		s := openSink(t, quick(c.ListenAddrs()...), newOutcomes().done)
		others := slices.DeleteFunc([]int32{0, 1, 2},
			func(n int32) bool { return slices.Contains(having, n) })
		stale := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Nodes: others, Topic: "orders",
			Err: kerr.UnknownTopicOrPartition, Count: -1})
		err := s.Topic(parts.Within(t, patience), "orders")
		stale.Remove()
		require.Equal(t, len(having) == 0, errors.Is(err, sink.ErrUnknownTopic), "brokers %v have it: %v",
			having, err)
	}
}

// The relay asks so at its start whether there are dead letters: what is not sure is asked again
// with patience.
func TestLacks_OnlyIfAllBrokersSaySo(t *testing.T) {
	c := parts.Cluster(t, kfake.NumBrokers(3), kfake.SeedTopics(1, "orders"))
	client, err := kafka.Connect(parts.Within(t, patience), quick(c.ListenAddrs()...), zerolog.Nop())
	require.NoError(t, err)
	t.Cleanup(client.Close)
	require.True(t, client.Lacks(t.Context(), "invoices"))
	require.False(t, client.Lacks(t.Context(), "orders"))
	for node := range int32(3) {
		stale := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "orders",
			Nodes: slices.DeleteFunc([]int32{0, 1, 2}, func(n int32) bool { return n == node }),
			Err:   kerr.UnknownTopicOrPartition, Count: -1})
		require.False(t, client.Lacks(t.Context(), "orders"), "broker %d has it", node)
		stale.Remove()
	}
	c.ControlKey(kmsg.Metadata.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		return nil, errors.New("away"), c.CurrentNode() == 2
	})
	require.False(t, client.Lacks(t.Context(), "invoices"), "broker 2 is away")
	require.ErrorContains(t, client.Confirm(t.Context(), "invoices", nil),
		"broker 2 (127.0.0.1): ", "all topics may wait for it")
}
