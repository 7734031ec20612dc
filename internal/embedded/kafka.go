package embedded

import (
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kfake"
)

// KafkaConfig is what the in-process broker offers. The zero value is one broker without topics.
// It creates no topics by itself.
type KafkaConfig struct {
	Brokers int              // how many listen; zero: one
	Topics  map[string]int32 // that exist from the start, with their numbers of partitions
	Options []kfake.Opt      // SASL, TLS, ACLs, limits; applied after all of the above
}

// Kafka is an in-process broker that speaks Kafka's protocol on 127.0.0.1 and keeps its records in
// memory. It may be used from any goroutine.
type Kafka struct {
	Cluster *kfake.Cluster // the broker itself, for injected faults and leader moves
}

// StartKafka starts a broker that answers when the call returns. The caller must Close it.
func StartKafka(cfg KafkaConfig) (*Kafka, error) {
	opts := []kfake.Opt{kfake.NumBrokers(max(cfg.Brokers, 1))}
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
