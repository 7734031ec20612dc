package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"github.com/rs/zerolog"

	"postrider/sink"
)

const (
	// closeTimeout bounds a Close whose context has no deadline.
	closeTimeout = 10 * time.Second
	// stallNotice is how long acknowledgements may stay away before that is worth a line in the log.
	stallNotice = 10 * time.Second
)

// Sink publishes to Kafka. Publish is for one goroutine; Close may be called from any, also during Publish.
type Sink struct {
	cfg       Config
	log       zerolog.Logger
	done      sink.Done
	dialer    *dialer
	producing sarama.Client
	producer  sarama.AsyncProducer
	topics    topics
	records   records

	turn   chan struct{} // holds a token while somebody feeds the producer: Publish, the lingering flush, or Close for good
	batch  batch         // owned by who holds the turn
	wakeUp chan time.Time

	tails map[string]*tail // what earlier sessions have published, by topic; of the goroutine of Publish

	published atomic.Int64 // messages taken
	reported  atomic.Int64 // messages done was called for; <= published

	stopOnce sync.Once
	stop     chan struct{} // closed when the sink takes nothing more
	cause    error         // why; set before stop is closed
	closed   atomic.Bool

	// broken is set before the first failure is reported: from then on nothing is written to a broker. What stands behind the
	// failed message would be seen before it, since that one comes again in the next session.
	broken atomic.Bool
	settle chan struct{} // taken by the result loop when it is through with all that it was given before

	abandon    chan error    // asks the result loop to report everything in flight as failed
	drained    chan struct{} // closed when the result loop has ended
	background sync.WaitGroup
}

func start(cfg Config, d *dialer, log zerolog.Logger, done sink.Done, asking, producing sarama.Client, producer sarama.AsyncProducer) *Sink {
	s := &Sink{
		cfg: cfg, log: log, done: done, dialer: d, producing: producing, producer: producer,
		turn: make(chan struct{}, 1), wakeUp: make(chan time.Time, 1), stop: make(chan struct{}),
		settle: make(chan struct{}), abandon: make(chan error), drained: make(chan struct{}),
	}
	s.topics = topics{cfg: &s.cfg, client: asking, producing: producing, stop: s.stop, known: map[string]int32{}}
	d.guard(s.permit)
	go s.results()            // ends when sarama closes its channels; Close waits for drained
	s.background.Go(s.watch)  // ends with stop; Close waits
	s.background.Go(s.linger) // ends with stop; Close waits
	return s
}

var _ sink.Sink = (*Sink)(nil)

// Publish hands messages to the producer. It blocks while a topic is looked up for the first time and while the producer
// has no room. A message that cannot be sent as it is comes back as a *sink.MessageError; the messages before it are taken.
func (s *Sink) Publish(ctx context.Context, ms []*sink.Message) error {
	select {
	case s.turn <- struct{}{}:
	case <-s.stop:
		return s.cause
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-s.turn }()
	if s.stopped() { // select chooses at random
		return s.cause
	}

	for _, m := range ms {
		r, err := s.prepare(ctx, m)
		if err != nil {
			_ = s.flush(ctx) // what was taken before it goes out; if not, it is reported at the latest by Close
			return err
		}
		s.records.launch(r)
		s.published.Add(1)
		s.batch.add(r)
	}
	if due := s.batch.due(time.Now(), s.cfg.Linger); !due.IsZero() {
		select {
		case s.wakeUp <- due:
		default: // an earlier one is set
		}
		return nil
	}
	return s.flush(ctx)
}

// Topic asks the cluster for a topic.
func (s *Sink) Topic(ctx context.Context, topic string) error {
	if err := s.topics.ensure(ctx, topic); err != nil {
		return &sink.MessageError{Topic: topic, Err: err}
	}
	return nil
}

