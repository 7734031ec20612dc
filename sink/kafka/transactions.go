package kafka

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/sink"
)

// TransactionState is the topic in which Kafka keeps the state of transactions.
const TransactionState = "__transaction_state"

// TransactionReport is what the check command reports about a cluster's transactions.
type TransactionReport struct {
	Version2 bool // the second part of KIP-890 is on
	// transaction.max.timeout.ms; zero: not known, usually for lack of the right DescribeConfigs on
	// the cluster
	MaxTimeout time.Duration
	// why a transactional id that begins with "postrider." may not be used; nil: it may
	IDErr error
}

// InspectTransactions reports about transactions, and begins none. It blocks at most until ctx
// ends.
func InspectTransactions(ctx context.Context, cfg Config) (TransactionReport, error) {
	const id = "postrider.check"
	var report TransactionReport
	d := NewDialer(&cfg)
	defer d.Cut(sink.ErrClosed)
	client, err := cfg.NewClient(d, zerolog.Nop())
	if err != nil {
		return report, err
	}
	defer client.Close()
	if report.Version2, err = client.HasTransactionsV2(ctx); err != nil {
		return report, fmt.Errorf("request the features of the cluster: %w", err)
	}
	report.MaxTimeout = client.maxTransactionTimeout(ctx)

	found := kadm.NewClient(client.Client).FindTxnCoordinators(ctx, id)[id]
	var code *kerr.Error
	switch answered := errors.As(found.Err, &code); {
	case answered && !code.Retriable: // one that is being made is no refusal
		report.IDErr = cfg.ExplainTransactional(code, id)
	case !answered && found.Err != nil:
		return report, fmt.Errorf("find the coordinator of transactional id %q: %w", id,
			Failed(ctx, found.Err))
	}
	return report, nil
}

// maxTransactionTimeout is zero if no broker reports it.
func (c *Client) maxTransactionTimeout(ctx context.Context) time.Duration {
	answer, err := c.Metadata(ctx)
	if err != nil {
		return 0
	}
	for _, broker := range answer.Brokers {
		described, _ := kadm.NewClient(c.Client).DescribeBrokerConfigs(ctx, broker.NodeID)
		found, _ := described.On(strconv.Itoa(int(broker.NodeID)), nil)
		for _, entry := range found.Configs {
			if entry.Key != "transaction.max.timeout.ms" || entry.Value == nil {
				continue
			}
			if limit, err := milliseconds(*entry.Value); err == nil {
				return limit
			}
		}
	}
	return 0
}

// HasTransactionsV2 reports whether the cluster has KIP-890's second part on, which closes the
// gaps of Kafka's older transactions.
func (c *Client) HasTransactionsV2(ctx context.Context) (bool, error) {
	answer, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, c.Client)
	if err != nil {
		return false, Failed(ctx, err)
	}
	for _, feature := range answer.FinalizedFeatures {
		if feature.Name == "transaction.version" {
			return feature.MaxVersionLevel >= 2, nil
		}
	}
	return false, nil
}

// ExplainTransactional adds what to do about errors that only transactions have.
func (c *Config) ExplainTransactional(err error, id string) error {
	translated := Translate(err)
	switch {
	case isAny(err, kerr.ProducerFenced, kerr.InvalidProducerEpoch):
		return fmt.Errorf("another process has begun with the transactional id %q, or the broker has "+
			"ended the transaction: %w", id, translated)
	case errors.Is(err, kerr.InvalidTransactionTimeout):
		return Advise(fmt.Errorf("sink.kafka.transaction_timeout is %s, and the broker's "+
			"transaction.max.timeout.ms is less: %w", c.TransactionTimeout, translated),
			"set sink.kafka.transaction_timeout lower, or on the brokers raise it: "+
				"transaction.max.timeout.ms=%d", c.TransactionTimeout.Milliseconds())
	case errors.Is(err, kerr.TransactionalIDAuthorizationFailed):
		return Advise(translated, "%s", AllowCommand(*c,
			"--operation Write --operation Describe --transactional-id '"+id+"'"))
	}
	return translated
}
