package producer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
)

const (
	// clientLinger is the linger of the client. It applies only to batches that no flush completes
	// (flush.go): the first of a topic, whose leader is looked up, and repeated ones.
	clientLinger = 2 * time.Millisecond
	// unknownRetries is how many UNKNOWN_TOPIC_OR_PARTITION responses, without a success between
	// them, the records of a topic that existed survive: 7 s, one for each update of the metadata.
	unknownRetries = 30
	// firstRetry is shorter than retry_backoff: while a broker writes the markers of a transaction,
	// for some milliseconds, it refuses the next one.
	firstRetry = 2 * time.Millisecond
	// transactionLinger lets batches fill while a transaction is still coming. A commit does not
	// wait for it.
	transactionLinger = 5 * time.Millisecond
	// bufferedBytes is how much the client buffers before Produce blocks.
	bufferedBytes = 32 << 20
)

// idempotent returns the options of the at-least-once sink. hook is called for each record.
func idempotent(c *kafka.Config, partitioner kgo.Partitioner, hook kgo.Hook) []kgo.Opt {
	return []kgo.Opt{
		kgo.UnknownTopicRetries(unknownRetries),
		// after data loss the client would otherwise continue with a new producer id
		kgo.StopProducerOnDataLossDetected(),
		kgo.RecordPartitioner(partitioner),
		kgo.WithHooks(hook, requests{c.Requested}),
		kgo.ProducerLinger(clientLinger),
		kgo.ProducerBatchMaxBytes(c.LargestBatch()),
		// the relay limits what is in flight
		kgo.MaxBufferedRecords(math.MaxInt32),
	}
}

// transactional returns the options of a transactional producer.
func transactional(c *kafka.Config, id string) []kgo.Opt {
	return []kgo.Opt{
		kgo.RetryBackoffFn(c.Backoff(firstRetry)),
		kgo.RetryTimeoutFn(func(key int16) time.Duration {
			if kmsg.Key(key) == kmsg.EndTxn {
				// only a new producer can find out the outcome of an unanswered commit
				return time.Nanosecond
			}
			return c.RetryTimeout(key)
		}),
		kgo.TransactionalID(id),
		kgo.TransactionTimeout(c.TransactionTimeout),
		kgo.ConcurrentTransactionsBackoff(firstRetry),
		kgo.ProducerLinger(transactionLinger),
		kgo.ProducerBatchMaxBytes(int32(c.MaxMessageBytes)), //nolint:gosec // validated
		kgo.MaxBufferedBytes(max(bufferedBytes, 2*c.MaxMessageBytes)),
		kgo.RecordPartitioner(javaPartitioner{kgo.StickyKeyPartitioner(nil)}),
		kgo.WithHooks(requests{c.Requested}),
	}
}

// synchronous returns the options of a producer whose callers wait for each record.
func synchronous(c *kafka.Config) []kgo.Opt {
	return []kgo.Opt{
		kgo.ProducerLinger(0),
		kgo.ProducerBatchMaxBytes(c.LargestBatch()),
		kgo.RecordPartitioner(javaPartitioner{kgo.StickyKeyPartitioner(nil)}),
	}
}

var errNoProducerID = errors.New("the broker assigned no producer id, so it could write a " +
	"repeated request twice or out of order; " +
	"Kafka 0.11 or later is required, and sink.kafka.version not below it")

// requestProducerID requests the producer id of a client, which would also produce without one.
func requestProducerID(ctx context.Context, client *kafka.Client) error {
	id, _, err := client.ProducerID(ctx)
	if err == nil && id < 0 {
		return errNoProducerID
	}
	return err
}

// fence requests the producer id of a client with a transactional id. Kafka answers once every
// transaction of the former producer has its markers in all partitions, and the client repeats the
// request until then: delivery_timeout is the limit.
func fence(ctx context.Context, client *kafka.Client, id string) error {
	c := client.Config
	timed, cancel := context.WithTimeout(ctx, c.DeliveryTimeout)
	defer cancel()
	err := requestProducerID(timed, client)
	if err == nil || timed.Err() == nil || ctx.Err() != nil {
		return explain(c, kafka.Failed(ctx, err), id)
	}
	err = fmt.Errorf("%w: no producer id for %s (sink.kafka.delivery_timeout)", sink.ErrUnreachable,
		c.DeliveryTimeout)
	if refused := refusal(err, client.Failure()); refused != nil {
		return refused
	}
	return kafka.Advise(fmt.Errorf("%w: the former transaction has not ended in all partitions", err),
		"look for partitions without a leader, or without enough replicas:\n%s\n%s",
		kafka.FindLeaderlessCommand(*c), kafka.FindSmallISRCommand(*c))
}

// refusal adds to the error of a time-out why a broker refuses the relay, as after its certificate
// has expired; nil: none does.
func refusal(err error, failure *kafka.OpenError) error {
	if failure == nil || !failure.Lasts() {
		return nil
	}
	return kafka.Advise(fmt.Errorf("%w; %s", err, failure.Text), "%s", failure.Hint)
}

// producerIdentity is the id and epoch of a producer. All records of a transaction, and its end,
// must have the same one: after some errors the client requests another.
type producerIdentity struct {
	id    int64
	epoch int16
	known bool
}

func identityOf(r *kgo.Record) producerIdentity {
	return producerIdentity{r.ProducerID, r.ProducerEpoch, true}
}

var errProducerChanged = errors.New("producer id or epoch changed within a transaction: the " +
	"broker has aborted its earlier records")

// commit commits a transaction whose records have the identity writer, if the client still has it.
func commit(ctx context.Context, client *kafka.Client, writer producerIdentity) error {
	id, epoch, err := client.ProducerID(ctx)
	if err != nil {
		return err
	}
	if writer != (producerIdentity{id, epoch, true}) {
		return errProducerChanged
	}
	return client.EndTransaction(ctx, kgo.TryCommit)
}

func abort(ctx context.Context, client *kafka.Client) error {
	if err := client.AbortBufferedRecords(ctx); err != nil {
		return err
	}
	return client.EndTransaction(ctx, kgo.TryAbort)
}

// translate is kafka.Translate for errors of records, for which context.Canceled means that the
// sink has ended.
func translate(err error) error {
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("%w: %w", sink.ErrClosed, err)
	}
	return kafka.Translate(err)
}

// explain translates err, and adds advice on errors that only transactions have.
func explain(c *kafka.Config, err error, id string) error {
	return c.ExplainTransactional(translate(err), id)
}

// warn logs unsafe settings.
func warn(c *kafka.Config, log zerolog.Logger) {
	if c.TLS.InsecureSkipVerify {
		log.Warn().Str("reason", "sink.kafka.tls.insecure_skip_verify is true").
			Msg("broker certificates were not verified")
	}
	if c.SASL.InTheClear() && !c.TLS.Enabled {
		log.Warn().Str("reason", "sink.kafka.sasl.mechanism is "+c.SASL.Mechanism+" and "+
			"sink.kafka.tls.enabled is false").
			Msg("login was sent in the clear")
	}
}

// requests is a hook of the client that reports the size of each produce request.
type requests struct{ requested func(bytes int) }

var _ kgo.HookBrokerWrite = requests{}

// OnBrokerWrite is called by the client's goroutines, one per connection.
func (r requests) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, bytes int, _, _ time.Duration,
	err error) {
	if err == nil && key == int16(kmsg.Produce) && r.requested != nil {
		r.requested(bytes)
	}
}
