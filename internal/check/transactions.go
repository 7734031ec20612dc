package check

import (
	"context"
	"errors"
	"fmt"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
)

// checkTransactions checks what relay.exactly_once needs of the brokers.
func checkTransactions(ctx context.Context, cfg kafka.Config) []Finding {
	const code = "kafka_transactions"
	report, err := kafka.InspectTransactions(ctx, cfg)
	if err != nil {
		return []Finding{sinkFinding("kafka_transactions", "", err)}
	}
	findings := []Finding{okFinding(code, "", "transaction.version 2 or later")}
	if !report.Version2 {
		findings[0] = warningFinding(code, "", "transaction.version is below 2: "+
			"delayed requests can leave a transaction partial, or lose it",
			"Kafka 4.0 and transaction.version 2 (KIP-890)",
			"kafka-features.sh --bootstrap-server "+cfg.Brokers[0]+
				" upgrade --feature transaction.version=2   # with Kafka 4.0 or later")
	}
	if limit := report.MaxTimeout; limit > 0 && limit < cfg.TransactionTimeout {
		findings = append(findings, configFinding(code, "transaction.max.timeout.ms",
			fmt.Sprintf("%s, and sink.kafka.transaction_timeout is %s", limit,
				cfg.TransactionTimeout),
			"at least as much: the broker refuses the producer",
			fmt.Sprintf("set sink.kafka.transaction_timeout to %s or less; "+
				"or on the brokers transaction.max.timeout.ms=%d",
				limit, cfg.TransactionTimeout.Milliseconds())))
	}
	switch {
	case errors.Is(report.IDErr, sink.ErrPermission):
		findings = append(findings, infoFinding(code, "transactional id",
			"the login may not use every id that begins with postrider.",
			"Write and Describe on its own, postrider.SYSTEM.DATABASE.SLOT, or on all of them",
			kafka.AllowCommand(cfg, "--operation Write --operation Describe "+
				"--transactional-id postrider. --resource-pattern-type prefixed")))
	case report.IDErr != nil:
		findings = append(findings, sinkFinding(code, "transactional id", report.IDErr))
	}
	return findings
}
