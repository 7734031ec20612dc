package producer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/internal/secret"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/test/parts"
)

func allow(resource kmsg.ACLResourceType, name string, operation kmsg.ACLOperation) kfake.ACL {
	return kfake.ACL{Resource: resource, Name: name, Pattern: kmsg.ACLResourcePatternTypeLiteral,
		Operation: operation, Allow: true}
}

func as(c *kfake.Cluster, user string) kafka.Config {
	cfg := quick(c.ListenAddrs()...)
	cfg.SASL = kafka.SASLConfig{Mechanism: "PLAIN", Username: user,
		Password: secret.Of("s3cret-canary")}
	return cfg
}

func TestInspect_SeesWhatTheLoginMayDo(t *testing.T) {
	topic := kmsg.ACLResourceTypeTopic
	c := parts.Cluster(t, kfake.SeedTopics(2, "orders"), kfake.EnableSASL(), kfake.EnableACLs(),
		kfake.User("PLAIN", "looker", "s3cret-canary",
			allow(topic, "orders", kmsg.ACLOperationDescribe)),
		kfake.User("PLAIN", "writer", "s3cret-canary", allow(topic, "orders", kmsg.ACLOperationDescribe),
			allow(topic, "orders", kmsg.ACLOperationWrite)),
		kfake.User("PLAIN", "reader", "s3cret-canary", allow(topic, "orders", kmsg.ACLOperationDescribe),
			allow(topic, "orders", kmsg.ACLOperationWrite),
			allow(topic, "orders", kmsg.ACLOperationRead),
			allow(topic, "orders", kmsg.ACLOperationDescribeConfigs)),
	)
	for user, want := range map[string]kafka.Rights{
		"looker": {Known: true}, "writer": {Known: true, Write: true},
		"reader": {Known: true, Write: true, Read: true},
	} {
		report, err := kafka.Inspect(parts.Within(t, patience), as(c, user), []string{"orders"})
		require.NoError(t, err)
		require.NoError(t, report.Topics[0].Err)
		require.Equal(t, want, report.Topics[0].Rights, user)
		require.Equal(t, kafka.AuthoriserOn, report.Authoriser,
			"it may not look at ACLs, so there are some")
		if user == "looker" {
			require.ErrorIs(t, report.Idempotence, sink.ErrPermission)
		} else {
			require.NoError(t, report.Idempotence)
		}
		require.Equal(t, user == "reader", report.Topics[0].ConfigErr == nil, user)
	}
}

func TestInspect_SeesAClusterWithoutAnAuthoriser(t *testing.T) {
	c := parts.Cluster(t, kfake.SeedTopics(1, "orders"))
	c.ControlKey(int16(kmsg.DescribeACLs), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		out := req.ResponseKind().(*kmsg.DescribeACLsResponse)
		out.ErrorCode = 54 // SECURITY_DISABLED, as a real broker answers; this one has no such state
		return out, nil, true
	})
	report, err := kafka.Inspect(parts.Within(t, patience), quick(c.ListenAddrs()...),
		[]string{"orders"})
	require.NoError(t, err)
	require.Equal(t, kafka.AuthoriserOff, report.Authoriser)
}

func TestInspect_WaitsForABrokerThatHasJustStarted(t *testing.T) {
	c := parts.Cluster(t, kfake.SeedTopics(1, "orders"))
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.CoordinatorLoadInProgress,
		Count: 3})
	report, err := kafka.Inspect(parts.Within(t, patience), quick(c.ListenAddrs()...),
		[]string{"orders"})
	require.NoError(t, err)
	require.NoError(t, report.Idempotence)
}

func TestInspect_CountsReplicasInSync(t *testing.T) {
	c := parts.Cluster(t, kfake.NumBrokers(3), kfake.SeedTopics(2, "orders"))
	c.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		in := req.(*kmsg.MetadataRequest)
		out := in.ResponseKind().(*kmsg.MetadataResponse)
		for i, address := range c.ListenAddrs() {
			host, port := parts.SplitPort(t, address)
			out.Brokers = append(out.Brokers, kmsg.MetadataResponseBroker{NodeID: int32(i), Host: host,
				Port: port}) //nolint:gosec // three
		}
		name := "orders"
		one := kmsg.MetadataResponseTopic{Topic: &name, AuthorizedOperations: -1 << 31}
		for p, inSync := range [][]int32{{0, 1, 2}, {0}} {
			one.Partitions = append(one.Partitions,
				kmsg.MetadataResponseTopicPartition{Partition: int32(p), Leader: 0, Replicas: []int32{0, 1, 2},
					ISR: inSync}) //nolint:gosec // two
		}
		out.Topics = []kmsg.MetadataResponseTopic{one}
		return out, nil, true
	})
	report, err := kafka.Inspect(parts.Within(t, patience), quick(c.ListenAddrs()...),
		[]string{"orders"})
	require.NoError(t, err)
	require.Equal(t, 3, report.Topics[0].ReplicationFactor)
	require.Equal(t, []int{3, 1}, report.Topics[0].InSync)
	require.False(t, report.Topics[0].Rights.Known, "the broker did not report it")
}

