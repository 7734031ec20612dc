package producer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/sink/kafka/topicreader"
)

// DeadLetters reads and writes the dead-letter topic. Its methods are for one goroutine, but for
// Close. After an Append that its context interrupted it must be closed.
type DeadLetters struct {
	cfg           kafka.Config
	log           zerolog.Logger
	topic         string
	transactional string // id of the transactions of Append; empty: none
	dialer        *kafka.Dialer
	reader        *topicreader.Reader
	topics        topics
	limit         int

	mu     sync.Mutex
	client *kafka.Client // replaced after a failure

	next         map[int32]int64                 // offset to read, by partition
	transactions topicreader.Transactions[int64] // offsets
	committed    []deadLetterPlace               // not handed over yet
	got          topicreader.Fetched             // the last answer to Get
}

// deadLetterPlace is where a dead letter is whose transaction was committed behind it.
type deadLetterPlace struct {
	partition int32
	offset    int64
}

// OpenDeadLetters connects and ensures the topic, which it creates if sink.kafka.topics.create
// allows that. With the id of transactions, Append publishes to any topic in one transaction, and
// every other producer with that id is shut out, now. Errors are those of kafka.Connect.
func OpenDeadLetters(ctx context.Context, cfg kafka.Config, topic, id string,
	log zerolog.Logger) (*DeadLetters, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	alive, err := cfg.Reach(ctx)
	if err != nil {
		return nil, err
	}
	d := &DeadLetters{cfg: cfg, log: log, topic: topic, transactional: id, next: map[int32]int64{}}
	d.dialer = kafka.NewDialer(&d.cfg)
	d.topics = topics{taking: context.Background(), known: map[string]int32{}}
	if err = d.begin(ctx); err == nil {
		d.client.AskFirst(alive)
		d.limit, err = d.client.EnsureDeadLetters(ctx, topic, log)
	}
	if err != nil {
		d.Close()
		return nil, fmt.Errorf("open deadletter.topic: %w", err)
	}
	return d, nil
}

// begin makes the client. With transactions it shuts out every other producer with the id, and has
// what that left open aborted.
func (d *DeadLetters) begin(ctx context.Context) error {
	options := single(&d.cfg)
	if d.transactional != "" {
		options = transactional(&d.cfg, d.transactional)
	}
	client, err := d.cfg.NewClient(d.dialer, d.log, options...)
	if err != nil {
		return err
	}
	d.mu.Lock()
	former := d.client
	d.client = client
	d.mu.Unlock()
	if former != nil {
		former.Client.Close()
	}
	d.reader, d.topics.client = topicreader.New(client, false), client
	if d.transactional == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, d.cfg.DeliveryTimeout)
	defer cancel()
	if err := identify(ctx, client); err != nil {
		return d.explain(ctx, err)
	}
	return nil
}

// Limit is the largest record that the topic takes, in bytes.
func (d *DeadLetters) Limit() int { return d.limit }

// Close ends the connections. It may be called from any goroutine, and ends a call that is under
// way.
func (d *DeadLetters) Close() {
	d.dialer.Cut(sink.ErrClosed)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.client != nil {
		d.client.Client.Close()
	}
}

func (d *DeadLetters) explain(ctx context.Context, err error) error {
	return explain(&d.cfg, kafka.Failed(ctx, err), d.transactional)
}

// Append writes messages, to whatever topics, and returns when they are durable. With transactions
// readers of committed records see all or none; else a part may be written when it fails. An error
// is a *sink.MessageError if one message is the reason, by its Origin.
func (d *DeadLetters) Append(ctx context.Context, ms []*sink.Message) error {
	if len(ms) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, d.cfg.DeliveryTimeout)
	defer cancel()
	records := make([]*kgo.Record, len(ms))
	var err error
	for i, m := range ms {
		if err = d.admit(ctx, m); err != nil {
			break
		}
		records[i] = kafkaRecord(m)
	}
	switch {
	case err != nil:
	case d.transactional != "":
		err = d.appendTogether(ctx, records, ms)
	default:
		if err = d.firstRefused(ctx, records, ms, produceSync(ctx, d.client, records...)); err != nil {
			err = errors.Join(err, d.begin(ctx)) // one that has failed does not go on with its sequence
		}
	}
	if err != nil {
		return fmt.Errorf("write %d records, to topic %q and where they belong: %w", len(ms), d.topic,
			err)
	}
	return nil
}

func (d *DeadLetters) admit(ctx context.Context, m *sink.Message) error {
	var err error
	if size := kafka.RecordSize(m); size > d.cfg.MaxMessageBytes {
		err = fmt.Errorf("%w: %d bytes with overhead, sink.kafka.max_message_bytes is %d",
			sink.ErrTooLarge, size, d.cfg.MaxMessageBytes)
	} else {
		err = d.topics.ensure(ctx, m.Topic) // the client would wait for a topic that is not there
	}
	if err != nil {
		return untaken(m, err)
	}
	return nil
}

func (d *DeadLetters) appendTogether(ctx context.Context, records []*kgo.Record,
	ms []*sink.Message) error {
	if err := d.client.BeginTransaction(); err != nil {
		return d.explain(ctx, err)
	}
	err := d.firstRefused(ctx, records, ms, produceSync(ctx, d.client, records...))
	if err == nil {
		err = d.commit(ctx, records)
	}
	if err != nil {
		if ended := abort(ctx, d.client); ended != nil { // the next to begin makes the broker abort it
			return errors.Join(err, d.begin(ctx))
		}
	}
	return err
}

func (d *DeadLetters) commit(ctx context.Context, records []*kgo.Record) error {
	writer := identityOf(records[0])
	if slices.ContainsFunc(records, func(r *kgo.Record) bool { return identityOf(r) != writer }) {
		return errProducerChanged
	}
	if err := commit(ctx, d.client, writer); err != nil {
		return fmt.Errorf("commit, which is written or not: %w", d.explain(ctx, err))
	}
	return nil
}

// firstRefused is the reason why a batch failed, and not what followed from it. Results are in any
// order.
func (d *DeadLetters) firstRefused(ctx context.Context, records []*kgo.Record, ms []*sink.Message,
	results kgo.ProduceResults) error {
	of := map[*kgo.Record]error{}
	for _, result := range results {
		if result.Err != nil {
			of[result.Record] = d.explain(ctx, result.Err)
		}
	}
	refused := func(only func(error) bool) int {
		return slices.IndexFunc(records, func(r *kgo.Record) bool { return of[r] != nil && only(of[r]) })
	}
	first := refused(kafka.IsVerdict)
	if first < 0 {
		first = refused(func(error) bool { return true })
	}
	if first < 0 {
		return nil
	}
	return &sink.MessageError{Topic: ms[first].Topic, Origin: ms[first].Origin,
		Err: of[records[first]]}
}
