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
	// waking is how long the client waits with a batch that no flush completes (flush.go): the
	// first of a topic, whose leader it has to look up, and one that is repeated.
	waking = 2 * time.Millisecond
	// unknownRetries is how often brokers may say that they do not have a topic which was there,
	// before its messages fail: about half a minute.
	unknownRetries = 30
	// firstRetry is shorter than retry_backoff: a broker that still writes the markers of the last
	// transaction refuses the next one for some milliseconds.
	firstRetry = 2 * time.Millisecond
	// transactionLinger lets a transaction that is published before its end fill its batches. A
	// commit does not wait for it.
	transactionLinger = 5 * time.Millisecond
	// bufferedBytes is what the client holds before it makes us wait.
	bufferedBytes = 32 << 20
)

// idempotent are the options of the at-least-once sink: never loses, never reorders, gives up
// late. hook is called for each record.
func idempotent(c *kafka.Config, partitioner kgo.Partitioner, hook kgo.Hook) []kgo.Opt {
	return []kgo.Opt{
		kgo.UnknownTopicRetries(unknownRetries),
		// it would go on under another identity, as if nothing had happened
		kgo.StopProducerOnDataLossDetected(),
		kgo.RecordPartitioner(partitioner),
		kgo.WithHooks(hook, requests{c.Requested}),
		kgo.ProducerLinger(waking),
		kgo.ProducerBatchMaxBytes(c.LargestBatch()),
		// what is in flight is bounded in front of us, by the relay
		kgo.MaxBufferedRecords(math.MaxInt32),
	}
}

// transactional are the options of a transactional producer.
func transactional(c *kafka.Config, id string) []kgo.Opt {
	return []kgo.Opt{
		kgo.RetryBackoffFn(c.Backoff(firstRetry)),
		kgo.RetryTimeoutFn(func(key int16) time.Duration {
			if kmsg.Key(key) == kmsg.EndTxn {
				// what has become of an unanswered commit, only a new producer finds out
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

// single are the options of a producer of records that are waited for one by one.
func single(c *kafka.Config) []kgo.Opt {
	return []kgo.Opt{
		kgo.ProducerLinger(0),
		kgo.ProducerBatchMaxBytes(c.LargestBatch()),
		kgo.RecordPartitioner(javaPartitioner{kgo.StickyKeyPartitioner(nil)}),
	}
}

var errNoProducerID = errors.New("the broker gives no producer id, without which it would write " +
	"a request that is repeated twice, or behind others; " +
	"that takes Kafka 0.11 or later, and a sink.kafka.version that is not below it")

// identify requests the identity of a client. Where there is none, the client would go on without.
func identify(ctx context.Context, client *kafka.Client) error {
	id, _, err := client.ProducerID(ctx)
	if err == nil && id < 0 {
		return errNoProducerID
	}
	return err
}

// producerIdentity is what the broker knows a producer by. All records of a transaction, and its
// end, must have the same: the client makes itself a new one after some errors.
type producerIdentity struct {
	id    int64
	epoch int16
	known bool
}

func identityOf(r *kgo.Record) producerIdentity {
	return producerIdentity{r.ProducerID, r.ProducerEpoch, true}
}

var errProducerChanged = errors.New("the producer's identity changed within a transaction: the " +
	"broker has aborted the first part of it")

// commit ends a transaction that writer has written, if the client is still writer.
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

// translate is kafka.Translate for records, which fail with the context of the sink when it has
// ended.
func translate(err error) error {
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("%w: %w", sink.ErrClosed, err)
	}
	return kafka.Translate(err)
}

// explain is translate, with what to do about errors that only transactions have.
func explain(c *kafka.Config, err error, id string) error {
	return c.ExplainTransactional(translate(err), id)
}

// warn logs settings that are not safe, in each session.
func warn(c *kafka.Config, log zerolog.Logger) {
	if c.TLS.InsecureSkipVerify {
		log.Warn().Str("reason", "sink.kafka.tls.insecure_skip_verify is true").
			Msg("broker certificates were not verified")
	}
	if c.SASL.Mechanism == "PLAIN" && !c.TLS.Enabled {
		log.Warn().Str("reason", "sink.kafka.sasl.mechanism is PLAIN and sink.kafka.tls.enabled is "+
			"false").
			Msg("password was sent in the clear")
	}
}

// requests is a hook of the client that reports each produce request. Requests are what a broker
// pays for.
type requests struct{ requested func(bytes int) }

var _ kgo.HookBrokerWrite = requests{}

// OnBrokerWrite is called by the client's goroutines, one per connection.
func (r requests) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, bytes int, _, _ time.Duration,
	err error) {
	if err == nil && key == int16(kmsg.Produce) && r.requested != nil {
		r.requested(bytes)
	}
}
