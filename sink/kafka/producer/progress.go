package producer

import (
	"context"
	"fmt"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/sink/kafka/topicreader"
)

// Progress stores the progress of a snapshot, one record for each key of a compacted topic, and
// reads other topics. It is for one goroutine. A Save whose context ends closes it.
type Progress struct {
	topic  string
	client *kafka.Client
	reader *topicreader.Reader
	known  map[string]int // number of partitions of each topic, at its first lookup
}

// OpenProgress connects, and creates the topic if there is none. Errors are those of
// kafka.Connect.
func OpenProgress(ctx context.Context, cfg kafka.Config, topic string,
	log zerolog.Logger) (*Progress, error) {
	options := append(synchronous(&cfg),
		kgo.ProducerBatchMaxBytes(cfg.LargestRequest()-sizeMargin),
		kgo.ProducerBatchCompression(kgo.GzipCompression())) // offsets of many partitions, in text
	client, err := kafka.Connect(ctx, cfg, log, options...)
	if err != nil {
		return nil, err
	}
	if err := client.EnsureCompacted(ctx, topic, log); err != nil {
		client.Close()
		return nil, fmt.Errorf("open snapshot.topic %q: %w", topic, err)
	}
	return &Progress{topic, client, topicreader.New(client, false), map[string]int{}}, nil
}

// Load calls each with the values of a key in the order of their offsets; empty: a tombstone.
func (p *Progress) Load(ctx context.Context, key string, each func(value []byte)) error {
	err := p.Read(ctx, p.topic, []int64{0}, func(m *sink.Message) {
		if string(m.Key) == key {
			each(m.Value)
		}
	})
	if err == nil && p.known[p.topic] == 0 {
		err = inconsistentTopic(p.topic)
	}
	if err != nil {
		return fmt.Errorf("read the progress of the snapshot: %w", err)
	}
	return nil
}

// Save returns when the record is durable.
func (p *Progress) Save(ctx context.Context, key string, value []byte) error {
	err := produceSync(ctx, p.client, &kgo.Record{Topic: p.topic, Partition: onlyPartition,
		Key: []byte(key), Value: value}).FirstErr()
	if err != nil {
		return fmt.Errorf("save the progress of the snapshot to topic %q: %w", p.topic, err)
	}
	return nil
}

// produceSync returns when all records are durable or have failed. If ctx or delivery_timeout ends
// before that it closes the client: records in flight cannot be canceled otherwise.
func produceSync(ctx context.Context, client *kafka.Client,
	records ...*kgo.Record) kgo.ProduceResults {
	ctx, cancel := context.WithTimeout(ctx, client.Config.DeliveryTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, client.Close)()
	results := client.ProduceSync(ctx, records...)
	for i := range results {
		results[i].Err = kafka.Failed(ctx, results[i].Err)
	}
	return results
}

// Ends returns the end offsets of the partitions of each topic: none if it does not exist. It
// omits partitions that were added after the first lookup: Read reads those from their beginning.
func (p *Progress) Ends(ctx context.Context, topics []string) (map[string][]int64, error) {
	ends, err := p.reader.Ends(ctx, topics...)
	for topic, found := range ends {
		n, known := p.known[topic]
		if !known && len(found) > 0 {
			n, p.known[topic] = len(found), len(found)
		}
		ends[topic] = found[:min(n, len(found))]
	}
	return ends, err
}

// Read calls each with every record of a topic, from the offset of its partition in from, or the
// beginning if there is none, up to the current ends.
func (p *Progress) Read(ctx context.Context, topic string, from []int64,
	each func(*sink.Message)) error {
	ends, err := p.Ends(ctx, []string{topic})
	if err != nil {
		return err
	}
	var spans []topicreader.Span
	for partition, end := range ends[topic] {
		s := topicreader.Span{Topic: topic, Partition: int32(partition),
			End: end} //nolint:gosec // Kafka counts them in 32 bits
		if partition < len(from) {
			s.From = from[partition]
		}
		spans = append(spans, s)
	}
	return p.reader.Read(ctx, spans, func(m *sink.Message, _ int64) error { each(m); return nil })
}

// Close ends the connections.
func (p *Progress) Close() { p.client.Close() }
