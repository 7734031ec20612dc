package topicreader

import (
	"context"
	"errors"
	"fmt"
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
	// fetchWait is how long a broker waits for records that are not there yet.
	fetchWait = 500 * time.Millisecond
	// fetchBytes is what one request asks for; a larger batch comes as a whole.
	fetchBytes = 4 << 20
	// tries is how often a request is made, with pauses that double from firstPause on: an
	// election is over by then.
	tries      = 6
	firstPause = 100 * time.Millisecond
)

// Reader reads topics. It is safe for concurrent use.
type Reader struct {
	client    *kafka.Client
	admin     *kadm.Client
	committed bool
	unpack    kgo.Decompressor

	mu      sync.Mutex
	leaders map[string]leaders
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
	End  int64 // of the partition, as the answer says; -1: it does not
}

// New makes a reader of the records that client sees. committed: those of open and aborted
// transactions are left out, and the end of a partition is where the first open one begins.
func New(client *kafka.Client, committed bool) *Reader {
	return &Reader{client: client, committed: committed, admin: kadm.NewClient(client.Client),
		unpack: kgo.DefaultDecompressor(), leaders: map[string]leaders{}}
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

// Fetch asks for what stands at the offsets next, by partition, about bytes of each. It waits for
// records that are not there yet as long as wait, or less where several brokers are asked one
// after the other. Where retention has taken what stands at an offset, Next is where the partition
// begins.
func (r *Reader) Fetch(ctx context.Context, topic string, next map[int32]int64, bytes int32,
	wait time.Duration) (all []Fetched, err error) {
	err = r.retry(ctx, topic, func(ctx context.Context) error {
		all = nil
		id, byLeader, err := r.byLeader(ctx, topic, next)
		if err != nil {
			return err
		}
		if len(byLeader) > 1 {
			wait = min(wait, fetchWait)
		}
		for leader, partitions := range byLeader {
			request := kmsg.NewPtrFetchRequest()
			request.MinBytes, request.MaxBytes, request.MaxWaitMillis = 1, bytes,
				int32(max(wait.Milliseconds(), 1)) //nolint:gosec // seconds
			if r.committed {
				request.IsolationLevel = 1
			}
			of := kmsg.NewFetchRequestTopic()
			of.Topic, of.TopicID = topic, id
			for _, partition := range partitions {
				p := kmsg.NewFetchRequestTopicPartition()
				p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, next[partition], bytes
				of.Partitions = append(of.Partitions, p)
			}
			request.Topics = append(request.Topics, of)
			answer, err := request.RequestWith(ctx, r.client.Broker(int(leader)))
			if err == nil {
				err = kerr.ErrorForCode(answer.ErrorCode)
			}
			if err != nil {
				return err
			}
			fetched, err := r.take(ctx, topic, next, partitions, answer)
			if err != nil {
				return err
			}
			all = append(all, fetched...)
		}
		return nil
	})
	return all, err
}

// byLeader divides the partitions by the brokers that lead them.
func (r *Reader) byLeader(ctx context.Context, topic string,
	next map[int32]int64) (id [16]byte, by map[int32][]int32, err error) {
	led, err := r.leadersOf(ctx, topic)
	by = map[int32][]int32{}
	for partition := range next {
		leader, known := led.of[partition]
		if err == nil && !known {
			err = kerr.LeaderNotAvailable
		}
		by[leader] = append(by[leader], partition)
	}
	return led.id, by, err
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
	led.of = map[int32]int32{}
	for _, t := range answer.Topics {
		if t.Topic == nil || *t.Topic != topic {
			continue
		}
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return led, err
		}
		led.id = t.TopicID
		for _, p := range t.Partitions {
			if p.Leader >= 0 {
				led.of[p.Partition] = p.Leader
			}
		}
	}
	r.mu.Lock()
	r.leaders[topic] = led
	r.mu.Unlock()
	return led, nil
}

// take reads an answer.
func (r *Reader) take(ctx context.Context, topic string, next map[int32]int64, asked []int32,
	answer *kmsg.FetchResponse) (all []Fetched, err error) {
	for _, t := range answer.Topics {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			offset, known := next[p.Partition]
			err := kerr.ErrorForCode(p.ErrorCode)
			switch {
			case !known:
			case errors.Is(err, kerr.OffsetOutOfRange): // what stood there was deleted
				start, err := r.Offset(ctx, topic, p.Partition, startOfLog, consumer)
				if err == nil && start <= offset {
					err = fmt.Errorf("%w: partition %d begins at offset %d, and the broker says that %d is out "+
						"of range",
						sink.ErrUnreachable, p.Partition, start, offset)
				}
				if err != nil {
					return nil, err
				}
				all = append(all, Fetched{Partition: p.Partition, Next: start, End: -1})
			case err != nil:
				return nil, err
			default:
				f, err := r.decode(topic, offset, p)
				if err != nil {
					return nil, err
				}
				all = append(all, f)
			}
		}
	}
	if len(all) != len(asked) {
		return nil, fmt.Errorf("%w: the answer of a broker has %d partitions of %d", sink.ErrUnreachable,
			len(all), len(asked))
	}
	return all, nil
}

func (r *Reader) decode(topic string, offset int64,
	p *kmsg.FetchResponseTopicPartition) (Fetched, error) {
	options := kgo.ProcessFetchPartitionOpts{
		KeepControlRecords: true, Offset: offset, Topic: topic, Partition: p.Partition,
	}
	if r.committed {
		options.IsolationLevel = kgo.ReadCommitted()
	}
	f, next := kgo.ProcessFetchPartition(options, p, r.unpack, nil)
	if f.Err != nil {
		return Fetched{}, fmt.Errorf("read offset %d of partition %d: %w", next, p.Partition, f.Err)
	}
	return Fetched{p.Partition, f.Records, next, p.HighWatermark}, nil
}

// retry repeats a request while leaders move, as they do just after a topic was created, until
// delivery_timeout.
func (r *Reader) retry(ctx context.Context, topic string, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, r.client.Config.DeliveryTimeout)
	defer cancel()
	for try := 1; ; try++ {
		err := kafka.Failed(ctx, call(ctx))
		again := errors.Is(err, sink.ErrUnreachable) || kerr.IsRetriable(err) &&
			!errors.Is(err, sink.ErrUnknownTopic)
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
