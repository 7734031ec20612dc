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

// Follower reads what is published to topics from the moment it was opened on. Run is for one
// goroutine; Want, Partition and Topics are for any.
type Follower struct {
	*client
	log      zerolog.Logger
	pattern  *regexp.Regexp // nil: only topics that are wanted
	exclude  string         // prefix of topics that are never read; empty: none
	consumer sarama.Consumer
	received chan *sarama.ConsumerMessage // of all partitions
	ended    context.Context
	stop     context.CancelFunc
	readers  sync.WaitGroup

	mu      sync.Mutex
	wanted  map[string]bool
	count   map[string]int32                       // partitions of each topic of the cluster
	next    map[partition]int64                    // offset to begin at; not there: the first of the partition
	reading map[partition]sarama.PartitionConsumer // nil: it has ended by itself
}

type partition struct {
	topic  string
	number int32
}

// Followed is one record. The slices are the caller's.
type Followed struct {
	Message sink.Message
	Offset  int64
}

const (
	// followBuffer is how many records of a partition wait for Run, beside what is being fetched.
	followBuffer = 256
	// followBytes bounds what is fetched from a partition at once, and so what a follower of many
	// partitions takes.
	followBytes = 256 << 10
	// followRefresh is how often new topics and partitions are looked for.
	followRefresh = 2 * time.Second
	// followTries is how often the ends of partitions without a leader are read again: an
	// election takes less.
	followTries = 10
)

// Follow connects, and notes the ends of all topics: what is published from now on will be read,
// of topics that match the pattern or are wanted. Topics and partitions that appear later are read
// from their beginnings. Internal topics, and those with the prefix exclude, are left out. The
// errors are those of kafka.Config.Reach.
func Follow(ctx context.Context, cfg kafka.Config, pattern *regexp.Regexp, exclude string,
	log zerolog.Logger) (*Follower, error) {
	f := &Follower{
		log: log, pattern: pattern, exclude: exclude, received: make(chan *sarama.ConsumerMessage),
		wanted: map[string]bool{}, count: map[string]int32{}, next: map[partition]int64{},
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
		err := errors.Join(f.look(), f.readEnds())
		if err == nil {
			break
		}
		// A topic that was made just now has no leader yet, or the leader has moved.
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
				// It may not be read, or its leader is away: if it is wanted at all, from its end on.
				end = sarama.OffsetNewest
			}
			f.next[partition{topic, p}] = end
		}
	}
	return nil
}

// look reads the list of all topics and their partitions.
func (f *Follower) look() error {
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

// Want has a topic read that the pattern does not match.
func (f *Follower) Want(topic string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wanted[topic] = true
}

// Partition is where Java's producer, and our sink, put a message: false if that is not known,
// because the topic does not exist, or the message has no key and goes anywhere.
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

// Topics are those that are being read, sorted.
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

// Run hands over each record, in the order of its partition, until ctx ends; then it returns nil.
// It retries for ever what it cannot read, and logs why.
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
	// A request cannot be interrupted, and must not delay the records. Nil: none is under way.
	var looking chan error
	for {
		select {
		case <-ctx.Done():
			if looking != nil {
				<-looking //nolint:errcheck // it was cut
			}
			return nil
		case m := <-f.received:
			each(followed(m))
		case <-tick.C:
			if looking == nil {
				done := make(chan error, 1)
				go func() { done <- errors.Join(f.look(), f.begin()) }() // waited for above
				looking = done
			}
		case err := <-looking:
			looking = nil
			if err != nil && ctx.Err() == nil {
				f.log.Warn().Err(err).Msg("topics not read; trying again")
			}
		}
	}
}

// begin reads every partition that should be read and is not. One goroutine at a time calls it.
func (f *Follower) begin() (err error) {
	for p, from := range f.beginnings() {
		if failed := f.read(p, from); failed != nil {
			err = errors.Join(err, fmt.Errorf("read partition %d of topic %q: %w", p.number, p.topic,
				translate(failed)))
		}
	}
	return err
}

// beginnings returns the offset of each partition to begin with.
func (f *Follower) beginnings() map[partition]int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := map[partition]int64{}
	for topic, n := range f.count {
		if !f.matches(topic) && !f.wanted[topic] {
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
		// it ended by itself if its place was deleted: begin finds another
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
