package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/postrider/postrider/sink"
)

// Report is what the check command is told about a cluster.
type Report struct {
	Version    string         // of the broker that was asked, guessed from what it can do, like "v4.1" or "at least v4.1"
	Brokers    []BrokerReport // as the cluster names them, by id
	Topics     []TopicReport  // in the order asked for
	Authoriser Authoriser     // whether ACLs count
	// Idempotence is why no producer id is given, without which nothing can be published; nil: one was given.
	Idempotence error
}

// Authoriser tells whether the cluster asks who may do what.
type Authoriser string

// The values of Report.Authoriser. Unknown: the login may not look.
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

// TopicReport is one topic. If Err is set, all but Name is unknown; errors.Is(Err, sink.ErrUnknownTopic): it does not exist.
type TopicReport struct {
	Name              string
	Err               error
	Partitions        int
	ReplicationFactor int     // of the partition that has fewest
	Leaderless        []int32 // partitions nobody can write to just now
	InSync            []int   // replicas in sync, by partition; empty if not known
	Rights            Rights

	ConfigErr         error         // why the rest is unknown, usually a missing DESCRIBE_CONFIGS permission
	MinInsync         int           // min.insync.replicas
	MaxMessageBytes   int           // max.message.bytes, of a batch after compression
	UncleanElection   bool          // unclean.leader.election.enable: an acknowledged message may be lost
	CleanupPolicy     string        // cleanup.policy
	Retention         time.Duration // retention.ms: older records are deleted; zero: no limit
	RetentionBytes    int64         // retention.bytes of a partition; zero: no limit
	Compression       string        // compression.type; producer: as the messages come
	TimestampType     string        // message.timestamp.type: CreateTime or LogAppendTime
	TimestampMaxAge   time.Duration // message.timestamp.before.max.ms, or difference.max.ms before Kafka 3.6: older records are refused; zero: no limit
	TimestampMaxAhead time.Duration // message.timestamp.after.max.ms, or difference.max.ms: records from further ahead are refused; zero: no limit

	difference time.Duration // message.timestamp.difference.max.ms
}

// Rights are what the login may do with a topic.
type Rights struct {
	Known bool // false: the broker, before 2.3, does not tell
	Read  bool
	Write bool
}

// RecordSize is the size of a message as sink.kafka.max_message_bytes counts it: with overhead, before compression.
func RecordSize(m *sink.Message) int {
	return batchSize(m)
}

// Inspect connects like Open and asks about the brokers and the topics. It changes nothing, but that a producer id is used up, as each
// session of a producer does. An error means that no broker could be used at all; what concerns one broker or topic stands in the
// report. It blocks until ctx ends at most.
func Inspect(ctx context.Context, cfg Config, topicNames []string) (Report, error) {
	if err := cfg.Validate(); err != nil {
		return Report{}, err
	}
	d := newDialer(&cfg)
	defer d.cut(sink.ErrClosed)
	defer context.AfterFunc(ctx, func() { d.cut(context.Cause(ctx)) })()
	if _, err := cfg.answering(ctx, d); err != nil { // who of those that are named can be reached stands in the report
		return Report{}, err
	}
	conf, err := cfg.lookup(d)
	if err != nil {
		return Report{}, err
	}
	conf.Net.ReadTimeout = cfg.DialTimeout
	client, err := sarama.NewClient(cfg.Brokers, conf)
	if err != nil {
		return Report{}, translate(err)
	}
	defer func() { _ = client.Close() }()

	// Without topics this asks for all of them; it is the one request that also tells about brokers on every version.
	err = client.RefreshMetadata(topicNames...)
	if ctx.Err() != nil {
		return Report{}, fmt.Errorf("inspect Kafka at %s: %w", cfg.bootstrap(), context.Cause(ctx))
	}
	if len(client.Brokers()) == 0 && err != nil {
		return Report{}, fmt.Errorf("inspect Kafka at %s: %w", cfg.bootstrap(), translate(err))
	}
	report := Report{
		Version: version(client), Brokers: inspectBrokers(client), Authoriser: authoriser(client), Idempotence: idempotence(ctx, client),
	}
	asked := topics{cfg: &cfg, client: client}
	rights := topicRights(client, topicNames)
	for _, name := range topicNames {
		t := asked.inspect(name)
		t.Rights = rights[name]
		report.Topics = append(report.Topics, t)
	}
	if ctx.Err() != nil {
		return Report{}, fmt.Errorf("inspect Kafka at %s: %w", cfg.bootstrap(), context.Cause(ctx))
	}
	return report, nil
}

