package kafka

import (
	"context"
	"errors"

	"github.com/IBM/sarama"

	"github.com/postrider/postrider/sink"
)

// meet asks about all topics of the messages ahead that are used for the first time, in one request: ten thousand topics one by one are ten thousand round
// trips, during which nothing is published. What it does not find out, because a topic is missing or being made, ensure asks again and says well.
func (t *topics) meet(ctx context.Context) {
	names := t.unmet(t.ahead)
	t.ahead = nil
	if len(names) < 2 {
		return
	}
	answers := make(chan []*sarama.TopicMetadata, 1)
	t.asking.Go(func() { // ends with the answer, or when the sink's connections are cut
		broker := t.client.LeastLoadedBroker()
		if broker == nil {
			answers <- nil
			return
		}
		response, err := broker.GetMetadata(sarama.NewMetadataRequest(t.client.Config().Version, names))
		if err != nil {
			answers <- nil
			return
		}
		answers <- response.Topics
	})
	select {
	case found := <-answers:
		for _, topic := range found {
			if errors.Is(topic.Err, sarama.ErrNoError) && len(topic.Partitions) > 0 {
				t.known[topic.Name] = int32(len(topic.Partitions)) //nolint:gosec // Kafka counts partitions in 32 bits
			}
		}
	case <-ctx.Done():
	case <-t.stop:
	}
}

// unmet is the topics of messages that are not known, each once.
func (t *topics) unmet(ms []*sink.Message) (names []string) {
	var listed map[string]struct{}
	last := ""
	for _, m := range ms {
		if m.Topic == last {
			continue
		}
		last = m.Topic
		if _, known := t.known[last]; known || checkName(last) != nil {
			continue
		}
		if _, twice := listed[last]; twice {
			continue
		}
		if listed == nil {
			listed = map[string]struct{}{}
		}
		listed[last] = struct{}{}
		names = append(names, last)
	}
	return names
}
