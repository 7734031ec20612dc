package producer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
)

const (
	closeTimeout = 10 * time.Second // of a Close whose context has no deadline
	stallNotice  = 10 * time.Second // without acknowledgements, until a line in the log
)

// lifetime is the common part of both sinks: admission, the count of what was reported, the end.
type lifetime struct {
	cfg    kafka.Config
	log    zerolog.Logger
	done   sink.Done
	dialer *kafka.Dialer
	topics topics

	published atomic.Int64 // messages taken
	reported  atomic.Int64 // messages done was called for; <= published

	stopOnce sync.Once
	taking   context.Context // ended, with the reason, when the sink takes nothing more
	stop     context.CancelCauseFunc
	failed   atomic.Bool // stopped by an error, not by Close; set before taking ends
	closed   atomic.Bool

	life context.Context // of every request of the producer; ended by the first failure
	end  context.CancelCauseFunc
}

// begin is the constructor; the address of a lifetime must not change behind it.
func (l *lifetime) begin(cfg kafka.Config, log zerolog.Logger, done sink.Done) {
	l.cfg, l.log, l.done = cfg, log, done
	l.dialer = kafka.NewDialer(&l.cfg)
	l.taking, l.stop = context.WithCancelCause(context.Background())
	l.life, l.end = context.WithCancelCause(context.Background())
	l.topics = topics{taking: l.taking, known: map[string]int32{}}
}

// Topic requests a topic of the cluster, and of all its brokers before it says that there is none.
func (l *lifetime) Topic(ctx context.Context, topic string) error {
	err := l.topics.ensure(ctx, topic)
	if errors.Is(err, sink.ErrUnknownTopic) {
		missing := err
		err = l.topics.ask(ctx, topic, func(ctx context.Context, topic string) (int32, error) {
			return 0, l.topics.client.Confirm(ctx, topic, missing)
		})
	}
	if err != nil {
		return &sink.MessageError{Topic: topic, Err: err}
	}
	return nil
}

// admit checks everything about a message but its size that can be checked without sending, so
// that a poison message is found before it spoils a batch.
func (l *lifetime) admit(ctx context.Context, m *sink.Message) error {
	if err := l.topics.ensure(ctx, m.Topic); err != nil {
		return err
	}
	if m.Partition != sink.ByKey {
		if m.Partition < 0 {
			return fmt.Errorf("%w: partition %d is negative", sink.ErrInvalidRecord, m.Partition)
		}
		if err := l.topics.has(ctx, m.Topic, m.Partition); err != nil {
			return err
		}
	}
	if ms := m.Timestamp.UnixMilli(); !m.Timestamp.IsZero() && (ms < 0 || ms > latestTimestamp) {
		return fmt.Errorf("%w: timestamp %s is not between 1970 and 2262", sink.ErrInvalidRecord,
			m.Timestamp.UTC().Format(time.RFC3339))
	}
	return nil
}

func untaken(m *sink.Message, err error) error {
	return &sink.MessageError{Topic: m.Topic, Origin: m.Origin, Untaken: true, Err: err}
}

// tooLarge is the refusal of a message whose batch would take size bytes.
func (l *lifetime) tooLarge(topic string, size int, what string) error {
	err := fmt.Errorf("%w: %s, sink.kafka.max_message_bytes is %d", sink.ErrTooLarge, what,
		l.cfg.MaxMessageBytes)
	return kafka.Advise(err, "raise it together with the topic's limit: %s",
		kafka.RaiseTopicLimitCommand(l.cfg, topic, size+1024))
}

// latestTimestamp is the last one that the client can write, in milliseconds: it goes through
// nanoseconds in 64 bits, and writes another time for a later one.
const latestTimestamp = int64(1<<63-1) / int64(time.Millisecond)

// fail makes the sink refuse further messages and ends all requests. The first cause stays.
func (l *lifetime) fail(cause error) {
	l.stopOnce.Do(func() {
		l.failed.Store(true)
		l.stop(cause)
		l.end(cause)
	})
}

// refuse makes the sink refuse further messages. What is under way goes on.
func (l *lifetime) refuse() { l.stopOnce.Do(func() { l.stop(sink.ErrClosed) }) }

func (l *lifetime) stopped() bool { return l.taking.Err() != nil }

// cause is why the sink takes nothing more.
func (l *lifetime) cause() error { return context.Cause(l.taking) }

// until returns when there is a token, or with the reason why none is waited for any more.
func (l *lifetime) until(ctx context.Context, token <-chan struct{}) error {
	select {
	case <-token:
		return nil
	case <-l.taking.Done():
		return l.cause()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// consequence is the failure of a message that failed only because the sink had stopped.
func (l *lifetime) consequence(err error) error {
	class := sink.ErrClosed
	if errors.Is(l.cause(), sink.ErrUnreachable) {
		class = sink.ErrUnreachable
	}
	if errors.Is(err, class) {
		return err
	}
	return fmt.Errorf("%w: %w", class, err)
}

// close runs shutdown and waits for its end: for a part of the time that ctx allows, or until
// givenUp ends, and after that, with the connections cut, for the rest of the time.
func (l *lifetime) close(ctx context.Context, part float64, givenUp context.Context,
	shutdown func()) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, closeTimeout)
		defer cancel()
	}
	l.refuse()
	if l.closed.Swap(true) {
		return nil
	}
	finished := make(chan struct{})
	go func() { // waited for below; outlives close only if ctx ends, and the cut connections end it
		defer close(finished)
		shutdown()
	}()
	deadline, _ := ctx.Deadline()
	patience, cancel := context.WithTimeout(ctx, time.Duration(part*float64(time.Until(deadline))))
	defer cancel()
	select {
	case <-finished:
		return nil
	case <-givenUp.Done():
	case <-patience.Done():
	}
	left := l.published.Load() - l.reported.Load()
	l.end(sink.ErrClosed)
	l.dialer.Cut(sink.ErrClosed)
	select {
	case <-finished:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close Kafka producer, %d messages in flight: %w", left, context.Cause(ctx))
	}
}

// watch ends the session when the cluster answers nothing for delivery_timeout, and logs earlier
// that it hangs. progress counts the answers so far, and reports whether one is waited for. It
// returns when the sink stops.
func (l *lifetime) watch(progress func() (answers int64, waiting bool)) {
	ticker := time.NewTicker(min(time.Second, l.cfg.DeliveryTimeout/10))
	defer ticker.Stop()
	last, since, noticed := int64(-1), time.Now(), false
	for {
		select {
		case <-l.taking.Done():
			return
		case <-ticker.C:
		}
		answers, waiting := progress()
		inFlight := l.published.Load() - l.reported.Load()
		if answers != last || !waiting {
			if noticed {
				l.log.Info().Float64("duration", time.Since(since).Seconds()).Int64("in_flight", inFlight).
					Msg("broker acknowledges again")
			}
			last, since, noticed = answers, time.Now(), false
			continue
		}
		silent := time.Since(since)
		switch {
		case silent >= l.cfg.DeliveryTimeout:
			cause := kafka.Advise(fmt.Errorf("%w: no acknowledgement for %s "+
				"(sink.kafka.delivery_timeout), %d messages in flight",
				sink.ErrUnreachable, l.cfg.DeliveryTimeout, inFlight),
				"look for partitions without enough replicas: %s", kafka.FindSmallISRCommand(l.cfg))
			l.fail(cause)
			l.dialer.Cut(cause)
			return
		case silent >= stallNotice && !noticed:
			noticed = true
			l.log.Warn().Float64("duration", silent.Seconds()).Int64("in_flight", inFlight).
				Msg("broker stopped acknowledging")
		}
	}
}
