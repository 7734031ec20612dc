package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"postrider/sink"
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

// transactional opens the client of a transactional producer. It connects with the first request. The reasons for
// franz-go stand in docs/decisions/0015.
func (c *Config) transactional(d *dialer, id string) (*kgo.Client, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...),
		kgo.ClientID(c.ClientID),
		kgo.Dialer(func(_ context.Context, network, addr string) (net.Conn, error) { return d.Dial(network, addr) }), // speaks TLS, and is cut as a whole
		kgo.RequestTimeoutOverhead(c.ReadTimeout - c.ProduceTimeout),
		kgo.DisableClientMetrics(),
		kgo.MetadataMinAge(250 * time.Millisecond), // a leader that has moved is found soon
		kgo.MetadataMaxAge(5 * time.Minute),
		kgo.RetryBackoffFn(func(tries int) time.Duration {
			return exponential(context.Background(), firstRetry, maxBackoff)(tries, 0) // not d's: franz-go retries until it is closed
		}),
		kgo.RequestRetries(retries),
		kgo.RetryTimeoutFn(func(key int16) time.Duration {
			if key == keyEndTxn {
				return time.Nanosecond // what has become of an unanswered commit, only a new producer finds out
			}
			return c.DeliveryTimeout
		}),

		kgo.TransactionalID(id),
		kgo.TransactionTimeout(c.TransactionTimeout),
		kgo.ConcurrentTransactionsBackoff(firstRetry),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProduceRequestTimeout(c.ProduceTimeout),
		kgo.ProducerLinger(transactionLinger),
		kgo.ProducerBatchMaxBytes(int32(c.MaxMessageBytes)),                                    //nolint:gosec // validated
		kgo.BrokerMaxWriteBytes(max(requestLimit, int32(c.MaxMessageBytes)+2*requestOverhead)), //nolint:gosec // the same
		kgo.ProducerBatchCompression(codecs[c.Compression]),
		kgo.MaxBufferedBytes(max(bufferedBytes, 2*c.MaxMessageBytes)),
		kgo.RecordPartitioner(javaPartitioner{kgo.StickyKeyPartitioner(nil)}),
	}
	if c.SASL.Mechanism != "" {
		password, err := c.SASL.Password.Reveal()
		if err != nil {
			return nil, fmt.Errorf("sink.kafka.sasl.password: %w", err)
		}
		options = append(options, kgo.SASL(mechanism(c.SASL.Mechanism, c.SASL.Username, password)))
	}
	return kgo.NewClient(options...)
}

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

// javaPartitioner is partitioner for franz-go: an explicit partition wins, then murmur2 of the key, and without a key one is kept for a batch.
type javaPartitioner struct{ byKey kgo.Partitioner }

func (p javaPartitioner) ForTopic(topic string) kgo.TopicPartitioner {
	return &javaTopicPartitioner{p.byKey.ForTopic(topic)}
}

type javaTopicPartitioner struct{ kgo.TopicPartitioner }

// RequiresConsistency tells whether the record must go to its partition even when that has no leader just now.
func (p *javaTopicPartitioner) RequiresConsistency(r *kgo.Record) bool {
	return r.Partition >= 0 || p.TopicPartitioner.RequiresConsistency(r)
}

// Partition may return one that does not exist; the client then refuses the record.
func (p *javaTopicPartitioner) Partition(r *kgo.Record, partitions int) int {
	if r.Partition >= 0 {
		return int(r.Partition)
	}
	return p.TopicPartitioner.Partition(r, partitions)
}

// OnNewBatch ends the stay at a partition of records without a key.
func (p *javaTopicPartitioner) OnNewBatch() {
	if sticky, ok := p.TopicPartitioner.(kgo.TopicPartitionerOnNewBatch); ok {
		sticky.OnNewBatch()
	}
}

func mechanism(name, user, password string) sasl.Mechanism {
	if name == sarama.SASLTypePlaintext {
		return plain.Auth{User: user, Pass: password}.AsMechanism()
	}
	return scramMechanism{name, user, password}
}

// scramMechanism makes the exchange of scram.go one of franz-go, whose own takes names and passwords only when they are prepared.
type scramMechanism struct{ name, user, password string }

func (m scramMechanism) Name() string { return m.name }

func (m scramMechanism) Authenticate(context.Context, string) (sasl.Session, []byte, error) {
	exchange := scramClient(m.name)()
	if err := exchange.Begin(m.user, m.password, ""); err != nil {
		return nil, nil, err
	}
	first, err := exchange.Step("")
	return scramSession{exchange}, []byte(first), err
}

type scramSession struct{ exchange sarama.SCRAMClient }

func (s scramSession) Challenge(challenge []byte) (bool, []byte, error) {
	response, err := s.exchange.Step(string(challenge))
	return s.exchange.Done(), []byte(response), err
}

// translateTransactional is translate for the errors of franz-go, whose codes are the protocol's as sarama's are.
func translateTransactional(err error) error {
	var code *kerr.Error
	switch {
	case errors.As(err, &code):
		for _, m := range meaning {
			if errors.Is(sarama.KError(code.Code), m.err) {
				return fmt.Errorf("%w: %w", m.is, err)
			}
		}
		return err
	case errors.Is(err, kgo.ErrClientClosed), errors.Is(err, kgo.ErrAborting):
		return fmt.Errorf("%w: %w", sink.ErrClosed, err)
	case errors.Is(err, kgo.ErrRecordTimeout), errors.Is(err, kgo.ErrRecordRetries):
		return fmt.Errorf("%w: %w", sink.ErrUnreachable, err)
	}
	return translate(err)
}

// explainTransactional adds what to do about errors that only transactions have.
func (c *Config) explainTransactional(err error, id string) error {
	translated := translateTransactional(err)
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
		return false, translateTransactional(err)
	}
	for _, feature := range answer.FinalizedFeatures {
		if feature.Name == "transaction.version" {
			return feature.MaxVersionLevel >= 2, nil
		}
	}
	return false, nil
}
