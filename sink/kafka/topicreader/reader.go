package topicreader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
)

const (
	fetchWait  = 500 * time.Millisecond // of a broker for records that are not there yet
	fetchBytes = 4 << 20                // of one request; a larger batch comes as a whole
	// tries is how often a request is made, with pauses that double from firstPause on: 3.1 s. A
	// leader that steps down has a successor by then. One that crashes has none for 9 s, until the
	// controller misses its heartbeats: that is for the next session.
	tries      = 6
	firstPause = 100 * time.Millisecond
)

// Reader reads topics. It is safe for concurrent use.
type Reader struct {
	client    *kafka.Client
	admin     *kadm.Client
	committed bool
	unpack    kgo.Decompressor // of the client, which limits what a batch decompresses to

	mu      sync.Mutex         // guards leaders
	leaders map[string]leaders // by topic, until a request fails
}

// leaders are those of a topic, by partition.
type leaders struct {
	id [16]byte
	of map[int32]int32
}

// Fetched is what one answer brought of a partition.
type Fetched struct {
	Partition int32
	Records   []*kgo.Record // control records too
	// Next is the offset to go on at: behind the records, and behind what compaction has removed.
	Next int64
	End  int64 // of the partition, as in the answer; -1: it has none
}

// New makes a reader of the records that client sees. committed: those of open and aborted
// transactions are left out, and the end of a partition is where the first open one begins.
func New(client *kafka.Client, committed bool) *Reader {
	unpack, _ := client.OptValue(kgo.WithDecompressor).(kgo.Decompressor) // each client has one
	return &Reader{client: client, committed: committed, admin: kadm.NewClient(client.Client),
		unpack: unpack, leaders: map[string]leaders{}}
}

// Open makes a reader with connections of its own, which Close ends. Errors are those of
// kafka.Connect.
func Open(ctx context.Context, cfg kafka.Config, committed bool) (*Reader, error) {
	client, err := kafka.Connect(ctx, cfg, zerolog.Nop())
	if err != nil {
		return nil, err
	}
	return New(client, committed), nil
}

// Close ends the client.
func (r *Reader) Close() { r.client.Close() }

// Message is a record as package sink has it.
func Message(r *kgo.Record) *sink.Message {
	m := &sink.Message{Topic: r.Topic, Partition: r.Partition, Key: r.Key, Value: r.Value,
		Timestamp: r.Timestamp}
	for _, h := range r.Headers {
		m.Headers = append(m.Headers, sink.Header{Key: h.Key, Value: h.Value})
	}
	return m
}

// Fetch requests the records at the offsets next, by partition, about bytes of each. It waits up
// to wait for records that are not there yet, or less where several brokers have to answer one
// after the other. Where retention has deleted the records at an offset, Next is the start of the
// partition.
func (r *Reader) Fetch(ctx context.Context, topic string, next map[int32]int64, bytes int32,
	wait time.Duration) (all []Fetched, err error) {
	err = r.retry(ctx, topic, func(ctx context.Context) error {
		all = nil
		led, err := r.leadersOf(ctx, topic)
		if err != nil {
			return err
		}
		byLeader := map[int32][]kmsg.FetchRequestTopicPartition{}
		for partition, offset := range next {
			leader, known := led.of[partition]
			if !known {
				return kerr.LeaderNotAvailable
			}
			p := kmsg.NewFetchRequestTopicPartition()
			p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, offset, bytes
			byLeader[leader] = append(byLeader[leader], p)
		}
		if len(byLeader) > 1 {
			wait = min(wait, fetchWait)
		}
		for leader, partitions := range byLeader {
			request := kmsg.NewPtrFetchRequest()
			request.MinBytes, request.MaxBytes = 1, bytes
			request.MaxWaitMillis = int32(max(wait.Milliseconds(), 1)) //nolint:gosec // seconds
			if r.committed {
				request.IsolationLevel = 1
			}
			request.Topics = []kmsg.FetchRequestTopic{{Topic: topic, TopicID: led.id,
				Partitions: partitions}}
			answer, err := r.fetch(ctx, leader, request)
			if err != nil {
				return err
			}
			before := len(all)
			for _, t := range answer.Topics {
				for i := range t.Partitions {
					p := &t.Partitions[i]
					offset, known := next[p.Partition]
					if !known {
						continue
					}
					f, err := r.decode(ctx, topic, offset, p)
					if err != nil {
						return err
					}
					all = append(all, f)
				}
			}
			if n := len(all) - before; n != len(partitions) {
				return fmt.Errorf("%w: the answer of a broker has %d partitions of %d",
					sink.ErrUnreachable, n, len(partitions))
			}
		}
		return nil
	})
	return all, err
}

