package kafka

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/sink"
)

// TransactionState is the topic in which Kafka keeps what it knows about transactions.
const TransactionState = "__transaction_state"

// TransactionReport is what the check command is told about a cluster's transactions.
type TransactionReport struct {
	Version2   bool          // the second part of KIP-890 is on
	MaxTimeout time.Duration // transaction.max.timeout.ms; zero: not known, usually for lack of the right DescribeConfigs on the cluster
	IDErr      error         // why a transactional id that begins with "postrider." may not be used; nil: it may
}

// InspectTransactions asks about transactions, and begins none. It blocks until ctx ends at most.
func InspectTransactions(ctx context.Context, cfg Config) (TransactionReport, error) {
	const id = "postrider.check"
	var report TransactionReport
	d := newDialer(&cfg)
	defer d.cut(sink.ErrClosed)
	client, err := cfg.transactional(d, id) // it asks for a producer id, which would shut out another, only when something is produced
	if err != nil {
		return report, err
	}
	defer client.Close()
	if report.Version2, err = speaksTransactionsV2(ctx, client); err != nil {
		return report, fmt.Errorf("ask about transactions: %w", err)
	}
	report.MaxTimeout = maxTransactionTimeout(ctx, client)

	find := kmsg.NewPtrFindCoordinatorRequest()
	find.CoordinatorType, find.CoordinatorKey = 1, id
	find.CoordinatorKeys = []string{id}
	answer, err := find.RequestWith(ctx, client)
	if err != nil {
		return report, fmt.Errorf("ask for the coordinator of transactional id %q: %w", id, translateProducing(err))
	}
	code := answer.ErrorCode
	for _, c := range answer.Coordinators {
		code = c.ErrorCode
	}
	if err := kerr.ErrorForCode(code); err != nil && !kerr.IsRetriable(err) { // one that is being made is no refusal
		report.IDErr = cfg.explainTransactional(err, id)
	}
	return report, nil
}

// maxTransactionTimeout is zero if no broker tells.
func maxTransactionTimeout(ctx context.Context, client *kgo.Client) time.Duration {
	brokers, err := noTopics().RequestWith(ctx, client)
	if err != nil {
		return 0
	}
	for _, broker := range brokers.Brokers {
		request := kmsg.NewPtrDescribeConfigsRequest()
		resource := kmsg.NewDescribeConfigsRequestResource()
		resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeBroker, strconv.Itoa(int(broker.NodeID))
		resource.ConfigNames = []string{"transaction.max.timeout.ms"}
		request.Resources = append(request.Resources, resource)
		answer, err := request.RequestWith(ctx, client)
		if err != nil {
			continue
		}
		for _, r := range answer.Resources {
			for _, c := range r.Configs {
				if c.Value == nil {
					continue
				}
				if limit, err := milliseconds(*c.Value); err == nil {
					return limit
				}
			}
		}
	}
	return 0
}

// noTopics is a question for brokers alone.
func noTopics() *kmsg.MetadataRequest {
	request := kmsg.NewPtrMetadataRequest()
	request.Topics = []kmsg.MetadataRequestTopic{} // empty; nil are all
	return request
}
