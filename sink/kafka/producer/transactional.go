package producer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
)

// TransactionalSink publishes to Kafka in transactions, each of which contains whole transactions
// of PostgreSQL and the position after them. The producer's first error ends it, also a timeout
// with unknown outcome. The next session makes another producer, which fences this one, and
// continues from the stored position.
//
// Publish, Topic, Begin and Boundary are for one goroutine; Close is for any, also during Publish.
type TransactionalSink struct {
	base
	committed     sink.Committed
	admin         *kafka.Client // looks up topics, and reads positionTopic
	positionTopic string

	// Set by Begin, before the writer starts.
	source sink.Source
	id     string // transactional id
	client *kafka.Client

	queue  writerQueue
	writer *transactionWriter

	commits    atomic.Int64
	committing atomic.Bool
	background sync.WaitGroup // writer and watch
}

// OpenTransactional connects as Open does, creates positionTopic if it is missing, and returns a
// sink on which Begin comes first. The sink's goroutines call done and committed.
func OpenTransactional(ctx context.Context, cfg kafka.Config, positionTopic string,
	log zerolog.Logger, done sink.Done, committed sink.Committed) (*TransactionalSink, error) {
	admin, err := kafka.Connect(ctx, cfg, log)
	if err != nil {
		return nil, err
	}
	warn(&cfg, log)
	if err := admin.EnsureCompacted(ctx, positionTopic, log); err != nil {
		admin.Close()
		return nil, fmt.Errorf("open relay.position_topic %q: %w", positionTopic, err)
	}
	s := &TransactionalSink{committed: committed, admin: admin, positionTopic: positionTopic,
		queue: newWriterQueue()}
	s.setup(cfg, log, done)
	s.topics.client = admin
	s.writer = newTransactionWriter(s)
	return s, nil
}

var _ sink.Transactional = (*TransactionalSink)(nil)

// TransactionalID returns the transactional id of a source. It contains database and slot, so that
// relays of one cluster do not fence each other. A slot's name has no dot, so it is unique.
func TransactionalID(s sink.Source) string {
	return "postrider." + s.SystemID + "." + s.Database + "." + s.Slot
}

// Begin makes the producer. It fences a former one of the source: when it returns, that one cannot
// commit any more, and readers see all that it has committed.
func (s *TransactionalSink) Begin(ctx context.Context, source sink.Source) (sink.Position, error) {
	if s.client != nil {
		return sink.Position{}, errors.New("second call of Begin")
	}
	began := time.Now()
	s.source, s.id = source, TransactionalID(source)
	options := append(transactional(&s.cfg, s.id), kgo.WithHooks(&s.throttles))
	client, err := s.cfg.NewClient(s.dialer, s.log, options...)
	if err != nil {
		return sink.Position{}, err
	}
	position, v2, err := s.start(ctx, client)
	if err != nil {
		client.Close()
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		return sink.Position{}, fmt.Errorf("begin Kafka producer with transactional id %q: %w", s.id,
			err)
	}
	s.client, s.topics.producer = client, client
	if !v2 {
		s.log.Warn().Str("transactional_id", s.id).Str("reason",
			"the cluster's feature transaction.version is below 2, or the broker is older than Kafka 4.0").
			Msg("Kafka does not protect transactions from delayed requests")
	}
	s.log.Info().Str("transactional_id", s.id).Stringer("end_lsn", position.LSN).Float64("duration",
		time.Since(began).Seconds()).
		Msg("transactional producer began")
	s.background.Go(s.writer.run)                   // ends with acceptCtx; Close waits
	s.background.Go(func() { s.watch(s.progress) }) // the same
	return position, nil
}

func (s *TransactionalSink) start(ctx context.Context,
	client *kafka.Client) (position sink.Position, v2 bool, err error) {
	if err = fence(ctx, client, s.id); err != nil {
		return position, false, err
	}
	var found positions
	if v2, err = client.HasTransactionsV2(ctx); err == nil {
		found, err = readPositions(ctx, s.admin, s.positionTopic)
	}
	if err == nil {
		position, err = found.forFencedSource(s.positionTopic, s.source)
	}
	if err == nil && position == (sink.Position{}) {
		for _, key := range found.otherSystems(s.source) {
			s.log.Warn().Str("topic", s.positionTopic).Str("reason", "position of "+key).
				Msg("no position is stored for this system identifier, but one for another with the same " +
					"database and slot")
		}
	}
	return position, v2, err
}

// Publish adds messages to the next transaction. It blocks while a topic is looked up for the
// first time and while the queue is full.
func (s *TransactionalSink) Publish(ctx context.Context, ms []*sink.Message) error {
	if s.client == nil {
		return errors.New("publish before Begin")
	}
	s.topics.ahead = ms
	defer func() { s.topics.ahead = nil }()
	defer s.queue.wake()
	for _, m := range ms {
		if s.stopped() {
			return s.cause()
		}
		if err := s.admit(ctx, m); err != nil {
			return err
		}
		if err := s.add(ctx, entry{message: m}); err != nil {
			return err
		}
	}
	return nil
}

// add adds a message to the queue. It blocks while the queue is full.
func (s *TransactionalSink) add(ctx context.Context, e entry) error {
	s.published.Add(1) // before it can be reported
	for !s.queue.add(e) {
		s.queue.wake()
		if err := s.await(ctx, s.queue.room); err != nil {
			s.published.Add(-1)
			s.fail(err)
			return err
		}
	}
	return nil
}

// Boundary marks the messages published so far as whole transactions, up to p.
func (s *TransactionalSink) Boundary(p sink.Position) {
	s.queue.addBoundary(p)
	s.queue.wake()
}

// admit checks everything about a message that can be checked without sending.
func (s *TransactionalSink) admit(ctx context.Context, m *sink.Message) error {
	if err := s.base.admit(ctx, m); err != nil {
		return untaken(m, err)
	}
	if size := kafka.RecordSize(m); size > s.cfg.MaxMessageBytes {
		return untaken(m, s.tooLarge(m.Topic, size, fmt.Sprintf("%d bytes with overhead", size)))
	}
	return nil
}

func (s *TransactionalSink) progress() (answers int64, waiting bool) {
	reported := s.reported.Load()
	return reported + s.commits.Load(), s.published.Load() > reported || s.committing.Load()
}

// report calls done. After the first failure every message has failed, also one that the broker
// has written: its transaction will not be committed.
func (s *TransactionalSink) report(m *sink.Message, err error) {
	if err != nil {
		translated := explain(&s.cfg, err, s.id)
		if s.stopped() && !kafka.IsVerdict(translated) {
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

// Close ends the producer. It waits for a commit under way, and aborts an open transaction, for
// whose end readers would wait. After half of the time, or at once if the sink has failed, it cuts
// the connections.
func (s *TransactionalSink) Close(ctx context.Context) error {
	return s.close(ctx, 0.5, s.requestCtx, func() {
		s.background.Wait()
		if s.client != nil {
			s.client.Close() // fails the records that it has
			s.writer.inClient.Wait()
		}
		s.writer.failEntries(s.queue.close())
		s.admin.Close()
		s.dialer.Cut(sink.ErrClosed)
	})
}
