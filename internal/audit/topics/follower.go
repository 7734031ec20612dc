package topics

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/rs/zerolog"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
)

// Follower reads the records that are published after it was opened. Run is for one goroutine;
// Add, Partition and Topics are safe for concurrent use.
type Follower struct {
	*client
	log      zerolog.Logger
	pattern  *regexp.Regexp // nil: only added topics
	exclude  string         // prefix of topics to ignore; empty: none
	consumer sarama.Consumer
	received chan *sarama.ConsumerMessage // of all partitions
	ended    context.Context
	stop     context.CancelFunc
	readers  sync.WaitGroup

	mu      sync.Mutex                             // guards what follows
	added   map[string]bool                        // topics, beside those of pattern
	count   map[string]int32                       // partitions of each topic of the cluster
	next    map[partition]int64                    // offset to begin at; absent: the oldest
	reading map[partition]sarama.PartitionConsumer // nil: it has ended, begin replaces it
}

type partition struct {
	topic  string
	number int32
}

// Followed is one record. The caller owns its slices.
type Followed struct {
	Message sink.Message
	Offset  int64
}

const (
	// followBuffer is how many fetched records of a partition wait for Run.
	followBuffer = 256
	// followBytes bounds a fetch from a partition, and so the memory of many partitions.
	followBytes = 256 << 10
	// followRefresh is the interval of metadata requests for new topics and partitions.
	followRefresh = 2 * time.Second
	// followTries is how often end offsets are requested again: an election takes less.
	followTries = 10
)

// Follow connects and reads the end offsets of all topics. Run then reads those that match pattern
// or are added: from these ends on, or from the beginning of one that is created later. Internal
// topics, and those with the prefix exclude, are ignored. Errors are those of kafka.Config.Reach.
func Follow(ctx context.Context, cfg kafka.Config, pattern *regexp.Regexp, exclude string,
	log zerolog.Logger) (*Follower, error) {
	f := &Follower{
		log: log, pattern: pattern, exclude: exclude, received: make(chan *sarama.ConsumerMessage),
		added: map[string]bool{}, count: map[string]int32{}, next: map[partition]int64{},
		reading: map[partition]sarama.PartitionConsumer{},
	}
	f.ended, f.stop = context.WithCancel(context.WithoutCancel(ctx))
	_, err := connect(ctx, cfg, func(s *sarama.Config) {
		s.Consumer.IsolationLevel = sarama.ReadCommitted
		s.Consumer.Fetch.Default = followBytes
		s.Consumer.Retry.Backoff = leaderPause
		s.Consumer.MaxWaitTime = fetchWait
		s.ChannelBufferSize = followBuffer
	}, func(c *client) error { f.client = c; return f.open(ctx) })
	if err != nil {
		f.stop()
		return nil, err
	}
	return f, nil
}

func (f *Follower) open(ctx context.Context) error {
	for try := 0; ; try++ {
		err := errors.Join(f.readTopics(), f.readEnds())
		if err == nil {
			break
		}
		// A new topic has no leader yet, or the leader has moved.
		if try == followTries || !errors.Is(err, sink.ErrUnreachable) {
			return err
		}
		if kafka.Pause(ctx, leaderPause) != nil {
			return err
		}
	}
	var err error
	f.consumer, err = sarama.NewConsumerFromClient(f.Client)
	return translate(err)
}

// readEnds reads the end offsets of all topics. Follow alone uses it, before f is shared.
func (f *Follower) readEnds() error {
	newest := map[string]map[int32]int64{}
	for topic, n := range f.count {
		newest[topic] = map[int32]int64{}
		for p := range n {
			newest[topic][p] = sarama.OffsetNewest
		}
	}
	if len(newest) == 0 {
		return nil
	}
	found, err := f.admin.ListOffsets(newest, nil)
	if err != nil {
		return translate(err)
	}
	for topic, partitions := range found {
		for p, result := range partitions {
			end := result.Offset
			if result.Err != nil && !errors.Is(result.Err, sarama.ErrNoError) {
				if f.matches(topic) {
					return fmt.Errorf("partition %d of topic %q: %w", p, topic, translate(result.Err))
				}
				// Not permitted, or without a leader. If added later, it is read from its end.
				end = sarama.OffsetNewest
			}
			f.next[partition{topic, p}] = end
		}
	}
	return nil
}

// readTopics reads the names and the partition counts of all topics.
func (f *Follower) readTopics() error {
	found, err := f.topics()
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for topic, partitions := range found {
		if f.exclude == "" || !strings.HasPrefix(topic, f.exclude) {
			f.count[topic] = partitions
		}
	}
	return nil
}

func (f *Follower) matches(topic string) bool {
	return f.pattern != nil && f.pattern.MatchString(topic)
}