// prepare checks everything that can be checked without sending, so that a poison message is found before it spoils a batch.
func (s *Sink) prepare(ctx context.Context, m *sink.Message) (*record, error) {
	failed := func(err error) (*record, error) {
		return nil, &sink.MessageError{Topic: m.Topic, Origin: m.Origin, Untaken: true, Err: err}
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
	r := s.records.take()
	r.fill(m)
	if err := s.fits(r); err != nil {
		s.records.putBack(r)
		return failed(err)
	}
	return r, nil
}

// flush feeds the batch to sarama, in order. The caller holds the turn. What could not be fed stays in flight until Close.
func (s *Sink) flush(ctx context.Context) error {
	if len(s.batch.records) == 0 {
		return nil
	}
	input := s.producer.Input()
	for i, r := range s.batch.records {
		select {
		case input <- &r.producer:
			continue
		default:
		}
		select {
		case input <- &r.producer:
		case <-s.stop:
			s.batch.records = s.batch.records[i:]
			return s.cause
		case <-ctx.Done():
			s.batch.records = s.batch.records[i:]
			s.fail(context.Cause(ctx))
			return context.Cause(ctx)
		}
	}
	s.batch.sent(time.Now())
	return nil
}

// results is the only goroutine that calls done: so each message is reported once, and those of a partition in order.
func (s *Sink) results() {
	defer close(s.drained)
	successes, failures := s.producer.Successes(), s.producer.Errors()
	for successes != nil || failures != nil {
		select {
		case p, ok := <-successes:
			if !ok {
				successes = nil
				continue
			}
			s.succeeded(p.Metadata.(*record))
		case p, ok := <-failures:
			if !ok {
				failures = nil
				continue
			}
			s.failed(p.Msg.Metadata.(*record), p.Err)
		case <-s.settle:
		case err := <-s.abandon:
			s.report(err)
		}
	}
	s.report(s.cause) // fed to nobody: they waited for company when the sink was closed
}

func (s *Sink) succeeded(r *record) {
	if !s.records.land(r) {
		return
	}
	m := r.message
	s.records.reuse(r)
	s.reported.Add(1)
	s.done(m, nil)
}

// failed reports one message. The record is not used again: the sink is about to be closed, and sarama may still hold it.
func (s *Sink) failed(r *record, err error) {
	if !s.records.land(r) {
		return
	}
	m := r.message
	err = translate(err)
	if s.stopped() && !isVerdict(err) {
		err = s.consequence(err)
	}
	err = &sink.MessageError{Topic: m.Topic, Origin: m.Origin, Err: err}
	s.broken.Store(true)
	s.fail(err)
	s.dialer.refuse(errRefused)
	s.reported.Add(1)
	s.done(m, err)
}

// consequence is the failure of a message that failed only because the sink had stopped.
func (s *Sink) consequence(err error) error {
	switch {
	case errors.Is(s.cause, sink.ErrUnreachable) && errors.Is(err, sink.ErrUnreachable):
		return err
	case errors.Is(s.cause, sink.ErrUnreachable):
		return fmt.Errorf("%w: %w", sink.ErrUnreachable, err)
	default:
		return fmt.Errorf("%w: %w", sink.ErrClosed, err)
	}
}

var errRefused = errors.New("not sent behind a failed message")

// permit is asked before each write to a broker. Sarama hands a failure to the result loop before it goes on with the
// partition; so when the loop has time for us, it has dealt with every failure that what is to be written could be behind.
// The test is TestSink_NothingOvertakesAFailedMessage: without this, one in three such failures is overtaken.
func (s *Sink) permit() error {
	select {
	case s.settle <- struct{}{}:
	case <-s.drained:
	}
	if s.broken.Load() {
		return errRefused
	}
	return nil
}

// report fails everything that is in flight, whatever the broker may still do with it.
func (s *Sink) report(err error) {
	s.broken.Store(true)
	for _, r := range s.records.landAll() {
		m := r.message
		s.reported.Add(1)
		s.done(m, &sink.MessageError{Topic: m.Topic, Origin: m.Origin, Err: err})
	}
}

// fail makes the sink refuse further messages. The first cause stays.
func (s *Sink) fail(cause error) {
	s.stopOnce.Do(func() {
		s.cause = cause
		close(s.stop)
	})
}

func (s *Sink) stopped() bool {
	select {
	case <-s.stop:
		return true
	default:
		return false
	}
}

// watch ends the session when the cluster acknowledges nothing for delivery_timeout, and says earlier that it hangs.
func (s *Sink) watch() {
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
		if reported != last || inFlight == 0 {
			if noticed {
				s.log.Info().Float64("duration", time.Since(since).Seconds()).Int64("in_flight", inFlight).Msg("broker acknowledges again")
			}
			last, since, noticed = reported, time.Now(), false
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
			select {
			case s.abandon <- cause:
			case <-s.drained:
			}
			return
		case silent >= stallNotice && !noticed:
			noticed = true
			s.log.Warn().Float64("duration", silent.Seconds()).Int64("in_flight", inFlight).Msg("broker stopped acknowledging")
		}
	}
}

// Close ends the producer; calling it again does nothing. What is out at the broker is waited for while time allows: an answer now spares a duplicate
// later, and a request given up now could still be carried out after those of the next session. In the last quarter of
// the time, or at once if the cluster was given up already, the connections are cut and the rest is reported as failed.
func (s *Sink) Close(ctx context.Context) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, closeTimeout)
		defer cancel()
	}
	s.fail(sink.ErrClosed)
	if s.closed.Swap(true) {
		return nil
	}
	s.turn <- struct{}{} // for good: sarama panics if it is fed while closing. Whoever has it leaves soon, because of stop
	finished := make(chan struct{})
	go s.shutdown(finished) // waited for below; outlives Close only if ctx ends first, and then the cut connections end it

	if !s.dialer.wasCut() {
		deadline, _ := ctx.Deadline()
		patience := time.NewTimer(time.Until(deadline) * 3 / 4)
		defer patience.Stop()
		select {
		case <-finished:
			return nil
		case <-patience.C:
		case <-ctx.Done():
		}
	}

	s.dialer.cut(sink.ErrClosed)
	left := s.published.Load() - s.reported.Load()
	select {
	case s.abandon <- sink.ErrClosed:
	case <-s.drained:
	}
	select {
	case <-finished:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close Kafka producer, %d messages in flight: %w", left, context.Cause(ctx))
	}
}

func (s *Sink) shutdown(finished chan<- struct{}) {
	defer close(finished)
	s.producer.AsyncClose()
	<-s.drained
	_ = s.producing.Close()
	_ = s.topics.client.Close()
	s.dialer.cut(sink.ErrClosed)
	s.topics.asking.Wait()
	s.background.Wait()
}

// latestTimestamp is the last one that sarama can write, in milliseconds: it goes through nanoseconds in 64 bits, and what is later would
// come out as another time without a word. Brokers refuse what is more than an hour ahead unless they are told otherwise.
const latestTimestamp = math.MaxInt64 / int64(time.Millisecond)
