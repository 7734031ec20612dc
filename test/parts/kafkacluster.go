package parts

import (
	"context"
	"crypto/x509"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Login of the clients of a KafkaCluster, with SCRAM-SHA-256.
const (
	ClusterUser     = "rider"
	ClusterPassword = "s3cret"
)

const scramLogin = "org.apache.kafka.common.security.scram.ScramLoginModule"

// clusterNodes are brokers and controllers; brokers that are added later are no controllers.
const clusterNodes = 3

// KafkaCluster is a cluster of three brokers of one test, as it is run in production: each topic
// has three replicas, of which two have to be in sync, and clients log in with SCRAM over TLS. The
// Broker in it is for what concerns the whole cluster. Nodes are for killing and restarting.
type KafkaCluster struct {
	*Broker
	Nodes  []*Broker // by node ID, from 1 at index 0
	CAFile string    // which clients trust

	cfg    KafkaConfig
	cache  kafkaCache
	client *kgo.Client // for State; nil until its first call
}

// StartKafkaCluster starts one, with cfg for each of its brokers. It ends with the test.
func StartKafkaCluster(t testing.TB, cfg KafkaConfig) *KafkaCluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	c := &KafkaCluster{Broker: &Broker{Real: true, replicas: clusterNodes}}
	err := checkJava(ctx)
	if err == nil {
		c.cache, err = prepareKafka(ctx)
	}
	if err != nil {
		Lacking(t, "kafka", err.Error())
	}
	c.cfg = secured(t, NewAuthority(t), cfg, c)
	for range clusterNodes {
		address, err := freeAddress()
		require.NoError(t, err)
		c.cfg.controllers = append(c.cfg.controllers, address)
	}
	for range clusterNodes { // the first can be ready only when a second is there
		c.add(t, "")
	}
	for _, node := range c.Nodes {
		require.NoError(t, node.waitReady(ctx), node.process.out.LastLines(20))
	}
	c.withAdmin(t, func(admin *kadm.Client) {
		_, err := admin.AlterUserSCRAMs(ctx, nil, []kadm.UpsertSCRAM{{User: ClusterUser,
			Mechanism: kadm.ScramSha256, Iterations: 4096, Password: ClusterPassword}})
		require.NoError(t, err)
	})
	return c
}

// secured adds TLS and SCRAM, and what a cluster of three has unlike a single broker.
func secured(t testing.TB, a *Authority, cfg KafkaConfig, c *KafkaCluster) KafkaConfig {
	t.Helper()
	c.CAFile = a.CAFile()
	cfg.Protocol = "SASL_SSL"
	properties := map[string]string{
		"listener.name.client.ssl.keystore.type":              "PEM",
		"listener.name.client.ssl.keystore.location":          a.Keystore("broker", x509.Certificate{}),
		"listener.name.client.sasl.enabled.mechanisms":        "SCRAM-SHA-256",
		"listener.name.client.scram-sha-256.sasl.jaas.config": scramLogin + " required;",
		"min.insync.replicas":                                 "2",
		"default.replication.factor":                          "3",
		"offsets.topic.replication.factor":                    "3",
		"transaction.state.log.replication.factor":            "3",
		"transaction.state.log.min.isr":                       "2",
		"controlled.shutdown.enable":                          "true",
		"controller.quorum.election.timeout.ms":               "500",
		"controller.quorum.fetch.timeout.ms":                  "1000",
	}
	maps.Copy(properties, cfg.Properties)
	cfg.Properties = properties
	return cfg
}

// add starts one more broker, and does not wait until it is ready.
func (c *KafkaCluster) add(t testing.TB, dir string) *Broker {
	t.Helper()
	cfg := c.cfg
	cfg.data = dir
	cfg.node = len(c.Nodes) + 1
	process, err := newJavaProcess("kafka", "kafka.Kafka",
		slices.Concat(javaFlags(c.cache.jars), cfg.Java,
			[]string{"-XX:SharedArchiveFile=" + c.cache.classes}))
	require.NoError(t, err)
	node := &Broker{Real: true, process: process}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("end of the log of Kafka node %d:\n%s", cfg.node,
				lastPart(process.out.String(), 4000))
		}
		require.NoError(t, node.close())
	})
	require.NoError(t, node.configure(cfg, c.cache.formatted))
	require.NoError(t, node.process.start())
	c.Nodes = append(c.Nodes, node)
	c.clients, c.direct = append(c.clients, node.clients...), append(c.direct, node.direct...)
	return node
}

