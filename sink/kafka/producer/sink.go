package producer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
)

// Sink publishes to Kafka. Publish is for one goroutine; Close may be called from any, also during
// Publish.
type Sink struct {
	base
	client      *kafka.Client
	closeClient func() // once
	compressor  kgo.Compressor

	publishMu sync.Mutex // held by Publish, which alone uses the fields up to queues
	pool      recordPool
	accepted  []*record    // by the Publish under way, and not in a queue yet
	last      string       // topic of the last message
	topic     *topicQueues // of last
	tails     tails        // what earlier sessions have published

	queues      queues
	pace        pace          // guarded by queues.mu, like the next three fields
	timerAt     time.Time     // when the timer expires; zero: it is not set
	freeFlushes []*flush      // for reuse
	timer       *time.Timer   // calls expire
	room        chan struct{} // has a token when there may be room again

	stalledMu sync.Mutex // guards the next two
	stalled   sink.Stalled
	stalledAt time.Time // when the queues were looked at

	failureMu  sync.Mutex     // serializes reports, so that done receives the first failure first
	flushes    sync.WaitGroup // that the client has
	background sync.WaitGroup
}

// Open connects and returns a sink, which the caller closes. ctx bounds the connecting. Open does
// not retry: errors are those of kafka.Config.Reach, or sink.ErrPermission. The sink's goroutines
// call done.
func Open(ctx context.Context, cfg kafka.Config, log zerolog.Logger,
	done sink.Done) (*Sink, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	alive, err := cfg.Reach(ctx)
	if err != nil {
		return nil, err
	}
	warn(&cfg, log)
	s := &Sink{
		queues: queues{limit: cfg.MaxMessageBytes, topics: map[string]*topicQueues{}},
		pace:   pace{linger: cfg.Linger},
		room:   make(chan struct{}, 1),
	}
	s.setup(cfg, log, done)
	if err := s.connect(ctx, alive); err != nil {
		s.dialer.Cut(sink.ErrClosed)
		return nil, fmt.Errorf("open Kafka producer at %s: %w", strings.Join(cfg.Brokers, ","), err)
	}
	s.start()
	return s, nil
}

// connect makes the client and requests its producer id from alive, a broker that has answered.
// Then it gives the client the whole list of brokers, for when alive is down.
func (s *Sink) connect(ctx context.Context, alive string) error {
	options := append(idempotent(&s.cfg, presetPartitioner{&s.queues}, s), kgo.SeedBrokers(alive),
		kgo.WithHooks(&s.throttles))
	client, err := s.cfg.NewClient(s.dialer, s.log, options...)
	if err != nil {
		return err
	}
	timed, cancel := context.WithTimeout(ctx, s.cfg.ReadTimeout)
	defer cancel()
	if err = requestProducerID(timed, client); err == nil {
		err = client.UpdateSeedBrokers(s.cfg.Brokers...)
	}
	if err == nil {
		client.Prefer(alive)
		s.client, s.closeClient = client, sync.OnceFunc(client.Client.Close)
		return nil
	}
	client.Close()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err = translate(err); errors.Is(err, sink.ErrPermission) {
		err = kafka.Advise(err, "%s", kafka.AllowCommand(s.cfg, "--producer --topic '*'"))
	}
	return err
}

func (s *Sink) start() {
	s.topics.client, s.topics.producer = s.client, s.client
	s.timer = time.AfterFunc(time.Hour, s.expire)
	// once the connections are cut: a closed client fails the records that it has
	context.AfterFunc(s.dialer.WhenCut(), s.closeClient)
	s.background.Go(func() { s.watch(s.progress) }) // ends with acceptCtx; Close waits
	s.background.Go(s.failPending)                  // the same
}

var _ sink.Staller = (*Sink)(nil)

// Publish queues messages for the producer. It blocks while a topic is looked up for the first
// time and while the queues are full. For a message that cannot be sent it returns a
// *sink.MessageError.
func (s *Sink) Publish(ctx context.Context, ms []*sink.Message) error {
	s.publishMu.Lock()
	defer s.publishMu.Unlock()
	if s.stopped() {
		return s.cause()
	}
	if err := s.waitForRoom(ctx); err != nil {
		return err
	}

	var refused error
	s.topics.ahead = ms
	defer func() { s.topics.ahead = nil }()
	for _, m := range ms {
		r, err := s.prepare(ctx, m)
		if err != nil {
			refused = err // the messages before it are sent
			break
		}
		s.accepted = append(s.accepted, r)
	}
	added := s.add()
	s.trySend(false)
	if !added {
		return s.cause()
	}
	return refused
}

// add moves the accepted records to the queues. It returns false, and drops them, if the sink has
// stopped meanwhile.
func (s *Sink) add() bool {
	n := int64(len(s.accepted))
	s.queues.mu.Lock()
	s.published.Add(n) // before any of it can be reported
	ok := s.queues.add(s.accepted)
	s.queues.mu.Unlock()
	if !ok {
		s.published.Add(-n)
		for _, r := range s.accepted {
			s.pool.putUnused(r)
		}
	}
	clear(s.accepted)
	s.accepted = s.accepted[:0]
	return ok
}

