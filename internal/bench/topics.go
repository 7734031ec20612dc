package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/postrider/postrider/internal/audit"
	audited "github.com/postrider/postrider/internal/audit/topics"
	"github.com/postrider/postrider/internal/demo"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/slot"
)

// partitions of each topic.
const partitions = 4

// topics are those of one run. Each run has a prefix of its own, since the name of a topic that
// was just deleted is taken for a while.
func topics(prefix string) []string {
	var names []string
	for _, a := range aggregates {
		names = append(names, prefix+a)
	}
	return names
}

// connectKafka returns when the cluster has answered.
func (b *bench) connectKafka(ctx context.Context) error {
	var err error
	if b.client, err = demo.NewClient(b.cfg.Brokers); err != nil {
		return err
	}
	b.atEnd(func(context.Context) error {
		b.client.Close()
		return nil
	})
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cluster, err := kadm.NewClient(b.client.Client).BrokerMetadata(ctx)
	if err != nil {
		return fmt.Errorf("connect to Kafka at %v: %w: %w", b.cfg.Brokers, sink.ErrUnreachable,
			err)
	}
	b.pids = brokerPIDs(cluster.Brokers)
	return nil
}

// createTopics makes the topics of a run. One that exists was not made by it: that is an error.
func (b *bench) createTopics(ctx context.Context, prefix string) error {
	stamped := "LogAppendTime"
	config := map[string]*string{"message.timestamp.type": &stamped}
	for _, name := range topics(prefix) {
		err := b.client.CreateTopic(ctx, name, partitions, config)
		switch {
		case err == nil:
			b.atEnd(func(ctx context.Context) error { return demo.DeleteTopics(ctx, b.client, name) })
		case errors.Is(err, kerr.TopicAlreadyExists):
			return existsError(fmt.Errorf("topic %q exists already", name), fmt.Sprintf(
				"delete the topics %s*, if they are of a bench that was killed, "+
					"or choose another --name", b.cfg.Name))
		default:
			return fmt.Errorf("create topic %q: %w", name, err)
		}
	}
	// The controller has them; the brokers take a moment longer.
	for deadline := time.Now().Add(topicPatience); ; {
		_, err := demo.CountRecords(ctx, b.client, topics(prefix)...)
		if err == nil || time.Now().After(deadline) || !pause(ctx, 20*time.Millisecond) {
			return err
		}
	}
}

// topicPatience is how long new topics may be without leaders.
const topicPatience = 10 * time.Second

// existsError is the error for an object of the bench's name that the bench has not made.
func existsError(err error, fix string) error {
	return &slot.Error{
		Err: err, WAL: "a slot of a bench that was killed keeps WAL until it is dropped", Fix: fix,
	}
}

// reader audits the rows of a run, and keeps the times of each: of its commit, and of its first
// record.
type reader struct {
	*rows
	tally     *audit.Tally
	committed []int64 // Unix ns, of row n; zero: not yet; each written by one writer

	mu       sync.Mutex
	received []int64 // likewise
	bytes    int64   // of their values
	err      error
	scratch  []byte
}

func newReader(rows *rows, total int64) *reader {
	return &reader{rows: rows, tally: audit.New(), committed: make([]int64, total),
		received: make([]int64, total)}
}

// wrote records the commit of row n.
func (r *reader) wrote(n int64, at time.Time) {
	r.committed[n] = at.UnixNano()
	r.tally.Wrote(r.key(n), r.number(n))
}

// follow reads what is published from now on until the end of the run, with the times of receipt.
func (r *run) follow(ctx context.Context) error {
	follower, err := demo.Follow(ctx, r.cfg.Brokers, topics(r.prefix))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() {
		err := follower.Run(ctx, func(f *audited.Followed) { r.take(&f.Message, time.Now()) })
		r.mu.Lock()
		defer r.mu.Unlock()
		r.err = err
	})
	r.atEnd(func(context.Context) error {
		cancel()
		running.Wait()
		follower.Close()
		return nil
	})
	return nil
}

func (r *reader) take(m *sink.Message, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bytes += int64(len(m.Value))
	n, ok := r.find(m.Key, m.Value, &r.scratch)
	if !ok || n >= int64(len(r.received)) {
		r.tally.Received("not one of ours", 1) // counts as unexpected
		return
	}
	if r.tally.Received(r.key(n), r.number(n)) {
		r.received[n] = at.UnixNano()
	}
}

// latencies fills in those of the rows from first on, and returns how many of them were written.
func (r *run) latencies(first int64) (counted int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var sinceCommit, sinceDue []time.Duration
	for n := first; n < int64(len(r.committed)); n++ {
		if r.committed[n] == 0 {
			continue // the load ended before it
		}
		counted++
		if at := r.received[n]; at != 0 {
			// The consumer may have the record before the writer has the answer to its commit.
			sinceCommit = append(sinceCommit, max(0, time.Duration(at-r.committed[n])))
			sinceDue = append(sinceDue, time.Unix(0, at).Sub(r.load.due(n)))
		}
	}
	r.result.LatencyMS, r.result.ValueBytes = newLatency(sinceCommit), known(float64(r.bytes))
	if r.Kind == Rate {
		r.result.IntendedLatencyMS = newLatency(sinceDue)
	}
	return counted
}

// readToEnd waits until the reader has everything that is in the topics.
func (r *run) readToEnd(ctx context.Context) error {
	total := int64(0)
	if err := r.readTopics(ctx, func(*sink.Message) { total++ }); err != nil {
		return err
	}
	return demo.AwaitProgress(ctx, demo.Often, total, func() (int64, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.tally.Receipts(), r.err
	})
}

// readTopics hands over the committed records of the topics with the times when they were
// appended. A message is valid until each returns.
func (r *run) readTopics(ctx context.Context, each func(*sink.Message)) error {
	reader, err := audited.OpenReader(ctx, demo.KafkaConfig(r.cfg.Brokers), true)
	if err != nil {
		return err
	}
	defer reader.Close()
	reader.AppendTimes = true
	for _, topic := range topics(r.prefix) {
		spans, err := reader.Spans(ctx, topic, time.Time{})
		if err == nil {
			err = reader.Read(ctx, spans, func(_ int, _ int64, m *sink.Message) error {
				each(m)
				return nil
			})
		}
		if err != nil {
			return fmt.Errorf("read topic %q: %w", topic, err)
		}
	}
	return nil
}

// awaitDelivered waits until as many rows arrived as were written, as long as the relay runs.
func (r *run) awaitDelivered(ctx context.Context) error {
	written, _ := r.tally.Counts()
	return r.relay.awaitProgress(ctx, demo.Often, written, func() (int64, error) {
		_, delivered := r.tally.Counts()
		return delivered, nil
	})
}
