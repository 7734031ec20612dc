package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/internal/audit"
	"github.com/postrider/postrider/internal/demo"
)

// reader consumes the topics of a run from their beginnings, audits each record, and keeps the
// time of its receipt.
type reader struct {
	client *kgo.Client
	rows   *rows
	tally  *audit.Tally

	cancel context.CancelFunc
	ended  chan struct{}

	mu       sync.Mutex
	received []int64 // Unix ns of row n's first receipt; zero: not yet
	appended []int64 // Unix ms of its first record, by the broker's clock
	records  int64   // with duplicates, and the markers of transactions
	bytes    int64   // of their values
	err      error
}

// openReader starts a reader of total rows. The caller must close it.
func (b *bench) openReader(prefix string, r *rows, total int64) (*reader, error) {
	options := []kgo.Opt{kgo.SeedBrokers(b.cfg.Brokers...), kgo.ConsumeTopics(topics(prefix)...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMinBytes(1),
		kgo.FetchMaxWait(500 * time.Millisecond), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords()}
	if b.cfg.BrokerPID != 0 {
		// The in-process broker writes its time into batches without a new checksum. The reader
		// compares every value in full.
		options = append(options, kgo.DisableFetchCRCValidation())
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, fmt.Errorf("open a consumer: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	reader := &reader{client: client, rows: r, tally: b.tally, cancel: cancel,
		ended:    make(chan struct{}),
		received: make([]int64, total), appended: make([]int64, total)}
	go func() { // ends with close, which waits
		defer close(reader.ended)
		reader.run(ctx)
	}()
	return reader, nil
}

func (r *reader) close() {
	r.cancel()
	<-r.ended
	r.client.Close()
}

func (r *reader) run(ctx context.Context) {
	var scratch []byte
	for ctx.Err() == nil {
		fetches := r.client.PollFetches(ctx)
		now := time.Now().UnixNano()
		r.mu.Lock()
		for _, e := range fetches.Errors() {
			if !errors.Is(e.Err, context.Canceled) {
				r.err = fmt.Errorf("read topic %q: %w", e.Topic, e.Err)
			}
		}
		for it := fetches.RecordIter(); !it.Done(); {
			r.takeLocked(it.Next(), now, &scratch)
		}
		r.mu.Unlock()
	}
}

func (r *reader) takeLocked(record *kgo.Record, now int64, scratch *[]byte) {
	r.records++
	if record.Attrs.IsControl() {
		return
	}
	r.bytes += int64(len(record.Value))
	const byBroker = 1
	if record.Attrs.TimestampType() != byBroker {
		r.err = fmt.Errorf("topic %q: the broker does not put its own time on the records, "+
			"though message.timestamp.type is LogAppendTime", record.Topic)
	}
	n, ok := r.rows.find(record.Key, record.Value, scratch)
	if !ok || n >= int64(len(r.received)) {
		r.tally.Received("not one of ours", 1) // counts as phantom
		return
	}
	if r.tally.Received(r.rows.key(n), r.rows.number(n)) {
		r.received[n], r.appended[n] = now, record.Timestamp.UnixMilli()
	}
}

// counted returns how many records came so far.
func (r *reader) counted() (records int64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.records, r.err
}

// readToEnd waits until everything that is in the topics has been read.
func (b *bench) readToEnd(ctx context.Context, prefix string, r *reader) error {
	total, err := demo.CountRecords(ctx, b.admin, topics(prefix)...)
	if err != nil {
		return err
	}
	return demo.AwaitProgress(ctx, 5*time.Millisecond, total, r.counted)
}

// awaitDelivered waits until as many rows arrived as were written, as long as the relay runs.
func (b *bench) awaitDelivered(ctx context.Context, relay *relay, written int64) error {
	return relay.awaitProgress(ctx, 5*time.Millisecond, written, func() (int64, error) {
		_, delivered := b.tally.Counts()
		return delivered, nil
	})
}
