package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/postrider/postrider/sink"
)

// Report is what the check command reports about a cluster.
type Report struct {
	// of the broker that answered, guessed from what it can do, like "v4.1" or "at least v4.1"
	Version    string
	Brokers    []BrokerReport // as the cluster names them, by id
	Topics     []TopicReport  // in the order of the request
	Authoriser Authoriser     // whether ACLs count
	// Idempotence is why no producer id is given, without which nothing can be published; nil: one
	// was given.
	Idempotence error
}

// Authoriser reports whether the cluster checks who may do what.
type Authoriser string

// The values of Report.Authoriser. Unknown: the login may not read ACLs.
const (
	AuthoriserOn      Authoriser = "on"
	AuthoriserOff     Authoriser = "off"
	AuthoriserUnknown Authoriser = "unknown"
)

// BrokerReport is one broker under its advertised address.
type BrokerReport struct {
	ID      int32
	Address string
	Err     error // why it cannot be reached from here under that address; nil: it can
}

// TopicReport is one topic. If Err is set, all but Name is unknown; errors.Is(Err,
// sink.ErrUnknownTopic): it does not exist.
type TopicReport struct {
	Name              string
	Err               error
	Partitions        int
	ReplicationFactor int     // of the partition that has fewest
	Leaderless        []int32 // partitions that cannot be written to just now
	InSync            []int   // replicas in sync, by partition; empty if not known
	Rights            Rights

	// why the rest is unknown, usually a missing DESCRIBE_CONFIGS permission
	ConfigErr       error
	MinInsync       int // min.insync.replicas
	MaxMessageBytes int // max.message.bytes, of a batch after compression
	// unclean.leader.election.enable: an acknowledged message may be lost
	UncleanElection bool
	CleanupPolicy   string        // cleanup.policy
	Retention       time.Duration // retention.ms: older records are deleted; zero: no limit
	RetentionBytes  int64         // retention.bytes of a partition; zero: no limit
	Compression     string        // compression.type; producer: as the messages come
	TimestampType   string        // message.timestamp.type: CreateTime or LogAppendTime
	// message.timestamp.before.max.ms, or difference.max.ms before Kafka 3.6: older records are
	// refused; zero: no limit
	TimestampMaxAge time.Duration
	// message.timestamp.after.max.ms, or difference.max.ms: records from further ahead are refused;
	// zero: no limit
	TimestampMaxAhead time.Duration

	difference time.Duration // message.timestamp.difference.max.ms
}

// Rights are what the login may do with a topic.
type Rights struct {
	Known bool // false: the broker, before 2.3, does not report it
	Read  bool
	Write bool
}

// RecordSize is the size of a message as sink.kafka.max_message_bytes counts it: with overhead,
// before compression.
func RecordSize(m *sink.Message) int { return BatchHeader + SizeInBatch(m) }

const (
	// BatchHeader is the size of a batch without records, with the longest numbers.
	BatchHeader  = 80
	recordHeader = 36 // of a record in it
	fieldHeader  = 10 // of a header of a record
)

// SizeInBatch is at least what a message takes in a batch: what the client compares with the
// limit.
func SizeInBatch(m *sink.Message) int {
	return m.Size() + recordHeader + fieldHeader*len(m.Headers)
}

