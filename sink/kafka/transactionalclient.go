package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// firstRetry is the pause before the first retry of a transactional producer. A broker that is still writing the markers of the last
	// transaction sends the next one away for some milliseconds, so the pause cannot be retry_backoff from the start.
	firstRetry = 2 * time.Millisecond
	// transactionLinger lets a transaction that is published before its end fill its batches. A commit does not wait for it.
	transactionLinger = 5 * time.Millisecond
	// bufferedBytes is what the client holds before it makes us wait.
	bufferedBytes = 32 << 20
	// keyEndTxn is EndTxn's number in the protocol.
	keyEndTxn = 26
)

// transactional opens the client of a transactional producer. It connects with the first request.
func (c *Config) transactional(d *dialer, id string) (*kgo.Client, error) {
	options, err := c.producing(d)
	if err != nil {
		return nil, err
	}
	return kgo.NewClient(append(options,
		kgo.RetryBackoffFn(func(tries int) time.Duration {
			return exponential(context.Background(), firstRetry, c.longestPause())(tries, 0) // not d's: franz-go retries until it is closed
		}),
		kgo.RetryTimeoutFn(func(key int16) time.Duration {
			if key == keyEndTxn {
				return time.Nanosecond // what has become of an unanswered commit, only a new producer finds out
			}
			return c.DeliveryTimeout
		}),

		kgo.TransactionalID(id),
		kgo.TransactionTimeout(c.TransactionTimeout),
		kgo.ConcurrentTransactionsBackoff(firstRetry),
		kgo.ProducerLinger(transactionLinger),
		kgo.ProducerBatchMaxBytes(int32(c.MaxMessageBytes)), //nolint:gosec // validated
		kgo.MaxBufferedBytes(max(bufferedBytes, 2*c.MaxMessageBytes)),
		kgo.RecordPartitioner(javaPartitioner{kgo.StickyKeyPartitioner(nil)}),
	)...)
}

// explainTransactional adds what to do about errors that only transactions have.
func (c *Config) explainTransactional(err error, id string) error {
	translated := translateProducing(err)
	switch {
	case errors.Is(err, kerr.ProducerFenced), errors.Is(err, kerr.InvalidProducerEpoch):
		return fmt.Errorf("another relay has begun with the transactional id %q, or the broker has ended the transaction: %w", id, translated)
	case errors.Is(err, kerr.InvalidTransactionTimeout):
		return advise(fmt.Errorf("sink.kafka.transaction_timeout is %s, and the broker's transaction.max.timeout.ms is less: %w", c.TransactionTimeout, translated),
			"set sink.kafka.transaction_timeout lower, or on the brokers raise it: transaction.max.timeout.ms=%d", c.TransactionTimeout.Milliseconds())
	case errors.Is(err, kerr.TransactionalIDAuthorizationFailed):
		return advise(translated, "kafka-acls.sh --bootstrap-server %s --add --allow-principal User:%s --operation Write --operation Describe --transactional-id '%s'",
			c.bootstrap(), c.SASL.Username, id)
	}
	return translated
}

// speaksTransactionsV2 tells whether the cluster has KIP-890's second part on, which closes the gaps of Kafka's older transactions.
func speaksTransactionsV2(ctx context.Context, client *kgo.Client) (bool, error) {
	answer, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, client)
	if err != nil {
		return false, translateProducing(err)
	}
	for _, feature := range answer.FinalizedFeatures {
		if feature.Name == "transaction.version" {
			return feature.MaxVersionLevel >= 2, nil
		}
	}
	return false, nil
}
