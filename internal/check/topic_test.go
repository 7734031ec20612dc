package check

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/secret"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
)

// goodTopic is a topic as it should be, in a cluster of three brokers.
func goodTopic(change func(*kafka.TopicReport)) kafka.TopicReport {
	t := kafka.TopicReport{
		Name: "orders", Partitions: 2, ReplicationFactor: 3, InSync: []int{3, 3},
		Rights:    kafka.Rights{Known: true, Write: true, Read: true},
		MinInsync: 2, MaxMessageBytes: 1 << 20, CleanupPolicy: "delete", Compression: "producer",
		TimestampType: "CreateTime", TimestampMaxAhead: time.Hour,
	}
	if change != nil {
		change(&t)
	}
	return t
}

func topicChecker(change func(*config.Config)) topicCheck {
	cfg := config.Default()
	cfg.Sink.Kafka.Brokers = []string{"kafka-1:9092"}
	cfg.Sink.Kafka.SASL = kafka.SASLConfig{Mechanism: "PLAIN", Username: "rider",
		Password: secret.Of("s3cret-canary")}
	if change != nil {
		change(&cfg)
	}
	return topicCheck{kafka: cfg.Sink.Kafka, all: cfg, brokers: 3, acls: true}
}

// wrong are the findings that are not ok.
func wrong(findings []Finding) []Finding {
	var found []Finding
	for _, f := range findings {
		if f.Severity != SeverityOK {
			found = append(found, f)
		}
	}
	return found
}

func TestTopicCheck_JudgesEverySetting(t *testing.T) {
	require.Empty(t, wrong(topicChecker(nil).topic(goodTopic(nil), true)))
	for name, c := range map[string]struct {
		change   func(*kafka.TopicReport)
		config   func(*config.Config)
		code     string
		severity Severity
		fix      string
	}{
		"no leader": {func(t *kafka.TopicReport) { t.Leaderless = []int32{1} }, nil,
			"topic_leader", SeverityWarning, "start the missing brokers"},
		"unclean election": {func(t *kafka.TopicReport) { t.UncleanElection = true }, nil,
			"topic_leader", SeverityWarning, "unclean.leader.election.enable=false"},
		"one replica": {func(t *kafka.TopicReport) {
			t.ReplicationFactor, t.MinInsync, t.InSync = 1, 1, []int{1, 1}
		}, nil,
			"topic_replicas", SeverityWarning, "kafka-reassign-partitions.sh"},
		"all replicas needed": {func(t *kafka.TopicReport) { t.MinInsync = 3 }, nil,
			"topic_replicas", SeverityWarning, "min.insync.replicas=2"},
		"more than there are": {func(t *kafka.TopicReport) { t.MinInsync = 4 }, nil,
			"topic_replicas", SeverityError, "min.insync.replicas=2"},
		"one is enough": {func(t *kafka.TopicReport) { t.MinInsync = 1 }, nil,
			"topic_replicas", SeverityWarning, "min.insync.replicas=2"},
		"too few in sync": {func(t *kafka.TopicReport) { t.InSync = []int{3, 1} }, nil,
			"topic_replicas", SeverityWarning, "start the missing brokers"},
		"smaller messages": {func(t *kafka.TopicReport) { t.MaxMessageBytes = 1000 }, nil,
			"topic_size", SeverityWarning, "max.message.bytes=1048576"},
		"compact": {func(t *kafka.TopicReport) { t.CleanupPolicy = "compact" }, nil,
			"topic_cleanup", SeverityInfo, "cleanup.policy=delete"},
		"compact without keys": {func(t *kafka.TopicReport) { t.CleanupPolicy = "compact" },
			func(c *config.Config) { c.Router[0].NullKey = "publish" },
			"topic_cleanup", SeverityWarning, "router.null_key"},
		"compressed again": {func(t *kafka.TopicReport) { t.Compression = "gzip" }, nil,
			"topic_compression", SeverityInfo, "compression.type=producer"},
		"the broker's time": {func(t *kafka.TopicReport) { t.TimestampType = "LogAppendTime" },
			nil,
			"topic_timestamp", SeverityInfo, "message.timestamp.type=CreateTime"},
		"no old records": {func(t *kafka.TopicReport) { t.TimestampMaxAge = time.Hour }, nil,
			"topic_timestamp", SeverityWarning, "message.timestamp.before.max.ms="},
		"clocks": {func(t *kafka.TopicReport) { t.TimestampMaxAhead = time.Second }, nil,
			"topic_timestamp", SeverityWarning, "message.timestamp.after.max.ms="},
		"no Write": {func(t *kafka.TopicReport) { t.Rights.Write = false }, nil,
			"topic_permission", SeverityError,
			"--allow-principal User:rider --producer --topic orders"},
		"no Read": {func(t *kafka.TopicReport) { t.Rights.Read = false }, nil,
			"topic_permission", SeverityError, "--operation Read --topic orders"},
		"rights unknown": {func(t *kafka.TopicReport) { t.Rights.Known = false }, nil,
			"topic_permission", SeverityInfo, "--producer"},
		"settings unknown": {func(t *kafka.TopicReport) { t.ConfigErr = sink.ErrPermission }, nil,
			"topic", SeverityInfo, "--operation DescribeConfigs --topic orders"},
		"missing": {func(t *kafka.TopicReport) {
			*t = kafka.TopicReport{Name: "orders", Err: sink.ErrUnknownTopic}
		}, nil,
			"topic", SeverityError,
			"kafka-topics.sh --bootstrap-server kafka-1:9092 --command-config admin.properties " +
				"--create --topic orders"},
		"created by the relay": {func(t *kafka.TopicReport) {
			*t = kafka.TopicReport{Name: "orders", Err: sink.ErrUnknownTopic}
		},
			func(c *config.Config) {
				c.Sink.Kafka.Topics = kafka.TopicsConfig{Create: true, Partitions: 1,
					ReplicationFactor: 1}
			}, "topic", SeverityInfo, "--create"},
		"may not be described": {func(t *kafka.TopicReport) {
			*t = kafka.TopicReport{Name: "orders", Err: sink.ErrPermission}
		}, nil,
			"topic", SeverityError, "Describe and Write"},
	} {
		t.Run(name, func(t *testing.T) {
			found := wrong(topicChecker(c.config).topic(goodTopic(c.change), true))
			require.Len(t, found, 1, "%+v", found)
			require.Equal(t, c.code, found[0].Code)
			require.Equal(t, c.severity, found[0].Severity)
			require.Equal(t, "orders", found[0].Subject)
			require.Contains(t, found[0].Fix, c.fix)
			require.NotEmpty(t, found[0].Observed)
			if c.severity == SeverityError {
				require.NotEmpty(t, found[0].Class)
			}
			if strings.HasPrefix(found[0].Fix, "kafka-") { // and the relay has a login
				require.Regexp(t, `^kafka-[a-z-]+\.sh --bootstrap-server kafka-1:9092 `+
					`--command-config admin\.properties --`, found[0].Fix)
			}
			if strings.Contains(found[0].Fix, "--add-config") {
				require.Contains(t, found[0].Fix, " --alter --topic orders --add-config ")
			}
		})
	}
}

