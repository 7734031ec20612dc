package producer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/sink/kafka/topicreader"
)

// DeadLetters reads the dead-letter topic, and appends what a redrive writes to it, and a record
// for each key that is not parked any more. A dead letter of the relay is made in
// internal/deadletter/letter.go and published by the sink in the place of its row. The methods of
// DeadLetters but Close are for one goroutine. After an Append whose context ended it must be
// closed.
type DeadLetters struct {
	cfg             kafka.Config
	log             zerolog.Logger
	topic           string
	transactionalID string // of Append; empty: it uses no transactions
	reader          *topicreader.Reader
	topics          topics
	limit           int

	mu     sync.Mutex    // guards client and closed, for Close and the goroutine of the other methods
	client *kafka.Client // replaced after a failure; nil before the first
	closed bool

	next         map[int32]int64                 // offset to read, by partition
	transactions topicreader.Transactions[int64] // offsets
	committed    []deadLetterOffset              // for deliverCommitted
	fetched      topicreader.Fetched             // by the last Get
}

// markersLimit bounds the wait for the markers of an Append. It takes milliseconds, unless another
// transaction is open in the topic.
const markersLimit = 5 * time.Second

// deadLetterOffset is the place of a dead letter that was read before its transaction's commit.
type deadLetterOffset struct {
	partition int32
	offset    int64
}

// OpenDeadLetters connects, and creates the topic if it is missing and sink.kafka.topics.create
// allows that. With a transactional id, Append publishes in one transaction, and OpenDeadLetters
// fences every other producer with that id, whose Append fails from then on. Errors are those of
// kafka.Connect.
func OpenDeadLetters(ctx context.Context, cfg kafka.Config, topic, id string,
	log zerolog.Logger) (*DeadLetters, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	alive, err := cfg.Reach(ctx)
	if err != nil {
		return nil, err
	}
	d := &DeadLetters{cfg: cfg, log: log, topic: topic, transactionalID: id, next: map[int32]int64{}}
	d.topics = topics{acceptCtx: context.Background(), known: map[string]int32{}}
	if err = d.connect(ctx); err == nil {
		d.client.Prefer(alive)
		d.limit, err = d.client.EnsureDeadLetters(ctx, topic, log)
	}
	if err != nil {
		d.Close()
		return nil, fmt.Errorf("open deadletter.topic: %w", err)
	}
	return d, nil
}

// connect makes the client, in place of a failed one. With a transactional id it fences all other
// producers that have it, whose open transaction Kafka aborts.
func (d *DeadLetters) connect(ctx context.Context) error {
	options := synchronous(&d.cfg)
	if d.transactionalID != "" {
		options = transactional(&d.cfg, d.transactionalID)
	}
	client, err := d.cfg.NewClient(kafka.NewDialer(&d.cfg), d.log, options...)
	if err != nil {
		return err
	}
	d.mu.Lock()
	former, closed := d.client, d.closed
	d.client = client
	d.mu.Unlock()
	if former != nil {
		former.Close()
	}
	if closed {
		client.Close()
		return sink.ErrClosed
	}
	d.reader, d.topics.client = topicreader.New(client, false), client
	if d.transactionalID == "" {
		return nil
	}
	return fence(ctx, client, d.transactionalID)
}

// Limit returns the size limit for records of the topic, in bytes.
func (d *DeadLetters) Limit() int { return d.limit }

// Close ends the connections and a call under way. It may be called from any goroutine.
func (d *DeadLetters) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	if d.client != nil {
		d.client.Close()
	}
}

func (d *DeadLetters) explain(ctx context.Context, err error) error {
	err = explain(&d.cfg, kafka.Failed(ctx, err), d.transactionalID)
	if ctx.Err() != nil {
		return cmp.Or(refusal(err, d.client.Failure()), err)
	}
	return err
}