// Add adds a topic that the pattern does not match.
func (f *Follower) Add(topic string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.added[topic] = true
}

// Partition returns the partition into which Java's producer, and postrider, put a message. It is
// unknown if the topic does not exist, or if the message has neither partition nor key.
func (f *Follower) Partition(m *sink.Message) (int32, bool) {
	if m.Partition >= 0 {
		return m.Partition, true
	}
	f.mu.Lock()
	n := f.count[m.Topic]
	f.mu.Unlock()
	if n == 0 || m.Key == nil {
		return 0, false
	}
	at, err := sarama.NewMurmur2Partitioner(m.Topic).Partition(
		&sarama.ProducerMessage{Key: sarama.ByteEncoder(m.Key)}, n)
	return at, err == nil
}

// Topics returns the topics that are being read, sorted.
func (f *Follower) Topics() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	for p := range f.reading {
		names = append(names, p.topic)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Run calls each for every record, in the order of each partition. It returns nil when ctx ends.
// Until then it retries partitions that it cannot read, and logs the errors.
func (f *Follower) Run(ctx context.Context, each func(*Followed)) error {
	tick := time.NewTicker(followRefresh)
	defer tick.Stop()
	defer context.AfterFunc(ctx, func() { f.dialer.Cut(context.Cause(ctx)) })()
	switch err := f.begin(); {
	case ctx.Err() != nil:
		return nil
	case errors.Is(err, sink.ErrUnreachable):
		f.log.Warn().Err(err).Msg("topics not read; trying again")
	case err != nil:
		return err
	}
	// The result of a refresh in the background. Nil: none is running.
	var refreshed chan error
	for {
		select {
		case <-ctx.Done():
			if refreshed != nil {
				<-refreshed //nolint:errcheck // its connection was cut
			}
			return nil
		case m := <-f.received:
			each(followed(m))
		case <-tick.C:
			if refreshed == nil {
				done := make(chan error, 1)
				go func() { done <- errors.Join(f.readTopics(), f.begin()) }() // waited for above
				refreshed = done
			}
		case err := <-refreshed:
			refreshed = nil
			if err != nil && ctx.Err() == nil {
				f.log.Warn().Err(err).Msg("topics not read; trying again")
			}
		}
	}
}

// begin starts to read the partitions of beginnings. Only one goroutine at a time may call it.
func (f *Follower) begin() (err error) {
	for p, from := range f.beginnings() {
		if failed := f.read(p, from); failed != nil {
			err = errors.Join(err, fmt.Errorf("read partition %d of topic %q: %w", p.number, p.topic,
				translate(failed)))
		}
	}
	return err
}

// beginnings returns the partitions that should be read and are not, with their offsets.
func (f *Follower) beginnings() map[partition]int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := map[partition]int64{}
	for topic, n := range f.count {
		if !f.matches(topic) && !f.added[topic] {
			continue
		}
		for number := range n {
			p := partition{topic, number}
			if f.reading[p] != nil {
				continue
			}
			all[p] = sarama.OffsetOldest
			if from, known := f.next[p]; known {
				all[p] = from
			}
		}
	}
	return all
}

func (f *Follower) read(p partition, from int64) error {
	consumer, err := f.consumer.ConsumePartition(p.topic, p.number, from)
	if errors.Is(err, sarama.ErrOffsetOutOfRange) { // deleted and recreated, or expired
		consumer, err = f.consumer.ConsumePartition(p.topic, p.number, sarama.OffsetOldest)
	}
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reading[p] = consumer
	f.readers.Go(func() { // ends when Close closes the partition's consumer
		next := from
		for m := range consumer.Messages() {
			next = m.Offset + 1
			select {
			case f.received <- m:
			case <-f.ended.Done():
			}
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		// It has ended because retention deleted its offset, or by Close.
		f.reading[p] = nil
		f.next[p] = next
	})
	return nil
}

func followed(m *sarama.ConsumerMessage) *Followed {
	return &Followed{Offset: m.Offset, Message: sink.Message{
		Topic: m.Topic, Partition: m.Partition, Key: m.Key, Value: m.Value, Timestamp: m.Timestamp,
		Headers: headers(nil, m.Headers),
	}}
}

// Close ends the connections and waits for the goroutines. Run must have returned.
func (f *Follower) Close() {
	f.stop()
	f.dialer.Cut(sink.ErrClosed)
	f.mu.Lock()
	for _, consumer := range f.reading {
		if consumer != nil {
			consumer.AsyncClose()
		}
	}
	f.mu.Unlock()
	f.readers.Wait()
	if f.consumer != nil {
		_ = f.consumer.Close()
	}
	f.close()
}
