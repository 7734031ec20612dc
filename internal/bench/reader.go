package bench

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/audit"
	audited "github.com/postrider/postrider/internal/audit/topics"
	"github.com/postrider/postrider/internal/demo"
	"github.com/postrider/postrider/sink"
)

// reader audits the records of a run, and keeps a time of the first record of each row.
type reader struct {
	rows  *rows
	tally *audit.Tally

	mu      sync.Mutex
	times   []int64 // Unix ns, of row n; zero: not yet
	records int64   // with duplicates
	bytes   int64   // of their values
	err     error
	scratch []byte
}

// newReader makes a reader of total rows.
func (b *bench) newReader(r *rows, total int64) *reader {
	return &reader{rows: r, tally: b.tally, times: make([]int64, total)}
}

// follow starts a reader of what is published from now on, which keeps the times of receipt. The
// caller must call end.
func (b *bench) follow(ctx context.Context, prefix string, rows *rows,
	total int64) (r *reader, end func(), err error) {
	follower, err := demo.Follow(ctx, b.cfg.Brokers, topics(prefix))
	if err != nil {
		return nil, nil, err
	}
	r = b.newReader(rows, total)
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() {
		err := follower.Run(ctx, func(f *audited.Followed) { r.take(&f.Message, time.Now()) })
		r.mu.Lock()
		defer r.mu.Unlock()
		r.err = err
	})
	return r, func() { cancel(); running.Wait(); follower.Close() }, nil
}

func (r *reader) take(m *sink.Message, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records++
	r.bytes += int64(len(m.Value))
	n, ok := r.rows.find(m.Key, m.Value, &r.scratch)
	if !ok || n >= int64(len(r.times)) {
		r.tally.Received("not one of ours", 1) // counts as phantom
		return
	}
	if r.tally.Received(r.rows.key(n), r.rows.number(n)) {
		r.times[n] = at.UnixNano()
	}
}

// counted returns how many records came so far.
func (r *reader) counted() (records int64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.records, r.err
}

// readToEnd waits until r has read everything that is in the topics.
func (b *bench) readToEnd(ctx context.Context, prefix string, r *reader) error {
	total := int64(0)
	if err := b.readTopics(ctx, prefix, func(*sink.Message) { total++ }); err != nil {
		return err
	}
	return demo.AwaitProgress(ctx, 5*time.Millisecond, total, r.counted)
}

// readTopics hands over the committed records of the topics with the times when they were
// appended. A message is valid until each returns.
func (b *bench) readTopics(ctx context.Context, prefix string, each func(*sink.Message)) error {
	reader, err := audited.OpenReader(ctx, demo.KafkaConfig(b.cfg.Brokers), true)
	if err != nil {
		return err
	}
	defer reader.Close()
	reader.AppendTimes = true
	for _, topic := range topics(prefix) {
		spans, err := reader.Spans(ctx, topic, time.Time{})
		if err != nil {
			return err
		}
		if err := reader.Read(ctx, spans, func(_ int, _ int64, m *sink.Message) error {
			each(m)
			return nil
		}); err != nil {
			return fmt.Errorf("read topic %q: %w", topic, err)
		}
	}
	return nil
}

// awaitDelivered waits until as many rows arrived as were written, as long as the relay runs.
func (b *bench) awaitDelivered(ctx context.Context, relay *relay, written int64) error {
	return relay.awaitProgress(ctx, 5*time.Millisecond, written, func() (int64, error) {
		_, delivered := b.tally.Counts()
		return delivered, nil
	})
}