// Append writes messages to their topics and returns when they are durable. With a transactional
// id readers of committed records see all or none, without one a failed Append may write a part.
// An error is a *sink.MessageError if one message is the reason.
func (d *DeadLetters) Append(ctx context.Context, ms []*sink.Message) error {
	if len(ms) == 0 {
		return nil
	}
	failed, err := d.write(ctx, ms)
	if failed {
		err = errors.Join(err, d.connect(ctx))
	}
	if err != nil {
		return fmt.Errorf("write %d records to topic %q and to their own topics: %w", len(ms), d.topic,
			err)
	}
	return nil
}

// write is Append within delivery_timeout. failed: the client has lost its sequence numbers or its
// connections, or has a transaction that only connect aborts.
func (d *DeadLetters) write(ctx context.Context, ms []*sink.Message) (failed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.DeliveryTimeout)
	defer cancel()
	records := make([]*kgo.Record, len(ms))
	for i, m := range ms {
		if err := d.admit(ctx, m); err != nil {
			return false, err
		}
		records[i] = kafkaRecord(m)
	}
	if d.transactionalID != "" {
		return d.writeTransaction(ctx, records, ms)
	}
	err = d.firstError(ctx, records, ms, produceSync(ctx, d.client, records...))
	return err != nil, err
}

func (d *DeadLetters) admit(ctx context.Context, m *sink.Message) error {
	var err error
	if size := kafka.RecordSize(m); size > d.cfg.MaxMessageBytes {
		err = fmt.Errorf("%w: %d bytes with overhead, sink.kafka.max_message_bytes is %d",
			sink.ErrTooLarge, size, d.cfg.MaxMessageBytes)
	} else {
		err = d.topics.ensure(ctx, m.Topic) // the client would wait for a missing topic
	}
	if err != nil {
		return untaken(m, err)
	}
	return nil
}

func (d *DeadLetters) writeTransaction(ctx context.Context, records []*kgo.Record,
	ms []*sink.Message) (failed bool, err error) {
	if err := d.client.BeginTransaction(); err != nil {
		return false, d.explain(ctx, err)
	}
	err = d.firstError(ctx, records, ms, produceSync(ctx, d.client, records...))
	if err == nil {
		err = d.commit(ctx, records)
	}
	if err == nil || abort(ctx, d.client) == nil {
		return false, err
	}
	// A process that was fenced stays so: a new producer would fence the one that has fenced it.
	fenced := errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch)
	return !fenced, err
}

func (d *DeadLetters) commit(ctx context.Context, records []*kgo.Record) error {
	writer := identityOf(records[0])
	if slices.ContainsFunc(records, func(r *kgo.Record) bool { return identityOf(r) != writer }) {
		return errProducerChanged
	}
	if err := commit(ctx, d.client, writer); err != nil {
		return fmt.Errorf("commit, with unknown outcome: %w", d.explain(ctx, err))
	}
	// The broker answers before it writes the markers, and a command that is typed next is to see
	// what this one has done. Nothing depends on it.
	ctx, cancel := context.WithTimeout(ctx, markersLimit)
	defer cancel()
	_, _ = d.reader.AwaitDecided(ctx, d.topic, markersLimit)
	return nil
}

// firstError returns the first error that is a broker's verdict about a message, else the first
// error, with its message; nil: all were written. results are in any order.
func (d *DeadLetters) firstError(ctx context.Context, records []*kgo.Record, ms []*sink.Message,
	results kgo.ProduceResults) error {
	errs := map[*kgo.Record]error{}
	for _, result := range results {
		if result.Err != nil {
			errs[result.Record] = d.explain(ctx, result.Err)
		}
	}
	index := func(is func(error) bool) int {
		return slices.IndexFunc(records,
			func(r *kgo.Record) bool { return errs[r] != nil && is(errs[r]) })
	}
	first := index(kafka.IsVerdict)
	if first < 0 {
		first = index(func(error) bool { return true })
	}
	if first < 0 {
		return nil
	}
	return &sink.MessageError{Topic: ms[first].Topic, Origin: ms[first].Origin,
		Err: errs[records[first]]}
}
