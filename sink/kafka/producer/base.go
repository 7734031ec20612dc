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
	stallNotice  = 10 * time.Second // without acknowledgements, before it is logged
)

// base is the common part of both sinks: checks of messages, counts, stop and close.
type base struct {
	cfg    kafka.Config
	log    zerolog.Logger
	done   sink.Done
	dialer *kafka.Dialer
	topics topics

	throttles throttles // of the client that produces

	published atomic.Int64 // messages taken
	reported  atomic.Int64 // messages done was called for; <= published

	stopOnce      sync.Once
	acceptCtx     context.Context // canceled, with the cause, when the sink accepts nothing more
	stopAccepting context.CancelCauseFunc
	failed        atomic.Bool // stopped by an error, not by Close; set before acceptCtx ends
	closeOnce     sync.Once
	finished      chan struct{} // closed at the end of what Close does

	requestCtx     context.Context // of the producer's requests; canceled by the first failure
	cancelRequests context.CancelCauseFunc
}

// setup initializes b, which must not be copied after it.
func (b *base) setup(cfg kafka.Config, log zerolog.Logger, done sink.Done) {
	b.cfg, b.log, b.done = cfg, log, done
	b.dialer = kafka.NewDialer(&b.cfg)
	b.acceptCtx, b.stopAccepting = context.WithCancelCause(context.Background())
	b.requestCtx, b.cancelRequests = context.WithCancelCause(context.Background())
	b.finished = make(chan struct{})
	b.throttles.byBroker = map[int32]throttle{}
	b.topics = topics{acceptCtx: b.acceptCtx, known: map[string]int32{}}
}

// Topic implements sink.Sink. It queries all brokers before it reports a topic as missing.
func (b *base) Topic(ctx context.Context, topic string) error {
	err := b.topics.ensure(ctx, topic)
	if errors.Is(err, sink.ErrUnknownTopic) {
		missing := err
		err = b.topics.lookUp(ctx, topic, func(ctx context.Context, topic string) (int32, error) {
			return 0, b.topics.client.Confirm(ctx, topic, missing)
		})
	}
	if err != nil {
		return &sink.MessageError{Topic: topic, Err: err}
	}
	return nil
}