func TestInspect_AsksARealAuthoriser(t *testing.T) {
	t.Parallel()
	b := parts.ExclusiveKafka(t, parts.KafkaConfig{Protocol: "SASL_PLAINTEXT",
		Properties: map[string]string{
			"sasl.enabled.mechanisms":                     "PLAIN",
			"listener.name.client.plain.sasl.jaas.config": `org.apache.kafka.common.security.plain.PlainLoginModule required user_rider="s3cret-canary";`,
			"authorizer.class.name":                       "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
			// the broker itself, and the test
			"super.users": "User:ANONYMOUS",
		}})
	topic := b.Topic(t, 1)
	cfg := real(b)
	cfg.SASL = kafka.SASLConfig{Mechanism: "PLAIN", Username: "rider",
		Password: secret.Of("s3cret-canary")}
	inspect := func() kafka.Report {
		report, err := kafka.Inspect(parts.Within(t, patience), cfg, []string{topic})
		require.NoError(t, err)
		require.Equal(t, kafka.AuthoriserOn, report.Authoriser)
		return report
	}
	admin := kadm.NewClient(b.Client(t))
	grant := func(operations ...kadm.ACLOperation) {
		_, err := admin.CreateACLs(t.Context(),
			kadm.NewACLs().Topics(topic).ResourcePatternType(kadm.ACLPatternLiteral).Operations(operations...).Allow("User:rider").AllowHosts("*"))
		require.NoError(t, err)
	}
	report := inspect()
	require.ErrorIs(t, report.Topics[0].Err, sink.ErrPermission)
	require.ErrorIs(t, report.Idempotence, sink.ErrPermission)

	await := func(what string, done func(kafka.Report) bool) {
		require.Eventually(t, func() bool { return done(inspect()) }, patience, 50*time.Millisecond,
			what)
	}
	grant(kadm.OpDescribe)
	await("Describe counts",
		func(r kafka.Report) bool { return r.Topics[0].Rights == kafka.Rights{Known: true} })
	report = inspect()
	require.ErrorIs(t, report.Idempotence, sink.ErrPermission)
	require.ErrorIs(t, report.Topics[0].ConfigErr, sink.ErrPermission)

	grant(kadm.OpWrite) // what kafka-acls.sh --producer gives
	await("Write counts", func(r kafka.Report) bool {
		return r.Topics[0].Rights.Write &&
			r.Idempotence == nil
	})
	requireDeliversTo(t, cfg, topic)

	grant(kadm.OpDescribeConfigs)
	await("DescribeConfigs counts", func(r kafka.Report) bool { return r.Topics[0].ConfigErr == nil })
}

// requireDeliversTo publishes one message.
func requireDeliversTo(t *testing.T, cfg kafka.Config, topic string) {
	t.Helper()
	got := newOutcomes()
	s := openSink(t, cfg, got.done)
	require.NoError(t, s.Publish(parts.Within(t, patience), numbered(topic, 1)))
	require.NoError(t, got.wait(t, 1)[0].err)
}

func TestRecordSize_IsWhatTheLimitCounts(t *testing.T) {
	m := numbered("orders", 1)[0]
	m.Value = make([]byte, 5000)
	c := parts.Cluster(t, kfake.SeedTopics(1, "orders"))
	for limit, is := range map[int]error{kafka.RecordSize(m): nil,
		kafka.RecordSize(m) - 1: sink.ErrTooLarge} {
		cfg := quick(c.ListenAddrs()...)
		cfg.MaxMessageBytes = limit
		s := openSink(t, cfg, newOutcomes().done)
		require.ErrorIs(t, s.Publish(parts.Within(t, patience), []*sink.Message{m}), is)
	}
}
