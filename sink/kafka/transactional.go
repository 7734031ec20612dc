package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"postrider/sink"
)

// TransactionalSink publishes to Kafka in transactions, each of which holds whole transactions of PostgreSQL and the position behind them.
//
// It has one producer, and uses it until the first error of any kind, be it a time-out or a lost connection whose outcome nobody knows. Then it
// fails; the next session makes another producer, which shuts out this one, reads the position that was stored, and goes on
// from there. There is no other way to recover.
//
// Publish, Topic, Begin and Boundary are for one goroutine; Close may be called from any, also during Publish.
type TransactionalSink struct {
	cfg       Config
	log       zerolog.Logger
	done      sink.Done
	committed sink.Committed
	stored    *Progress // relay.position_topic; its client also asks about topics
	dialer    *dialer
	topics    topics

	// Set by Begin, before the writer starts.
	source sink.Source
	id     string // transactional id
	client *kgo.Client

	queue  queue
	writer transactionWriter

	published atomic.Int64 // messages taken
	reported  atomic.Int64 // messages done was called for; <= published
	commits   atomic.Int64
	busy      atomic.Bool // a transaction is being ended

	stopOnce sync.Once
	stop     chan struct{} // closed when the sink takes nothing more
	cause    error         // why; set before stop is closed
	failed   atomic.Bool   // stopped by an error, not by Close; set before stop is closed
	closed   atomic.Bool

	life       context.Context // of every request of the producer
	end        context.CancelCauseFunc
	background sync.WaitGroup // writer and watch
}

// OpenTransactional connects to the cluster and returns a sink that waits for Begin. positionTopic is created if it is missing. Errors are those of
// Open. done and committed are called from goroutines of the sink. The caller closes the sink.
func OpenTransactional(ctx context.Context, cfg Config, positionTopic string, log zerolog.Logger, done sink.Done, committed sink.Committed) (*TransactionalSink, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if _, err := cfg.reach(ctx); err != nil {
		return nil, err
	}
	cfg.warn(log)
	stored, err := openPositions(ctx, cfg, positionTopic, log)
	if err != nil {
		return nil, err
	}
	s := &TransactionalSink{
		cfg: cfg, log: log, done: done, committed: committed, stored: stored, dialer: stored.dialer,
		queue: newQueue(), stop: make(chan struct{}),
	}
	s.life, s.end = context.WithCancelCause(context.Background())
	s.topics = topics{cfg: &s.cfg, client: stored.client, producing: stored.client, stop: s.stop, known: map[string]int32{}}
	s.writer.sink = s
	return s, nil
}

var _ sink.Transactional = (*TransactionalSink)(nil)

// TransactionalID names the producer of a source. Database and slot are part of it, so that no two relays of one cluster shut each
// other out; a slot's name has no dot, so no two sources have the same.
func TransactionalID(s sink.Source) string {
	return "postrider." + s.SystemID + "." + s.Database + "." + s.Slot
}

// Begin makes the producer. When it returns, a former one of the source can commit nothing more, and what it has committed can be seen by readers.
func (s *TransactionalSink) Begin(ctx context.Context, source sink.Source) (sink.Position, error) {
	if s.client != nil {
		return sink.Position{}, errors.New("begun twice")
	}
	defer context.AfterFunc(ctx, func() { s.dialer.cut(context.Cause(ctx)) })() // not all of what follows looks at ctx
	began := time.Now()
	s.source, s.id = source, TransactionalID(source)
	client, err := s.cfg.transactional(s.dialer, s.id)
	if err != nil {
		return sink.Position{}, err
	}
	position, v2, err := s.begin(ctx, client)
	if err != nil {
		client.Close()
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		return sink.Position{}, fmt.Errorf("begin Kafka producer with transactional id %q: %w", s.id, err)
	}
	s.client = client
	if !v2 {
		s.log.Warn().Str("transactional_id", s.id).Str("reason", "the cluster's feature transaction.version is below 2, or the broker is older than Kafka 4.0").
			Msg("transactions of Kafka have known gaps when requests are delayed")
	}
	s.log.Info().Str("transactional_id", s.id).Stringer("end_lsn", position.LSN).Float64("duration", time.Since(began).Seconds()).
		Msg("transactional producer began")
	s.background.Go(s.writer.run) // ends with stop; Close waits
	s.background.Go(s.watch)      // ends with stop; Close waits
	return position, nil
}