// admit checks everything about a message but its size that can be checked without sending.
func (b *base) admit(ctx context.Context, m *sink.Message) error {
	if err := b.topics.ensure(ctx, m.Topic); err != nil {
		return err
	}
	if m.Partition != sink.ByKey {
		if m.Partition < 0 {
			return fmt.Errorf("%w: partition %d is negative", sink.ErrInvalidRecord, m.Partition)
		}
		if err := b.topics.checkPartition(ctx, m.Topic, m.Partition); err != nil {
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

// tooLarge returns the error for a message whose batch would take size bytes.
func (b *base) tooLarge(topic string, size int, what string) error {
	err := fmt.Errorf("%w: %s, sink.kafka.max_message_bytes is %d", sink.ErrTooLarge, what,
		b.cfg.MaxMessageBytes)
	return kafka.Advise(err, "raise it together with the topic's limit: %s",
		kafka.AlterTopicCommand(b.cfg, topic, "max.message.bytes", size+1024))
}

// latestTimestamp is the last timestamp, in milliseconds, that the client writes correctly: it
// converts through nanoseconds, which overflow 64 bits after it.
const latestTimestamp = int64(1<<63-1) / int64(time.Millisecond)

// fail makes the sink refuse further messages and cancels all requests. The first cause stays.
func (b *base) fail(cause error) {
	b.stopOnce.Do(func() {
		b.failed.Store(true)
		b.stopAccepting(cause)
		b.cancelRequests(cause)
	})
}

// refuse makes the sink refuse further messages. Requests under way go on.
func (b *base) refuse() { b.stopOnce.Do(func() { b.stopAccepting(sink.ErrClosed) }) }

func (b *base) stopped() bool { return b.acceptCtx.Err() != nil }

// cause returns why the sink has stopped.
func (b *base) cause() error { return context.Cause(b.acceptCtx) }

// await waits for a token, until ctx ends or the sink stops.
func (b *base) await(ctx context.Context, token <-chan struct{}) error {
	select {
	case <-token:
		return nil
	case <-b.acceptCtx.Done():
		return b.cause()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// consequence returns the error of a message that failed only because the sink had stopped.
func (b *base) consequence(err error) error {
	class := sink.ErrClosed
	if errors.Is(b.cause(), sink.ErrUnreachable) {
		class = sink.ErrUnreachable
	}
	if errors.Is(err, class) {
		return err
	}
	return fmt.Errorf("%w: %w", class, err)
}

// close runs shutdown once and waits for it, also in a second call. After a part of the time that
// ctx allows, or when giveUp ends, it cuts the connections and waits for the rest of the time.
func (b *base) close(ctx context.Context, part float64, giveUp context.Context,
	shutdown func()) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, closeTimeout)
		defer cancel()
	}
	b.refuse()
	b.closeOnce.Do(func() {
		go func() { // waited for below; if ctx ends first, the cut connections end it
			defer close(b.finished)
			shutdown()
		}()
	})
	deadline, _ := ctx.Deadline()
	graceful, cancel := context.WithTimeout(ctx, time.Duration(part*float64(time.Until(deadline))))
	defer cancel()
	select {
	case <-b.finished:
		return nil
	case <-giveUp.Done():
	case <-graceful.Done():
	}
	inFlight := b.published.Load() - b.reported.Load()
	b.cancelRequests(sink.ErrClosed)
	b.dialer.Cut(sink.ErrClosed)
	select {
	case <-b.finished:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close Kafka producer, %d messages in flight: %w", inFlight,
			context.Cause(ctx))
	}
}

// watch fails the sink when the cluster acknowledges nothing for delivery_timeout, and logs the
// stall earlier. progress returns the number of answers so far, and whether one is expected. watch
// returns when the sink stops.
func (b *base) watch(progress func() (answers int64, waiting bool)) {
	ticker := time.NewTicker(min(time.Second, b.cfg.DeliveryTimeout/10))
	defer ticker.Stop()
	last, since, noticed := int64(-1), time.Now(), false
	for {
		select {
		case <-b.acceptCtx.Done():
			return
		case <-ticker.C:
		}
		answers, waiting := progress()
		inFlight := b.published.Load() - b.reported.Load()
		if answers != last || !waiting {
			if noticed {
				b.log.Info().Float64("duration", time.Since(since).Seconds()).Int64("in_flight", inFlight).
					Msg("broker acknowledges again")
			}
			last, since, noticed = answers, time.Now(), false
			continue
		}
		silent := time.Since(since)
		switch {
		case silent >= b.cfg.DeliveryTimeout:
			cause := b.unacknowledged(since, inFlight)
			b.fail(cause)
			b.dialer.Cut(cause)
			return
		case silent >= stallNotice && !noticed:
			noticed = true
			b.log.Warn().Float64("duration", silent.Seconds()).Int64("in_flight", inFlight).
				Msg("broker stopped acknowledging")
		}
	}
}

// unacknowledged returns why the sink fails when nothing is acknowledged for delivery_timeout.
func (b *base) unacknowledged(since time.Time, inFlight int64) error {
	err := fmt.Errorf("%w: no acknowledgement for %s (sink.kafka.delivery_timeout), %d messages in "+
		"flight", sink.ErrUnreachable, b.cfg.DeliveryTimeout, inFlight)
	switch refused := refusal(err, b.dialer.Failure()); {
	case refused != nil:
		return refused
	case b.throttles.explainAny(since, time.Now()):
		return kafka.Advise(fmt.Errorf("%w; the broker throttles the relay: a quota is exceeded", err),
			"raise the quota of the relay: %s", kafka.FindQuotasCommand(b.cfg))
	}
	return kafka.Advise(err, "look for partitions without enough replicas: %s",
		kafka.FindSmallISRCommand(b.cfg))
}
