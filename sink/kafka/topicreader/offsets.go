package topicreader

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
)

const (
	// Times that mean the ends of a log.
	endOfLog   = -1
	startOfLog = -2
	// Replica ids. For consumer a leader answers with what consumers can read, for debugging with the
	// end of its own log, however far its replicas are.
	consumer  = -1
	debugging = -2
)

// Ends returns the end offset of each partition of each topic. A topic that does not exist has
// none.
func (r *Reader) Ends(ctx context.Context, topics ...string) (map[string][]int64, error) {
	ends := map[string][]int64{}
	err := r.retry(ctx, "", func(ctx context.Context) error {
		listed, err := r.listEnds(ctx, topics...)
		if err != nil {
			return err
		}
		for _, topic := range topics {
			if ends[topic], err = inOrder(listed[topic]); errors.Is(kafka.Class(err),
				sink.ErrUnknownTopic) {
				err = r.isMissing(ctx, topic)
			}
			if err != nil {
				return fmt.Errorf("topic %q: %w", topic, err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the end offsets of %s: %w", strings.Join(topics, ", "), err)
	}
	return ends, nil
}

// isMissing requests a topic again that one broker does not have: one that has just started has
// less metadata than the cluster. It returns an error unless the topic is missing.
func (r *Reader) isMissing(ctx context.Context, topic string) error {
	switch _, err := r.client.Partitions(ctx, topic); {
	case err == nil:
		return kerr.LeaderNotAvailable // it is there: list its offsets again
	case !errors.Is(err, sink.ErrUnknownTopic):
		return err
	}
	return nil
}

func (r *Reader) listEnds(ctx context.Context, topics ...string) (kadm.ListedOffsets, error) {
	switch {
	case len(topics) == 0: // would be all
		return nil, nil
	case r.committed:
		return r.admin.ListCommittedOffsets(ctx, topics...)
	}
	return r.admin.ListEndOffsets(ctx, topics...)
}

// AwaitDecided waits until each transaction that is open in a topic now has ended, within a time,
// and reports whether one is still open. Readers of committed records do not see what follows it.
func (r *Reader) AwaitDecided(ctx context.Context, topic string,
	within time.Duration) (open bool, err error) {
	ends, err := r.list(ctx, topic, r.admin.ListEndOffsets)
	for began := time.Now(); err == nil; err = kafka.Pause(ctx, kafka.ReadPause) {
		readable, err := r.list(ctx, topic, r.admin.ListCommittedOffsets)
		if err != nil {
			return false, err
		}
		open = false
		for p := range min(len(ends), len(readable)) {
			open = open || readable[p] < ends[p]
		}
		if !open || time.Since(began) > within {
			return open, nil
		}
	}
	return false, err
}

// list lists offsets of a topic by partition.
func (r *Reader) list(ctx context.Context, topic string,
	of func(context.Context, ...string) (kadm.ListedOffsets, error)) (offsets []int64, err error) {
	err = r.retry(ctx, topic, func(ctx context.Context) error {
		listed, err := of(ctx, topic)
		if err == nil {
			offsets, err = inOrder(listed[topic])
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the offsets of topic %q: %w", topic, err)
	}
	return offsets, nil
}

// inOrder is by partition.
func inOrder(listed map[int32]kadm.ListedOffset) ([]int64, error) {
	offsets := make([]int64, len(listed))
	for partition, found := range listed {
		if found.Err != nil {
			return []int64{}, found.Err
		}
		if int(partition) >= len(offsets) {
			return nil, kerr.LeaderNotAvailable // the answer leaves one out
		}
		offsets[partition] = found.Offset
	}
	return offsets, nil
}

// LogEnd is the end of the leader's log, and of the part that can be read: the replicas do not
// have the rest yet.
func (r *Reader) LogEnd(ctx context.Context, topic string,
	partition int32) (end, readable int64, err error) {
	err = r.retry(ctx, topic, func(ctx context.Context) error {
		if end, err = r.offset(ctx, topic, partition, endOfLog, debugging); err != nil {
			var code *kerr.Error
			if !errors.As(err, &code) || errors.Is(kafka.Class(err), sink.ErrUnreachable) {
				return err
			}
			end = 0 // not Apache Kafka: consumers' end has to do
		}
		readable, err = r.offset(ctx, topic, partition, endOfLog, consumer)
		return err
	})
	return end, readable, err
}

// Start is where a partition begins.
func (r *Reader) Start(ctx context.Context, topic string,
	partition int32) (start int64, err error) {
	err = r.retry(ctx, topic, func(ctx context.Context) error {
		start, err = r.offset(ctx, topic, partition, startOfLog, consumer)
		return err
	})
	return start, err
}

// offset requests the offset at a time of the leader of a partition.
func (r *Reader) offset(ctx context.Context, topic string, partition int32, time int64,
	replica int32) (int64, error) {
	led, err := r.leadersOf(ctx, topic)
	if err != nil {
		return 0, err
	}
	leader, known := led.of[partition]
	if !known {
		return 0, kerr.LeaderNotAvailable
	}
	request := kmsg.NewPtrListOffsetsRequest()
	request.ReplicaID = replica
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp = partition, time
	request.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: topic,
		Partitions: []kmsg.ListOffsetsRequestTopicPartition{p}}}
	answer, err := request.RequestWith(ctx, r.broker(leader))
	if err != nil {
		return 0, err
	}
	for _, t := range answer.Topics {
		for _, p := range t.Partitions {
			if p.Partition == partition {
				return p.Offset, kerr.ErrorForCode(p.ErrorCode)
			}
		}
	}
	return 0, fmt.Errorf("%w: the answer of a broker does not have partition %d", sink.ErrUnreachable,
		partition)
}
