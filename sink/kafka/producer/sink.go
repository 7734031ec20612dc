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
	lifetime
	client      *kafka.Client
	closeClient func() // once
	compressor  kgo.Compressor

	turn    sync.Mutex // of Publish
	records records
	taken   []*record    // of this Publish
	last    string       // topic of the last message
	topic   *topicQueues // of last
	tails   tails        // what earlier sessions have published

	queues  queues
	pace    pace          // guarded by the lock of the queues, like the three behind it
	timerAt time.Time     // when the timer expires; zero: it is not set
	idle    []*flush      // for reuse
	timer   *time.Timer   // calls expire
	room    chan struct{} // has a token when there may be room again

	verdict    sync.Mutex     // makes the first failure the first that is reported
	flushes    sync.WaitGroup // with the client
	background sync.WaitGroup
}

// Open connects, until ctx ends, and returns a sink that the caller closes. It does not retry:
// errors are those of kafka.Config.Reach, or sink.ErrPermission. done is called from the sink's
// goroutines.
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
	s.begin(cfg, log, done)
	if err := s.connect(ctx, alive); err != nil {
		s.dialer.Cut(sink.ErrClosed)
		return nil, fmt.Errorf("open Kafka producer at %s: %w", strings.Join(cfg.Brokers, ","), err)
	}
	s.start()
	return s, nil
}

// connect makes the client and requests its producer id: of a broker that answers. For later, when
// brokers come and go, the client gets the whole list.
func (s *Sink) connect(ctx context.Context, alive string) error {
	options := append(idempotent(&s.cfg, placed{&s.queues}, s), kgo.SeedBrokers(alive))
	client, err := s.cfg.NewClient(s.dialer, s.log, options...)
	if err != nil {
		return err
	}
	asking, cancel := context.WithTimeout(ctx, s.cfg.ReadTimeout)
	defer cancel()
	if err = identify(asking, client); err == nil {
		err = client.UpdateSeedBrokers(s.cfg.Brokers...)
	}
	if err == nil {
		client.AskFirst(alive)
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
	// when the cluster was given up: the client then reports what it has
	context.AfterFunc(s.dialer.WhenCut(), s.closeClient)
	s.background.Go(func() { s.watch(s.progress) }) // ends with taking; Close waits
	s.background.Go(s.failPending)                  // the same
}

var _ sink.Sink = (*Sink)(nil)

// Publish hands messages to the producer. It blocks while a topic is looked up for the first time
// and while too much waits. A message that cannot be sent as it is comes back as a
// *sink.MessageError.
func (s *Sink) Publish(ctx context.Context, ms []*sink.Message) error {
	s.turn.Lock()
	defer s.turn.Unlock()
	if s.stopped() {
		return s.cause()
	}
	if err := s.wait(ctx); err != nil {
		return err
	}

	var refused error
	s.topics.ahead = ms
	defer func() { s.topics.ahead = nil }()
	for _, m := range ms {
		r, err := s.prepare(ctx, m)
		if err != nil {
			refused = err // what was taken before it goes out
			break
		}
		s.taken = append(s.taken, r)
	}
	taken := s.add()
	s.trySend(false)
	if !taken {
		return s.cause()
	}
	return refused
}

// add puts what was taken into the queues. False: the sink has stopped meanwhile, and takes
// nothing of it.
func (s *Sink) add() bool {
	n := int64(len(s.taken))
	s.queues.mu.Lock()
	s.published.Add(n) // before any of it can be reported
	ok := s.queues.add(s.taken)
	s.queues.mu.Unlock()
	if !ok {
		s.published.Add(-n)
		for _, r := range s.taken {
			s.records.putBack(r)
		}
	}
	clear(s.taken)
	s.taken = s.taken[:0]
	return ok
}

// wait returns when there is room.
func (s *Sink) wait(ctx context.Context) error {
	for {
		s.queues.mu.Lock()
		full := s.queues.full()
		s.queues.mu.Unlock()
		if !full && ctx.Err() == nil {
			return nil
		}
		if err := s.until(ctx, s.room); err != nil {
			return err
		}
	}
}

// prepare checks everything that can be checked without sending, so that a poison message is found
// before it spoils a batch.
func (s *Sink) prepare(ctx context.Context, m *sink.Message) (*record, error) {
	if err := s.admit(ctx, m); err != nil {
		return nil, untaken(m, err)
	}
	r := s.records.take()
	r.fill(m)
	if err := s.fits(r); err != nil {
		s.records.putBack(r)
		return nil, untaken(m, err)
	}
	if m.Topic != s.last || s.topic == nil {
		s.last, s.topic = m.Topic, s.queues.topic(m.Topic)
		s.topic.partitions.CompareAndSwap(0, s.topics.known[m.Topic])
		if s.topic.led == nil {
			s.topic.led = s.led(m.Topic)
		}
	}
	r.topic = s.topic
	r.producer.Partition = s.topic.partition(&r.producer, m.Partition, r.size)
	return r, nil
}

// led reports whether a partition of a topic has a leader, as far as the client has it.
func (s *Sink) led(topic string) func(int32) bool {
	return func(partition int32) bool {
		leader, _, err := s.client.PartitionLeader(topic, partition)
		return err == nil && leader >= 0
	}
}

func (s *Sink) progress() (answers int64, waiting bool) {
	reported := s.reported.Load()
	return reported, s.published.Load() > reported
}

// report calls done for a message that has failed.
func (s *Sink) report(m *sink.Message, err error) {
	s.verdict.Lock()
	defer s.verdict.Unlock()
	err = translate(err)
	if s.stopped() && !kafka.IsVerdict(err) {
		err = s.left(err)
	}
	err = &sink.MessageError{Topic: m.Topic, Origin: m.Origin, Err: err}
	s.fail(err) // before done: when the failure is known, nothing more is taken
	s.reported.Add(1)
	s.done(m, err)
}

// left is the failure of a message that was left over when the sink stopped.
func (s *Sink) left(err error) error {
	var one *sink.MessageError
	if errors.Is(err, sink.ErrClosed) && errors.Is(s.cause(), sink.ErrUnreachable) &&
		!errors.As(s.cause(), &one) {
		return s.cause() // says more
	}
	return s.consequence(err)
}

// failPending reports what waits as failed when the sink has stopped. The client does not get it
// any more.
func (s *Sink) failPending() {
	<-s.taking.Done()
	s.verdict.Lock() // the failure itself comes first
	defer s.verdict.Unlock()
	for _, r := range s.queues.close() {
		m := r.message
		s.reported.Add(1)
		s.done(m, &sink.MessageError{Topic: m.Topic, Origin: m.Origin, Err: s.left(sink.ErrClosed)})
	}
}

// Close ends the producer. It waits for answers: one now spares a duplicate later, and a request
// that is given up could still be carried out after those of the next session. In the last
// quarter of the time, or at once if the cluster was given up, it cuts the connections and
// reports the rest as failed.
func (s *Sink) Close(ctx context.Context) error {
	return s.close(ctx, 0.75, s.dialer.WhenCut(), func() {
		s.turn.Lock()   // a Publish ends with taking, and none begins behind it
		s.turn.Unlock() //nolint:staticcheck // an empty section waits
		s.background.Wait()
		s.flushes.Wait()
		s.timer.Stop()
		s.closeClient()
		s.dialer.Cut(sink.ErrClosed)
	})
}