// authoriser asks for ACLs: a cluster without an authoriser says so, and one with says that we may not look, or shows them.
func authoriser(client sarama.Client) Authoriser {
	broker := client.LeastLoadedBroker()
	if broker == nil {
		return AuthoriserUnknown
	}
	answer, err := broker.DescribeAcls(&sarama.DescribeAclsRequest{Version: 1, AclFilter: sarama.AclFilter{
		ResourceType: sarama.AclResourceCluster, ResourcePatternTypeFilter: sarama.AclPatternAny,
		Operation: sarama.AclOperationAny, PermissionType: sarama.AclPermissionAny,
	}})
	switch {
	case err != nil:
		return AuthoriserUnknown
	case answer.Err == sarama.ErrSecurityDisabled:
		return AuthoriserOff
	case answer.Err == sarama.ErrNoError, answer.Err == sarama.ErrClusterAuthorizationFailed:
		return AuthoriserOn
	}
	return AuthoriserUnknown
}

// idempotence asks for a producer id, as a producer does when it opens. A broker that has just started does not have any at once.
func idempotence(ctx context.Context, client sarama.Client) error {
	pause := client.Config().Metadata.Retry.Backoff
	for attempt := 0; ; attempt++ {
		err := producerID(client)
		if err == nil {
			return nil
		}
		if !errors.Is(err, sarama.ErrOffsetsLoadInProgress) || attempt == producerIDRetries || ctx.Err() != nil {
			return fmt.Errorf("ask for a producer id: %w", translate(err))
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		pause = min(2*pause, time.Second)
	}
}

const producerIDRetries = 8 // some seconds, with a first pause of 100 ms

func producerID(client sarama.Client) error {
	broker := client.LeastLoadedBroker()
	if broker == nil {
		return sarama.ErrOutOfBrokers
	}
	answer, err := broker.InitProducerID(&sarama.InitProducerIDRequest{Version: 1, TransactionTimeout: time.Minute})
	if err == nil && answer.Err != sarama.ErrNoError {
		err = answer.Err
	}
	return err
}

// topicRights asks what the login may do with topics; one that does not exist, or that may not be described, is missing.
func topicRights(client sarama.Client, names []string) map[string]Rights {
	broker := client.LeastLoadedBroker()
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return checkName(name) != nil })
	if broker == nil || len(names) == 0 {
		return nil
	}
	request := sarama.NewMetadataRequest(client.Config().Version, names)
	request.IncludeTopicAuthorizedOperations = true
	answer, err := broker.GetMetadata(request)
	if err != nil || answer.Version < 8 {
		return nil
	}
	rights := map[string]Rights{}
	for _, t := range answer.Topics {
		if t.Err != sarama.ErrNoError && t.Err != sarama.ErrLeaderNotAvailable || t.TopicAuthorizedOperations == math.MinInt32 {
			continue
		}
		may := func(o sarama.AclOperation) bool { return t.TopicAuthorizedOperations&(1<<o) != 0 }
		rights[t.Name] = Rights{Known: true, Read: may(sarama.AclOperationRead), Write: may(sarama.AclOperationWrite)}
	}
	return rights
}

func version(client sarama.Client) string {
	broker := client.LeastLoadedBroker()
	if broker == nil {
		return "unknown"
	}
	response, err := broker.ApiVersions(&sarama.ApiVersionsRequest{Version: 3, ClientSoftwareName: "postrider", ClientSoftwareVersion: "check"})
	if err != nil {
		return "unknown"
	}
	can := kmsg.NewPtrApiVersionsResponse()
	for _, key := range response.ApiKeys {
		can.ApiKeys = append(can.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: key.ApiKey, MinVersion: key.MinVersion, MaxVersion: key.MaxVersion})
	}
	return kversion.FromApiVersionsResponse(can).VersionGuess()
}

// inspectBrokers connects to each broker under its advertised address: what the first contact names may not be what we can reach.
func inspectBrokers(client sarama.Client) []BrokerReport {
	brokers := client.Brokers()
	slices.SortFunc(brokers, func(a, b *sarama.Broker) int { return cmp.Compare(a.ID(), b.ID()) })
	reports := make([]BrokerReport, len(brokers))
	var all sync.WaitGroup
	for i, b := range brokers {
		all.Go(func() {
			reports[i] = BrokerReport{ID: b.ID(), Address: b.Addr()}
			_ = b.Open(client.Config()) // open already: Connected waits for it
			if ok, err := b.Connected(); err != nil {
				reports[i].Err = &AdvertisedError{b.ID(), err}
			} else if !ok {
				reports[i].Err = &AdvertisedError{b.ID(), fmt.Errorf("%s: not connected", b.Addr())}
			}
		})
	}
	all.Wait()
	return reports
}

