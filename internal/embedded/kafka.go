package embedded

import (
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kfake"
)

// KafkaConfig is what the in-process broker offers. The zero value is one broker without topics.
type KafkaConfig struct {
	// Brokers is how many listen. Zero means one.
	Brokers int
	// Topics maps the names of topics that exist from the start to their number of partitions.
	Topics map[string]int32
	// AutoCreate makes a topic, with DefaultPartitions, at the first request of a client for it.
	// Without it an unknown topic is an error, as in a production cluster.
	AutoCreate bool
	// DefaultPartitions of a topic made without a number. Zero means the library's default of 10.
	DefaultPartitions int
	// Options are handed to kfake as they are, after all of the above: SASL, TLS, ACLs, limits.
	Options []kfake.Opt
}

// Kafka is an in-process broker that speaks Kafka's protocol on 127.0.0.1 and keeps its records in
// memory. It may be used from any goroutine.
type Kafka struct {
	// Cluster is the broker itself, for injected faults and leader moves.
	Cluster *kfake.Cluster
}

// StartKafka starts a broker that answers when the call returns. The caller must Close it.
func StartKafka(cfg KafkaConfig) (*Kafka, error) {
	opts := []kfake.Opt{kfake.NumBrokers(max(cfg.Brokers, 1))}
	if cfg.AutoCreate {
		opts = append(opts, kfake.AllowAutoTopicCreation())
	}
	if cfg.DefaultPartitions > 0 {
		opts = append(opts, kfake.DefaultNumPartitions(cfg.DefaultPartitions))
	}
	for _, topic := range slices.Sorted(maps.Keys(cfg.Topics)) {
		opts = append(opts, kfake.SeedTopics(cfg.Topics[topic], topic))
	}
	cluster, err := kfake.NewCluster(append(opts, cfg.Options...)...)
	if err != nil {
		return nil, fmt.Errorf("start in-process Kafka: %w", err)
	}
	return &Kafka{Cluster: cluster}, nil
}

// Brokers are the addresses to bootstrap from.
func (k *Kafka) Brokers() []string { return k.Cluster.ListenAddrs() }

// CreateTopic makes a topic. One that exists is an error.
func (k *Kafka) CreateTopic(name string, partitions int32) error {
	if err := k.Cluster.CreateTopic(name, partitions, nil); err != nil {
		return fmt.Errorf("create topic %q: %w", name, err)
	}
	return nil
}

// Close ends the broker and drops its records.
func (k *Kafka) Close() { k.Cluster.Close() }