func (s *TransactionalSink) begin(ctx context.Context, client *kgo.Client) (sink.Position, bool, error) {
	// Kafka answers when every transaction of the former producer has its markers in every partition.
	if _, _, err := client.ProducerID(ctx); err != nil {
		return sink.Position{}, false, s.cfg.explainTransactional(err, s.id)
	}
	v2, err := speaksTransactionsV2(ctx, client)
	if err != nil {
		return sink.Position{}, false, err
	}
	found, err := s.stored.positions(ctx)
	if err != nil {
		return sink.Position{}, false, err
	}
	position, err := found.settled(s.stored.topic, s.source)
	if err != nil {
		return sink.Position{}, false, err
	}
	if position == (sink.Position{}) {
		for _, key := range found.relatives(s.source) {
			s.log.Warn().Str("topic", s.stored.topic).Str("reason", "position of "+key).
				Msg("no position of this system is stored, but one of another with the same database and slot")
		}
	}
	return position, v2, nil
}

// Publish takes messages for the transaction to come. It blocks while a topic is looked up for the first time and while the queue is full.
func (s *TransactionalSink) Publish(ctx context.Context, ms []*sink.Message) error {
	if s.client == nil {
		return errors.New("publish before Begin")
	}
	for _, m := range ms {
		if s.stopped() {
			return s.cause
		}
		if err := s.admit(ctx, m); err != nil {
			s.queue.wake()
			return err
		}
		if err := s.add(ctx, entry{message: m}); err != nil {
			return err
		}
		s.published.Add(1)
	}
	s.queue.wake()
	return nil
}

func (s *TransactionalSink) add(ctx context.Context, e entry) error {
	for !s.queue.add(e) {
		s.queue.wake()
		select {
		case <-s.queue.room:
		case <-s.stop:
			return s.cause
		case <-ctx.Done():
			s.fail(context.Cause(ctx))
			return context.Cause(ctx)
		}
	}
	return nil
}

// Boundary says that what was published are whole transactions up to p.
func (s *TransactionalSink) Boundary(p sink.Position) {
	s.queue.close(p)
	s.queue.wake()
}

// Topic asks the cluster for a topic.
func (s *TransactionalSink) Topic(ctx context.Context, topic string) error {
	if err := s.topics.ensure(ctx, topic); err != nil {
		return &sink.MessageError{Topic: topic, Err: err}
	}
	return nil
}

// admit checks everything that can be checked without sending, so that a poison message is found before it spoils a transaction.
func (s *TransactionalSink) admit(ctx context.Context, m *sink.Message) error {
	failed := func(err error) error {
		return &sink.MessageError{Topic: m.Topic, Origin: m.Origin, Untaken: true, Err: err}
	}
	if _, ok := s.topics.known[m.Topic]; !ok {
		if err := s.topics.ensure(ctx, m.Topic); err != nil {
			return failed(err)
		}
	}
	if m.Partition != sink.ByKey {
		if m.Partition < 0 {
			return failed(fmt.Errorf("%w: partition %d is negative", sink.ErrInvalidRecord, m.Partition))
		}
		if err := s.topics.has(ctx, m.Topic, m.Partition); err != nil {
			return failed(err)
		}
	}
	if ms := m.Timestamp.UnixMilli(); !m.Timestamp.IsZero() && (ms < 0 || ms > latestTimestamp) {
		return failed(fmt.Errorf("%w: timestamp %s is not between 1970 and 2262", sink.ErrInvalidRecord, m.Timestamp.UTC().Format(time.RFC3339)))
	}
	if size := batchSize(m); size > s.cfg.MaxMessageBytes {
		return failed(advise(fmt.Errorf("%w: %d bytes with overhead, sink.kafka.max_message_bytes is %d", sink.ErrTooLarge, size, s.cfg.MaxMessageBytes),
			"raise it together with the topic's limit: kafka-configs.sh --bootstrap-server %s --alter --topic %s --add-config max.message.bytes=%d",
			s.cfg.bootstrap(), m.Topic, size+1024))
	}
	return nil
}

// batchSize is at least what a batch with only this message takes: what franz-go compares with the limit.
func batchSize(m *sink.Message) int {
	const batch, record, header = 80, 36, 10 // headers of the formats, with the longest numbers
	return m.Size() + batch + record + header*len(m.Headers)
}

// fail makes the sink refuse further messages and ends all requests. The first cause stays.
func (s *TransactionalSink) fail(cause error) {
	s.stopOnce.Do(func() {
		s.cause = cause
		s.failed.Store(true)
		close(s.stop)
		s.end(cause)
	})
}