func (t *topics) inspect(name string) TopicReport {
	report := TopicReport{Name: name}
	if report.Err = checkName(name); report.Err != nil {
		return report
	}
	partitions, err := t.count(name)
	if err != nil {
		report.Err = err
		return report
	}
	report.Partitions = int(partitions)
	for p := range partitions {
		replicas, err := t.client.Replicas(name, p)
		if err != nil && !errors.Is(err, sarama.ErrReplicaNotAvailable) {
			report.Err = fmt.Errorf("look up replicas of partition %d of topic %q: %w", p, name, translate(err))
			return report
		}
		if p == 0 || len(replicas) < report.ReplicationFactor {
			report.ReplicationFactor = len(replicas)
		}
	}
	report.Leaderless = t.leaderless(name, partitions)
	for p := range partitions {
		inSync, err := t.client.InSyncReplicas(name, p)
		if err != nil {
			report.InSync = nil
			break
		}
		report.InSync = append(report.InSync, len(inSync))
	}
	report.ConfigErr = t.configuration(name, &report)
	return report
}

func (t *topics) leaderless(name string, partitions int32) []int32 {
	writable, err := t.client.WritablePartitions(name)
	if err != nil {
		writable = nil
	}
	var none []int32
	for p := range partitions {
		if !slices.Contains(writable, p) {
			none = append(none, p)
		}
	}
	return none
}

func (t *topics) configuration(name string, report *TopicReport) error {
	admin, err := sarama.NewClusterAdminFromClient(t.client) // not closed: the client is ours
	if err != nil {
		return fmt.Errorf("read configuration of topic %q: %w", name, translate(err))
	}
	described, err := admin.DescribeConfigs([]*sarama.ConfigResource{{
		Type: sarama.TopicResource, Name: name,
		ConfigNames: slices.Collect(maps.Keys(topicSettings)),
	}}, sarama.DescribeConfigsOptions{})
	if err == nil && described[0].ErrorCode != sarama.ErrNoError {
		err = described[0].ErrorCode
	}
	if err != nil {
		return fmt.Errorf("read configuration of topic %q: %w", name, translate(err))
	}
	for _, entry := range described[0].Configs {
		if read, ok := topicSettings[entry.Name]; ok {
			if err := read(report, entry.Value); err != nil {
				return fmt.Errorf("read configuration of topic %q: %s: %w", name, entry.Name, err)
			}
		}
	}
	report.TimestampMaxAge = cmp.Or(report.TimestampMaxAge, report.difference)
	report.TimestampMaxAhead = cmp.Or(report.TimestampMaxAhead, report.difference)
	return nil
}

// topicSettings are those that a report has.
var topicSettings = map[string]func(*TopicReport, string) error{
	"min.insync.replicas": func(r *TopicReport, v string) (err error) { r.MinInsync, err = strconv.Atoi(v); return err },
	"max.message.bytes":   func(r *TopicReport, v string) (err error) { r.MaxMessageBytes, err = strconv.Atoi(v); return err },
	"unclean.leader.election.enable": func(r *TopicReport, v string) error {
		r.UncleanElection = v == "true"
		return nil
	},
	"cleanup.policy": func(r *TopicReport, v string) error { r.CleanupPolicy = v; return nil },
	"retention.ms":   func(r *TopicReport, v string) (err error) { r.Retention, err = milliseconds(v); return err },
	"retention.bytes": func(r *TopicReport, v string) error {
		n, err := strconv.ParseInt(v, 10, 64)
		r.RetentionBytes = max(n, 0)
		return err
	},
	"compression.type":       func(r *TopicReport, v string) error { r.Compression = v; return nil },
	"message.timestamp.type": func(r *TopicReport, v string) error { r.TimestampType = v; return nil },
	"message.timestamp.before.max.ms": func(r *TopicReport, v string) (err error) {
		r.TimestampMaxAge, err = milliseconds(v)
		return err
	},
	"message.timestamp.after.max.ms": func(r *TopicReport, v string) (err error) {
		r.TimestampMaxAhead, err = milliseconds(v)
		return err
	},
	// Until Kafka 4 it stands for whichever of the two is not set.
	"message.timestamp.difference.max.ms": func(r *TopicReport, v string) (err error) {
		r.difference, err = milliseconds(v)
		return err
	},
}

// milliseconds is zero for a number so large that it is no limit: the default is the largest there is.
func milliseconds(text string) (time.Duration, error) {
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil || ms > math.MaxInt64/int64(time.Millisecond) {
		return 0, err
	}
	return time.Duration(ms) * time.Millisecond, nil
}