func TestTopicCheck_SaysNothingOfRightsWhereThereAreNone(t *testing.T) {
	c := topicChecker(nil)
	c.acls = false
	require.Empty(t,
		wrong(c.topic(goodTopic(func(t *kafka.TopicReport) { t.Rights = kafka.Rights{} }), true)))
}

func TestTopicCheck_ComparesTheLargestRow(t *testing.T) {
	c := topicChecker(nil)
	require.Empty(t, c.size(goodTopic(nil), 0), "no row was seen")
	require.Empty(t, wrong(c.size(goodTopic(nil), 1<<20)))
	f := wrong(c.size(goodTopic(nil), 1<<20+1))[0]
	require.Equal(t, SeverityWarning, f.Severity)
	require.Contains(t, f.Fix, "sink.kafka.max_message_bytes")
	f = wrong(c.size(goodTopic(func(t *kafka.TopicReport) { t.MaxMessageBytes = 1000 }), 1001))[0]
	require.Contains(t, f.Required, "max.message.bytes, 1000")
	require.Contains(t, f.Fix, "max.message.bytes=1048576")
}

func TestTopicCheck_WantsTheSnapshotsTopicCompacted(t *testing.T) {
	c := topicChecker(nil)
	require.Empty(t,
		wrong(c.snapshot(goodTopic(func(t *kafka.TopicReport) { t.CleanupPolicy = "compact" }))))
	f := wrong(c.snapshot(goodTopic(nil)))[0]
	require.Equal(t, SeverityError, f.Severity)
	require.Contains(t, f.Fix, "cleanup.policy=compact")
	require.Equal(t, SeverityInfo,
		wrong(c.snapshot(kafka.TopicReport{Name: "s", Err: sink.ErrUnknownTopic}))[0].Severity,
		"the relay makes it")
	require.Equal(t, SeverityError,
		wrong(c.snapshot(kafka.TopicReport{Name: "s", Err: sink.ErrPermission}))[0].Severity)
}