func (s *TransactionalSink) stopped() bool {
	select {
	case <-s.stop:
		return true
	default:
		return false
	}
}

// watch ends the session when the cluster answers nothing for delivery_timeout, and says earlier that it hangs.
func (s *TransactionalSink) watch() {
	ticker := time.NewTicker(min(time.Second, s.cfg.DeliveryTimeout/10))
	defer ticker.Stop()
	last, since, noticed := int64(-1), time.Now(), false
	for {
		select {
		case <-s.stop:
			return
		case <-ticker.C:
		}
		reported := s.reported.Load()
		inFlight := s.published.Load() - reported
		answers := reported + s.commits.Load()
		if answers != last || inFlight == 0 && !s.busy.Load() {
			if noticed {
				s.log.Info().Float64("duration", time.Since(since).Seconds()).Int64("in_flight", inFlight).Msg("broker acknowledges again")
			}
			last, since, noticed = answers, time.Now(), false
			continue
		}
		silent := time.Since(since)
		switch {
		case silent >= s.cfg.DeliveryTimeout:
			cause := advise(fmt.Errorf("%w: no acknowledgement for %s (sink.kafka.delivery_timeout), %d messages in flight",
				sink.ErrUnreachable, s.cfg.DeliveryTimeout, inFlight),
				"look for partitions without enough replicas: kafka-topics.sh --bootstrap-server %s --describe --under-min-isr-partitions", s.cfg.bootstrap())
			s.fail(cause)
			s.dialer.cut(cause)
			return
		case silent >= stallNotice && !noticed:
			noticed = true
			s.log.Warn().Float64("duration", silent.Seconds()).Int64("in_flight", inFlight).Msg("broker stopped acknowledging")
		}
	}
}

// report calls done. After the first failure every message counts as failed, also one that the broker has written: nobody will see it.
func (s *TransactionalSink) report(m *sink.Message, err error) {
	if err != nil {
		translated := s.cfg.explainTransactional(err, s.id)
		if s.stopped() && !isVerdict(translated) {
			translated = s.consequence(translated)
		}
		err = &sink.MessageError{Topic: m.Topic, Origin: m.Origin, Err: translated}
		s.fail(err)
	} else if s.failed.Load() {
		err = &sink.MessageError{Topic: m.Topic, Origin: m.Origin, Err: s.consequence(sink.ErrClosed)}
	}
	s.reported.Add(1)
	s.done(m, err)
}

// consequence is the failure of a message that failed only because the sink had stopped.
func (s *TransactionalSink) consequence(err error) error {
	class := sink.ErrClosed
	if errors.Is(s.cause, sink.ErrUnreachable) {
		class = sink.ErrUnreachable
	}
	if errors.Is(err, class) {
		return err
	}
	return fmt.Errorf("%w: %w", class, err)
}

// Close ends the producer; calling it again does nothing. A commit that is under way is waited for while time allows, and a transaction without a boundary
// is aborted, so that nobody who reads the topics has to wait for the next session. After half of the time, or at
// once if the sink has failed, the connections are cut.
func (s *TransactionalSink) Close(ctx context.Context) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, closeTimeout)
		defer cancel()
	}
	s.stopOnce.Do(func() {
		s.cause = sink.ErrClosed
		close(s.stop)
	})
	if s.closed.Swap(true) {
		return nil
	}
	finished := make(chan struct{})
	go s.shutdown(finished) // waited for below; outlives Close only if ctx ends first, and then the cut connections end it

	deadline, _ := ctx.Deadline()
	patience := time.NewTimer(time.Until(deadline) / 2)
	defer patience.Stop()
	select {
	case <-finished:
		return nil
	case <-s.life.Done():
	case <-patience.C:
	case <-ctx.Done():
	}
	s.end(sink.ErrClosed)
	s.dialer.cut(sink.ErrClosed)
	select {
	case <-finished:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close Kafka producer, %d messages in flight: %w", s.published.Load()-s.reported.Load(), context.Cause(ctx))
	}
}

func (s *TransactionalSink) shutdown(finished chan<- struct{}) {
	defer close(finished)
	s.background.Wait()
	if s.client != nil {
		s.client.Close() // fails what it still has
		s.writer.left.Wait()
	}
	for _, e := range s.queue.take() { // never produced
		if e.message != nil {
			s.report(e.message, sink.ErrClosed)
		}
	}
	s.stored.Close()
	s.topics.asking.Wait()
}