// Add starts one more broker, which is no controller, and returns when it is ready. It has its
// data in dir; empty: with its other files.
func (c *KafkaCluster) Add(t testing.TB, dir string) *Broker {
	t.Helper()
	node := c.add(t, dir)
	require.NoError(t, node.waitReady(t.Context()), node.process.out.LastLines(20))
	return node
}

// Controller is the index in Nodes of the broker that is the active controller.
func (c *KafkaCluster) Controller(t testing.TB) (index int) {
	t.Helper()
	request := kmsg.NewPtrDescribeQuorumRequest()
	of := kmsg.NewDescribeQuorumRequestTopic()
	of.Topic = "__cluster_metadata"
	of.Partitions = append(of.Partitions, kmsg.NewDescribeQuorumRequestTopicPartition())
	request.Topics = append(request.Topics, of)
	c.withAdmin(t, func(admin *kadm.Client) {
		Await(t, "an active controller", func() (bool, error) {
			answer, err := request.RequestWith(t.Context(), c.Client(t))
			if err != nil || len(answer.Topics) != 1 || len(answer.Topics[0].Partitions) != 1 {
				return false, err
			}
			index = int(answer.Topics[0].Partitions[0].LeaderID) - 1
			return index >= 0, nil
		})
	})
	return index
}

// Partition is the state of a partition by the controller.
type Partition struct {
	Leader        int32 // node ID; negative: none
	Replicas, ISR []int32
}

// State is the state of the partitions of a topic, by number; nil if nobody answers.
func (c *KafkaCluster) State(t testing.TB, topic string) map[int32]Partition {
	t.Helper()
	found := map[int32]Partition{}
	if c.client == nil {
		c.client = c.Client(t, kgo.RetryTimeout(time.Second), kgo.DialTimeout(time.Second))
	}
	topics, err := kadm.NewClient(c.client).ListTopics(t.Context(), topic)
	if err != nil {
		return nil
	}
	for _, p := range topics[topic].Partitions {
		found[p.Partition] = Partition{Leader: p.Leader, Replicas: p.Replicas, ISR: p.ISR}
	}
	return found
}

// AwaitInSync returns when every replica of the topics is in sync.
func (c *KafkaCluster) AwaitInSync(t testing.TB, topics ...string) {
	t.Helper()
	behind := func(p Partition) bool { return p.Leader < 0 || len(p.ISR) < len(p.Replicas) }
	for _, topic := range topics {
		Await(t, "replicas of "+topic+" in sync", func() (bool, error) {
			state := slices.Collect(maps.Values(c.State(t, topic)))
			return len(state) > 0 && !slices.ContainsFunc(state, behind), nil
		})
	}
}

// Reassign gives the partitions of a topic other replicas, the preferred leader first, and returns
// when that is done.
func (c *KafkaCluster) Reassign(t testing.TB, topic string, replicas map[int32][]int32) {
	t.Helper()
	c.withAdmin(t, func(admin *kadm.Client) {
		var request kadm.AlterPartitionAssignmentsReq
		for number, nodes := range replicas {
			request.Assign(topic, number, nodes)
		}
		answers, err := admin.AlterPartitionAssignments(t.Context(), request)
		require.NoError(t, err)
		require.NoError(t, answers.Error())
	})
	Await(t, "reassignment of "+topic, func() (bool, error) {
		state := c.State(t, topic)
		for number, nodes := range replicas {
			if !slices.Equal(state[number].Replicas, nodes) {
				return false, nil
			}
		}
		return true, nil
	})
}

// Elect has the controller elect leaders of a topic: its preferred ones, or, of partitions without
// one, any replica.
func (c *KafkaCluster) Elect(t testing.TB, how kadm.ElectLeadersHow, topic string) {
	t.Helper()
	c.withAdmin(t, func(admin *kadm.Client) {
		set := kadm.TopicsSet{}
		for number := range c.State(t, topic) {
			set.Add(topic, number)
		}
		_, err := admin.ElectLeaders(t.Context(), how, set)
		require.NoError(t, err)
	})
}

// AddPartitions makes a topic have n partitions.
func (c *KafkaCluster) AddPartitions(t testing.TB, topic string, n int) {
	t.Helper()
	c.withAdmin(t, func(admin *kadm.Client) {
		answers, err := admin.UpdatePartitions(t.Context(), n, topic)
		require.NoError(t, err)
		require.NoError(t, answers.Error())
	})
	Await(t, "partitions of "+topic, func() (bool, error) { return len(c.State(t, topic)) == n, nil })
}