// waitForRoom returns when the queues are not full.
func (s *Sink) waitForRoom(ctx context.Context) error {
	for {
		s.queues.mu.Lock()
		full := s.queues.full()
		s.queues.mu.Unlock()
		if !full && ctx.Err() == nil {
			return nil
		}
		if err := s.await(ctx, s.room); err != nil {
			return err
		}
	}
}

// prepare makes the record of a message. It checks all that can be checked without sending: a
// poison message in a batch would fail the others.
func (s *Sink) prepare(ctx context.Context, m *sink.Message) (*record, error) {
	if err := s.admit(ctx, m); err != nil {
		return nil, untaken(m, err)
	}
	r := s.pool.get()
	r.fill(m)
	if err := s.checkSize(r); err != nil {
		s.pool.putUnused(r)
		return nil, untaken(m, err)
	}
	if m.Topic != s.last || s.topic == nil {
		s.last, s.topic = m.Topic, s.queues.topic(m.Topic)
		s.topic.partitions.CompareAndSwap(0, s.topics.known[m.Topic])
		if s.topic.hasLeader == nil {
			s.topic.hasLeader = s.hasLeader(m.Topic)
		}
	}
	r.topic = s.topic
	r.kgo.Partition = s.topic.partition(&r.kgo, m.Partition, r.size)
	return r, nil
}

// hasLeader returns a function that reports whether a partition of a topic has a leader in the
// client's metadata.
func (s *Sink) hasLeader(topic string) func(int32) bool {
	return func(partition int32) bool { return s.leader(topic, partition) >= 0 }
}

// leader returns the broker that leads a partition; negative: none does.
func (s *Sink) leader(topic string, partition int32) int32 {
	leader, _, err := s.client.PartitionLeader(topic, partition)
	if err != nil {
		return -1
	}
	return leader
}

// Stalled implements sink.Staller. It looks at the queues once a second at most: there may be tens
// of thousands.
func (s *Sink) Stalled() sink.Stalled {
	if s.queues.inClient.Load() == 0 {
		return sink.Stalled{}
	}
	s.stalledMu.Lock()
	defer s.stalledMu.Unlock()
	now := time.Now()
	if now.Sub(s.stalledAt) < time.Second {
		return s.stalled
	}
	s.stalled, s.stalledAt = s.queues.stalled(now), now
	if s.stalled.Partitions > 0 {
		s.explain(&s.stalled)
	}
	return s.stalled
}

// explain adds why the partition is stalled, as far as that is known, and what to do.
func (s *Sink) explain(of *sink.Stalled) {
	leader := s.leader(of.Topic, of.Partition)
	of.Leaderless = leader < 0
	of.Throttled = s.throttles.explain(leader, of.Since, s.stalledAt)
	switch {
	case of.Leaderless:
		of.Next = kafka.FindLeaderlessCommand(s.cfg)
	case of.Throttled:
		of.Next = kafka.FindQuotasCommand(s.cfg)
	default:
		of.Next = kafka.FindSmallISRCommand(s.cfg)
	}
	if failure := s.dialer.Failure(); failure != nil {
		of.Error = failure.Text
		if failure.Lasts() {
			of.Next = failure.Hint
		}
	}
}

func (s *Sink) progress() (answers int64, waiting bool) {
	reported := s.reported.Load()
	return reported, s.published.Load() > reported
}

// report calls done for a message that has failed.
func (s *Sink) report(m *sink.Message, err error) {
	s.failureMu.Lock()
	defer s.failureMu.Unlock()
	err = translate(err)
	if s.stopped() && !kafka.IsVerdict(err) {
		err = s.leftoverError(err)
	}
	err = &sink.MessageError{Topic: m.Topic, Origin: m.Origin, Err: err}
	s.fail(err) // before done: the sink accepts nothing once the failure is reported
	s.reported.Add(1)
	s.done(m, err)
}

// leftoverError returns the error of a message that was pending when the sink stopped.
func (s *Sink) leftoverError(err error) error {
	var one *sink.MessageError
	if errors.Is(err, sink.ErrClosed) && errors.Is(s.cause(), sink.ErrUnreachable) &&
		!errors.As(s.cause(), &one) {
		return s.cause() // more specific
	}
	return s.consequence(err)
}

// failPending waits until the sink stops and reports the messages in the queues as failed.
func (s *Sink) failPending() {
	<-s.acceptCtx.Done()
	s.failureMu.Lock() // after the failure that stopped the sink
	defer s.failureMu.Unlock()
	for _, r := range s.queues.close() {
		m := r.message
		s.reported.Add(1)
		err := s.leftoverError(sink.ErrClosed)
		s.done(m, &sink.MessageError{Topic: m.Topic, Origin: m.Origin, Err: err})
	}
}

// Close ends the producer. It waits for acknowledgements: each saves a duplicate in the next
// session, and a broker could execute an abandoned request after those of the next session. In the
// last quarter of the time, or at once after delivery_timeout without an answer, it cuts the
// connections and reports the rest as failed.
func (s *Sink) Close(ctx context.Context) error {
	return s.close(ctx, 0.75, s.dialer.WhenCut(), func() {
		s.publishMu.Lock()   // waits for a Publish: it ends with acceptCtx, and none begins after it
		s.publishMu.Unlock() //nolint:staticcheck // an empty section waits
		s.background.Wait()
		s.flushes.Wait()
		s.timer.Stop()
		s.closeClient()
		s.dialer.Cut(sink.ErrClosed)
	})
}