func TestTopicCheck_LooksAtWhatExactlyOnceRestsOn(t *testing.T) {
	c := topicChecker(nil)
	compact := func(t *kafka.TopicReport) { t.CleanupPolicy = "compact" }
	lone := func(t *kafka.TopicReport) {
		t.CleanupPolicy, t.ReplicationFactor, t.MinInsync, t.InSync = "compact", 1, 1, nil
	}
	require.Empty(t, wrong(c.positions(goodTopic(compact))))
	f := wrong(c.positions(goodTopic(nil)))[0]
	require.Equal(t, SeverityError, f.Severity)
	require.Equal(t, "position_topic", f.Code)
	require.Equal(t, SeverityInfo,
		wrong(c.positions(kafka.TopicReport{Name: "p", Err: sink.ErrUnknownTopic}))[0].Severity,
		"the relay makes it")
	require.Equal(t, "topic_replicas", wrong(c.positions(goodTopic(lone)))[0].Code)

	require.Empty(t, c.transactionState(kafka.TopicReport{Err: sink.ErrUnknownTopic}),
		"it comes with the first transaction")
	require.Empty(t, wrong(c.transactionState(goodTopic(compact))))
	f = wrong(c.transactionState(goodTopic(lone)))[0]
	require.Equal(t, SeverityWarning, f.Severity)
	require.Equal(t, "kafka_transactions", f.Code)
}

func TestTopicCheck_TakesAHeartbeatThatCannotBePublishedForAWarning(t *testing.T) {
	f := wrong(topicChecker(nil).heartbeat(kafka.TopicReport{Name: "beats",
		Err: sink.ErrUnknownTopic}))[0]
	require.Equal(t, SeverityWarning, f.Severity)
	require.Contains(t, f.Required, "relay.heartbeat_interval")
	require.Empty(t, f.WAL)
	f = wrong(topicChecker(nil).heartbeat(goodTopic(func(t *kafka.TopicReport) {
		t.Rights.Write = false
	})))[0]
	require.Equal(t, SeverityWarning, f.Severity)
}

func TestCheckKafka_JudgesTheWayToTheBrokers(t *testing.T) {
	for name, c := range map[string]struct {
		change   func(*kafka.Config)
		severity Severity
	}{
		"on this machine": {func(c *kafka.Config) { c.Brokers = []string{"127.0.0.1:9092"} },
			SeverityOK},
		"in the clear": {func(*kafka.Config) {}, SeverityInfo},
		"TLS":          {func(c *kafka.Config) { c.TLS.Enabled = true }, SeverityOK},
		"TLS with anybody": {func(c *kafka.Config) {
			c.TLS = kafka.TLSConfig{Enabled: true, InsecureSkipVerify: true}
		}, SeverityWarning},
		"password in the clear": {func(c *kafka.Config) { c.SASL.Mechanism = "PLAIN" },
			SeverityWarning},
		"SCRAM": {func(c *kafka.Config) { c.SASL.Mechanism = "SCRAM-SHA-512" },
			SeverityInfo},
	} {
		cfg := kafka.DefaultConfig()
		cfg.Brokers = []string{"127.0.0.1:9092", "kafka-2.example:9092"}
		c.change(&cfg)
		f := kafkaTLS(cfg)
		require.Equal(t, c.severity, f.Severity, name)
		require.Equal(t, c.severity != SeverityOK, f.Fix != "", name)
	}
}

func TestCheckKafka_JudgesTheCluster(t *testing.T) {
	cfg := kafka.DefaultConfig()
	cfg.Brokers = []string{"kafka-1:9092"}
	require.Equal(t, SeverityOK, producerID(cfg, kafka.Report{}).Severity)
	f := producerID(cfg, kafka.Report{Idempotence: sink.ErrPermission})
	require.Equal(t, SeverityError, f.Severity)
	require.Equal(t, ClassPermission, f.Class)
	require.Contains(t, f.Fix, "kafka-acls.sh")
	require.Equal(t, ClassUnreachable,
		producerID(cfg, kafka.Report{Idempotence: errors.New("lost")}).Class)
	require.Equal(t, SeverityOK,
		authoriserFinding(kafka.Report{Authoriser: kafka.AuthoriserOn}).Severity)
	for _, a := range []kafka.Authoriser{kafka.AuthoriserOff, kafka.AuthoriserUnknown} {
		require.Equal(t, SeverityInfo,
			authoriserFinding(kafka.Report{Authoriser: a}).Severity)
	}
}
