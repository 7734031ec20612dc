package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"postrider/sink"
)

// Report is what the check command is told about a cluster.
type Report struct {
	Version string         // of the broker that was asked, guessed from what it can do, like "v4.1" or "at least v4.1"
	Brokers []BrokerReport // as the cluster names them, by id
	Topics  []TopicReport  // in the order asked for
}

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

	ConfigErr       error  // why the rest is unknown, usually a missing DESCRIBE_CONFIGS permission
	MinInsync       int    // min.insync.replicas
	MaxMessageBytes int    // max.message.bytes, of a batch after compression
	UncleanElection bool   // unclean.leader.election.enable: an acknowledged message may be lost
	CleanupPolicy   string // cleanup.policy
}

// Inspect connects like Open and asks about the brokers and the topics. It changes nothing. An error means that no broker
// could be used at all; what concerns one broker or topic stands in the report. It blocks until ctx ends at most.
func Inspect(ctx context.Context, cfg Config, topicNames []string) (Report, error) {
	if err := cfg.Validate(); err != nil {
		return Report{}, err
	}
	if _, err := cfg.reach(ctx); err != nil {
		return Report{}, err
	}
	d := newDialer(&cfg)
	defer d.cut(sink.ErrClosed)
	defer context.AfterFunc(ctx, func() { d.cut(context.Cause(ctx)) })()
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
	report := Report{Version: version(client), Brokers: inspectBrokers(client)}
	asked := topics{cfg: &cfg, client: client}
	for _, name := range topicNames {
		report.Topics = append(report.Topics, asked.inspect(name))
	}
	return report, nil
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
				reports[i].Err = translate(err)
			} else if !ok {
				reports[i].Err = fmt.Errorf("%w: %s", sink.ErrUnreachable, b.Addr())
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
		ConfigNames: []string{"min.insync.replicas", "max.message.bytes", "unclean.leader.election.enable", "cleanup.policy"},
	}}, sarama.DescribeConfigsOptions{})
	if err == nil && described[0].ErrorCode != sarama.ErrNoError {
		err = described[0].ErrorCode
	}
	if err != nil {
		return fmt.Errorf("read configuration of topic %q: %w", name, translate(err))
	}
	for _, entry := range described[0].Configs {
		switch entry.Name {
		case "min.insync.replicas":
			report.MinInsync, err = strconv.Atoi(entry.Value)
		case "max.message.bytes":
			report.MaxMessageBytes, err = strconv.Atoi(entry.Value)
		case "unclean.leader.election.enable":
			report.UncleanElection = entry.Value == "true"
		case "cleanup.policy":
			report.CleanupPolicy = entry.Value
		}
		if err != nil {
			return fmt.Errorf("read configuration of topic %q: %s: %w", name, entry.Name, err)
		}
	}
	return nil
}