// Inspect connects like Reach and reports about brokers and topics. It changes nothing, but uses
// up a producer id. An error means that no broker could be used at all.
func Inspect(ctx context.Context, cfg Config, topicNames []string) (Report, error) {
	if err := cfg.Validate(); err != nil {
		return Report{}, err
	}
	d := NewDialer(&cfg)
	defer d.Cut(sink.ErrClosed)
	if _, _, err := cfg.answering(ctx, d); err != nil { // the report has those that can be reached
		return Report{}, err
	}
	client, err := cfg.NewClient(d, zerolog.Nop(),
		kgo.RequestTimeoutOverhead(max(cfg.DialTimeout, leastTimeout)))
	if err != nil {
		return Report{}, err
	}
	defer client.Close()
	request := metadataRequest(slices.DeleteFunc(slices.Clone(topicNames),
		func(name string) bool { return CheckName(name) != nil })...)
	request.IncludeTopicAuthorizedOperations = true
	cluster, err := request.RequestWith(ctx, client.Client)
	if err != nil {
		return Report{}, fmt.Errorf("inspect Kafka at %s: %w", cfg.bootstrap(), Failed(ctx, err))
	}
	report := Report{
		Version: client.version(ctx), Brokers: client.inspectBrokers(ctx, cluster.Brokers),
		Authoriser: client.authoriser(ctx), Idempotence: client.idempotence(ctx),
	}
	for _, name := range topicNames {
		report.Topics = append(report.Topics, client.inspectTopic(ctx, cluster, name))
	}
	if ctx.Err() != nil {
		return Report{}, fmt.Errorf("inspect Kafka at %s: %w", cfg.bootstrap(), context.Cause(ctx))
	}
	return report, nil
}

// authoriser requests ACLs: without an authoriser the cluster answers so.
func (c *Client) authoriser(ctx context.Context) Authoriser {
	request := kmsg.NewPtrDescribeACLsRequest()
	request.ResourceType, request.ResourcePatternType = kmsg.ACLResourceTypeCluster,
		kmsg.ACLResourcePatternTypeAny
	request.Operation, request.PermissionType = kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
	answer, err := request.RequestWith(ctx, c.Client)
	if err != nil {
		return AuthoriserUnknown
	}
	switch err := kerr.ErrorForCode(answer.ErrorCode); {
	case errors.Is(err, kerr.SecurityDisabled):
		return AuthoriserOff
	case err == nil, errors.Is(err, kerr.ClusterAuthorizationFailed):
		return AuthoriserOn
	}
	return AuthoriserUnknown
}

// idempotence requests a producer id, as a producer does when it opens. A broker that has just
// started has none yet.
func (c *Client) idempotence(ctx context.Context) error {
	request := kmsg.NewPtrInitProducerIDRequest()
	request.TransactionTimeoutMillis = int32(time.Minute.Milliseconds())
	backoff, deadline := c.Config.Backoff(c.Config.RetryBackoff), time.Now().Add(producerIDPatience)
	for try := 1; ; try++ {
		answer, err := request.RequestWith(ctx, c.Client)
		if err == nil {
			err = kerr.ErrorForCode(answer.ErrorCode)
		}
		if err == nil {
			return nil
		}
		pause := min(backoff(try), time.Until(deadline))
		if !errors.Is(err, kerr.CoordinatorLoadInProgress) || pause <= 0 || Pause(ctx, pause) != nil {
			return fmt.Errorf("request a producer id: %w", Failed(ctx, err))
		}
	}
}

// producerIDPatience is how long a broker that has just started may take to hand out producer ids.
const producerIDPatience = 5 * time.Second

func (c *Client) version(ctx context.Context) string {
	answer, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, c.Client)
	if err != nil {
		return "unknown"
	}
	return kversion.FromApiVersionsResponse(answer).VersionGuess()
}

// inspectBrokers connects to each broker under its advertised address.
func (c *Client) inspectBrokers(ctx context.Context,
	brokers []kmsg.MetadataResponseBroker) []BrokerReport {
	brokers = byID(brokers)
	reports := make([]BrokerReport, len(brokers))
	var all sync.WaitGroup
	for i, b := range brokers {
		all.Go(func() {
			reports[i] = BrokerReport{ID: b.NodeID, Address: address(b)}
			if _, err := c.Config.probe(ctx, address(b), c.dialer); err != nil {
				reports[i].Err = &AdvertisedError{b.NodeID, err}
			}
		})
	}
	all.Wait()
	return reports
}

