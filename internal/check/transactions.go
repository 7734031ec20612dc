package check

import (
	"context"
	"errors"
	"fmt"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/slot"
)

// checkTransactions looks at what relay.exactly_once asks of the brokers.
func checkTransactions(ctx context.Context, cfg kafka.Config) []slot.Finding {
	report, err := kafka.InspectTransactions(ctx, cfg)
	if err != nil {
		return []slot.Finding{sinkFinding("kafka_transactions", "", err)}
	}
	findings := []slot.Finding{{Severity: slot.SeverityOK, Code: "kafka_transactions", Observed: "transaction.version 2 or later"}}
	if !report.Version2 {
		findings[0].Severity, findings[0].Observed = slot.SeverityWarning, "transaction.version is below 2: requests that are delayed can tear or lose a transaction"
		findings[0].Required = "Kafka 4.0 and transaction.version 2 (KIP-890)"
		findings[0].Fix = "kafka-features.sh --bootstrap-server " + cfg.Brokers[0] + " upgrade --feature transaction.version=2   # with Kafka 4.0 or later"
	}
	if limit := report.MaxTimeout; limit > 0 && limit < cfg.TransactionTimeout {
		findings = append(findings, slot.Finding{
			Severity: slot.SeverityError, Class: slot.ClassConfiguration, Code: "kafka_transactions", Subject: "transaction.max.timeout.ms",
			Observed: fmt.Sprintf("%s, and sink.kafka.transaction_timeout is %s", limit, cfg.TransactionTimeout), Required: "at least as much: the broker refuses the producer",
			Fix: fmt.Sprintf("set sink.kafka.transaction_timeout to %s or less; or on the brokers transaction.max.timeout.ms=%d", limit, cfg.TransactionTimeout.Milliseconds()),
		})
	}
	switch {
	case errors.Is(report.IDErr, sink.ErrPermission):
		findings = append(findings, slot.Finding{
			Severity: slot.SeverityInfo, Code: "kafka_transactions", Subject: "transactional id", Observed: "the login may not use every id that begins with postrider.",
			Required: "Write and Describe on its own, postrider.SYSTEM.DATABASE.SLOT, or on all of them", Fix: kafka.AllowCommand(cfg,
				"--operation Write --operation Describe --transactional-id postrider. --resource-pattern-type prefixed"),
		})
	case report.IDErr != nil:
		findings = append(findings, sinkFinding("kafka_transactions", "transactional id", report.IDErr))
	}
	return findings
}

// transactionState looks at the replicas of Kafka's own topic, as far as the login may see it. It is made with the first transaction.
func (c topicCheck) transactionState(t kafka.TopicReport) []slot.Finding {
	if t.Err != nil {
		return nil
	}
	f := &topicFindings{name: t.Name}
	c.replicas(f, t)
	for i := range f.list {
		f.list[i].Code = "kafka_transactions"
	}
	return f.list
}