// fetch sends a fetch request. A broker whose quota is used up answers without any partition, and
// the client sends the next request once the broker allows it.
func (r *Reader) fetch(ctx context.Context, leader int32,
	request *kmsg.FetchRequest) (*kmsg.FetchResponse, error) {
	for {
		answer, err := request.RequestWith(ctx, r.broker(leader))
		if err == nil {
			err = kerr.ErrorForCode(answer.ErrorCode)
		}
		if err != nil || answer.ThrottleMillis <= 0 || len(answer.Topics) > 0 {
			return answer, err
		}
		if err := kafka.Pause(ctx, kafka.ReadPause); err != nil {
			return nil, err
		}
	}
}

// broker is one that leads a partition, for requests.
type broker struct {
	client *kafka.Client
	*kgo.Broker
}

func (r *Reader) broker(id int32) broker {
	return broker{r.client, r.client.Broker(int(id))}
}

// Request implements kmsg.Requestor. The client has no public error for a broker that has left the
// cluster: another one leads the partition by then.
func (b broker) Request(ctx context.Context, request kmsg.Request) (kmsg.Response, error) {
	answer, err := b.Broker.Request(ctx, request)
	same := func(other *kgo.Broker) bool { return *other == *b.Broker }
	if err != nil && kafka.Class(err) == nil &&
		!slices.ContainsFunc(b.client.DiscoveredBrokers(), same) {
		err = fmt.Errorf("%w: %w", kerr.LeaderNotAvailable, err)
	}
	return answer, err
}

func (r *Reader) leadersOf(ctx context.Context, topic string) (leaders, error) {
	r.mu.Lock()
	led, known := r.leaders[topic]
	r.mu.Unlock()
	if known {
		return led, nil
	}
	answer, err := r.client.Metadata(ctx, topic)
	if err != nil {
		return led, err
	}
	t, err := kafka.TopicOf(answer, topic)
	if err == nil {
		err = kerr.ErrorForCode(t.ErrorCode)
	}
	if err != nil {
		return led, err
	}
	led = leaders{t.TopicID, map[int32]int32{}}
	for _, p := range t.Partitions {
		if p.Leader >= 0 {
			led.of[p.Partition] = p.Leader
		}
	}
	r.mu.Lock()
	r.leaders[topic] = led
	r.mu.Unlock()
	return led, nil
}

// decode reads the answer for a partition from an offset on.
func (r *Reader) decode(ctx context.Context, topic string, offset int64,
	p *kmsg.FetchResponseTopicPartition) (Fetched, error) {
	err := kerr.ErrorForCode(p.ErrorCode)
	if errors.Is(err, kerr.OffsetOutOfRange) { // the records there were deleted
		start, err := r.offset(ctx, topic, p.Partition, startOfLog, consumer)
		if err == nil && start <= offset {
			err = fmt.Errorf("%w: partition %d begins at offset %d, and the broker reports %d as out "+
				"of range", sink.ErrUnreachable, p.Partition, start, offset)
		}
		return Fetched{Partition: p.Partition, Next: start, End: -1}, err
	}
	if err != nil {
		return Fetched{}, err
	}
	options := kgo.ProcessFetchPartitionOpts{
		KeepControlRecords: true, Offset: offset, Topic: topic, Partition: p.Partition,
	}
	if r.committed {
		options.IsolationLevel = kgo.ReadCommitted()
	}
	f, next := kgo.ProcessFetchPartition(options, p, r.unpack, nil)
	if batch, ok := errors.AsType[*kgo.ErrDecompressTooLarge](f.Err); ok {
		return Fetched{}, r.tooLarge(batch)
	}
	if f.Err != nil {
		return Fetched{}, fmt.Errorf("read offset %d of partition %d: %w", next, p.Partition, f.Err)
	}
	return Fetched{p.Partition, f.Records, next, p.HighWatermark}, nil
}

// tooLarge is the error for a batch that the relay itself does not write.
func (r *Reader) tooLarge(batch *kgo.ErrDecompressTooLarge) error {
	return kafka.Advise(fmt.Errorf("the batch at offset %d of partition %d has more than %d bytes "+
		"before compression", batch.Offset, batch.Partition, r.client.Config.LargestPlainBatch()),
		"set sink.kafka.max_message_bytes to at least the size of the batch before compression, or "+
			"delete the batch, and all records of the partition before it, with "+
			"kafka-delete-records.sh: up to offset %d", batch.NextOffset)
}

// retry repeats a request while leaders move, as they do just after a topic was created, until
// delivery_timeout.
func (r *Reader) retry(ctx context.Context, topic string, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, r.client.Config.DeliveryTimeout)
	defer cancel()
	for try := 1; ; try++ {
		err := kafka.Failed(ctx, call(ctx))
		again := errors.Is(err, sink.ErrUnreachable) || kerr.IsRetriable(err) &&
			!errors.Is(err, kerr.UnknownTopicOrPartition) // an unknown id is looked up again
		if err == nil || !again || ctx.Err() != nil || try == tries {
			return err
		}
		r.mu.Lock()
		delete(r.leaders, topic)
		r.mu.Unlock()
		if kafka.Pause(ctx, firstPause<<(try-1)) != nil {
			return kafka.Failed(ctx, err)
		}
	}
}