func (c *Client) inspectTopic(ctx context.Context, cluster *kmsg.MetadataResponse,
	name string) TopicReport {
	report := TopicReport{Name: name}
	if report.Err = CheckName(name); report.Err != nil {
		return report
	}
	if _, err := partitionsOf(cluster, name); err != nil {
		// Partitions requests it again, with an error for people.
		if _, report.Err = c.Partitions(ctx, name); report.Err != nil {
			return report
		}
		if cluster, report.Err = c.Metadata(ctx, name); report.Err != nil {
			return report
		}
	}
	if t, err := TopicOf(cluster, name); err == nil {
		report.replicas(t.Partitions)
		if rights := t.AuthorizedOperations; rights != math.MinInt32 {
			allowed := kadm.DecodeACLOperations(rights)
			report.Rights = Rights{true, slices.Contains(allowed, kadm.OpRead),
				slices.Contains(allowed, kadm.OpWrite)}
		}
	}
	report.ConfigErr = c.settings(ctx, name, &report)
	return report
}

func (r *TopicReport) replicas(partitions []kmsg.MetadataResponseTopicPartition) {
	slices.SortFunc(partitions,
		func(a, b kmsg.MetadataResponseTopicPartition) int { return int(a.Partition - b.Partition) })
	r.Partitions = len(partitions)
	for i, p := range partitions {
		if i == 0 || len(p.Replicas) < r.ReplicationFactor {
			r.ReplicationFactor = len(p.Replicas)
		}
		if p.Leader < 0 || errors.Is(kerr.ErrorForCode(p.ErrorCode), kerr.LeaderNotAvailable) {
			r.Leaderless = append(r.Leaderless, p.Partition)
		}
		r.InSync = append(r.InSync, len(p.ISR))
	}
}

// settings reads the configuration of a topic into its report.
func (c *Client) settings(ctx context.Context, topic string, report *TopicReport) error {
	described, err := kadm.NewClient(c.Client).DescribeTopicConfigs(ctx, topic)
	if err == nil {
		var found kadm.ResourceConfig
		if found, err = described.On(topic, nil); err == nil {
			err = found.Err
		}
		for _, entry := range found.Configs {
			if entry.Value != nil {
				err = errors.Join(err, report.set(entry.Key, *entry.Value))
			}
		}
	}
	if err != nil {
		return fmt.Errorf("read configuration of topic %q: %w", topic, Failed(ctx, err))
	}
	report.TimestampMaxAge = cmp.Or(report.TimestampMaxAge, report.difference)
	report.TimestampMaxAhead = cmp.Or(report.TimestampMaxAhead, report.difference)
	return nil
}

// set takes one setting; it ignores those that a report does not have.
func (r *TopicReport) set(key, value string) (err error) {
	switch key {
	case "min.insync.replicas":
		r.MinInsync, err = strconv.Atoi(value)
	case "max.message.bytes":
		r.MaxMessageBytes, err = strconv.Atoi(value)
	case "unclean.leader.election.enable":
		r.UncleanElection = value == "true"
	case "cleanup.policy":
		r.CleanupPolicy = value
	case "retention.ms":
		r.Retention, err = milliseconds(value)
	case "retention.bytes":
		r.RetentionBytes, err = strconv.ParseInt(value, 10, 64)
		r.RetentionBytes = max(r.RetentionBytes, 0)
	case "compression.type":
		r.Compression = value
	case "message.timestamp.type":
		r.TimestampType = value
	case "message.timestamp.before.max.ms":
		r.TimestampMaxAge, err = milliseconds(value)
	case "message.timestamp.after.max.ms":
		r.TimestampMaxAhead, err = milliseconds(value)
	case "message.timestamp.difference.max.ms": // until Kafka 4, in place of whichever is not set
		r.difference, err = milliseconds(value)
	}
	return err
}

// milliseconds is zero for a number so large that it is no limit: the default is the largest there
// is.
func milliseconds(text string) (time.Duration, error) {
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil || ms > math.MaxInt64/int64(time.Millisecond) {
		return 0, err
	}
	return time.Duration(ms) * time.Millisecond, nil
}
