package check

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/slot"
)

func checkKafka(ctx context.Context, all config.Config, seen *samples) []slot.Finding {
	cfg, extra, asked := all.Sink.Kafka, map[string]bool{}, slices.Clone(seen.topics)
	if all.Relay.HeartbeatInterval > 0 {
		extra[all.HeartbeatTopic()] = true
	}
	if all.Snapshot.On() {
		extra[all.Snapshot.Topic] = true
	}
	if all.Relay.ExactlyOnce {
		extra[all.Relay.PositionTopic], extra[kafka.TransactionState] = true, true
	}
	if all.DeadLetter.On() {
		extra[all.DeadLetter.Topic] = true
	}
	for topic := range extra {
		if !slices.Contains(asked, topic) {
			asked = append(asked, topic)
		}
	}
	findings := kafkaTLS(cfg)
	cluster, err := kafka.Inspect(ctx, cfg, asked)
	if err != nil {
		f := sinkFinding("kafka", "sink.kafka.brokers", err)
		var refused *kafka.OpenError
		if errors.As(err, &refused) {
			f.Observed, f.Fix = fmt.Sprintf("%v: %s", refused.Class, refused.Text), refused.Hint
		}
		return append(findings, f)
	}
	findings = append(findings, slot.Finding{Severity: slot.SeverityOK, Code: "kafka", Observed: fmt.Sprintf("version %s, %d brokers", cluster.Version, len(cluster.Brokers))})
	for _, b := range cluster.Brokers {
		if b.Err != nil {
			f := sinkFinding("broker", fmt.Sprintf("%d at %s", b.ID, b.Address), b.Err)
			f.Required = "every broker reachable under its advertised address: it leads partitions"
			f.Fix = kafka.FixAdvertised
			findings = append(findings, f)
		}
	}
	findings = append(findings, producerID(cfg, cluster), authoriserFinding(cluster))
	if all.Relay.ExactlyOnce {
		findings = append(findings, checkTransactions(ctx, cfg)...)
	}
	c := topicCheck{kafka: cfg, all: all, brokers: len(cluster.Brokers), acls: cluster.Authoriser != kafka.AuthoriserOff}
	for _, t := range cluster.Topics {
		switch {
		case t.Name == all.Relay.PositionTopic && all.Relay.ExactlyOnce:
			findings = append(findings, c.positions(t)...)
		case t.Name == kafka.TransactionState && all.Relay.ExactlyOnce:
			findings = append(findings, c.transactionState(t)...)
		case t.Name == all.Snapshot.Topic && all.Snapshot.On():
			findings = append(findings, c.snapshot(t)...)
		case t.Name == all.DeadLetter.Topic && all.DeadLetter.On():
			findings = append(findings, c.deadLetters(t)...)
		case all.Relay.HeartbeatInterval > 0 && t.Name == all.HeartbeatTopic():
			findings = append(findings, c.heartbeat(t)...)
		default:
			findings = append(findings, c.topic(t, all.Snapshot.On())...)
			findings = append(findings, c.size(t, seen.largest[t.Name])...)
		}
	}
	if len(seen.topics) == 0 {
		findings = append(findings, slot.Finding{Severity: slot.SeverityInfo, Code: "topics", Observed: "none looked at: no row was read",
			Required: "existing topics", Fix: nameTopic(all)})
	}
	return findings
}

// nameTopic is how check is told of a topic that it cannot know: it has read no row.
func nameTopic(all config.Config) string {
	rule := all.Router[0]
	topic := strings.ReplaceAll(rule.TopicReplacement, "${routedByValue}", "VALUE")
	if topic == rule.TopicReplacement || strings.Contains(topic, "$") {
		return "postrider check --topic TOPIC   # one to which route.topic.replacement leads"
	}
	return fmt.Sprintf("postrider check --topic %s   # VALUE: one of the column that route.by.field names", topic)
}

func sinkFinding(code, subject string, err error) slot.Finding {
	f := slot.Finding{Severity: slot.SeverityError, Code: code, Subject: subject, Observed: err.Error(), Class: slot.ClassUnreachable, Fix: exit.Explain(err).Next}
	if f.Fix == "" {
		f.Fix = "check again; if it stays, the broker's log says more"
	}
	switch {
	case errors.Is(err, sink.ErrAuthentication), errors.Is(err, sink.ErrPermission):
		f.Class = slot.ClassPermission
	case errors.Is(err, sink.ErrTLS), errors.Is(err, sink.ErrUnknownTopic), errors.Is(err, sink.ErrInvalidTopic):
		f.Class = slot.ClassConfiguration
	}
	return f
}

// kafkaTLS says who can listen on the way to the brokers.
func kafkaTLS(cfg kafka.Config) []slot.Finding {
	remote := slices.IndexFunc(cfg.Brokers, func(b string) bool {
		host, _, err := net.SplitHostPort(b)
		return err == nil && !postgres.Local(host)
	})
	f := slot.Finding{Severity: slot.SeverityOK, Code: "kafka_tls", Observed: "on"}
	switch {
	case cfg.TLS.Enabled && cfg.TLS.InsecureSkipVerify:
		f.Severity, f.Observed = slot.SeverityWarning, "on, and any certificate is accepted (sink.kafka.tls.insecure_skip_verify)"
		f.Required = "verified certificates: else who stands in between can pose as the broker"
		f.Fix = "set sink.kafka.tls.insecure_skip_verify = false, and ca_file to the authority that signed the brokers' certificates"
	case cfg.TLS.Enabled:
	case remote < 0:
		f.Observed = "off; the connections do not leave this machine"
	case cfg.SASL.Mechanism == "PLAIN":
		f.Severity, f.Observed = slot.SeverityWarning, "off, and the password is sent in the clear (sink.kafka.sasl.mechanism PLAIN)"
		f.Required, f.Fix = "TLS, or SCRAM: else who listens on the way has the login", "set sink.kafka.tls.enabled = true, or sink.kafka.sasl.mechanism = SCRAM-SHA-512"
	default:
		f.Severity, f.Observed = slot.SeverityInfo, "off: who listens on the way to "+cfg.Brokers[remote]+" reads every message"
		f.Required, f.Fix = "TLS, unless the network is yours alone", "set sink.kafka.tls.enabled = true, and name the brokers' ports with TLS in sink.kafka.brokers"
	}
	return []slot.Finding{f}
}

// producerID: without the right to have one nothing can be published at all.
func producerID(cfg kafka.Config, cluster kafka.Report) slot.Finding {
	topic := "'*'"
	if len(cluster.Topics) > 0 {
		topic = cluster.Topics[0].Name
	}
	if cluster.Idempotence == nil {
		return slot.Finding{Severity: slot.SeverityOK, Code: "producer_id", Observed: "given: the producer may be idempotent"}
	}
	f := sinkFinding("producer_id", "", cluster.Idempotence)
	f.Required = "a producer id: without one a retry could repeat and reorder messages. It takes Write on a topic, before Kafka 2.8 IdempotentWrite on the cluster, and Kafka 0.11"
	if f.Class == slot.ClassPermission {
		f.Fix = kafka.AllowCommand(cfg, "--producer --topic "+topic)
	}
	return f
}

func authoriserFinding(cluster kafka.Report) slot.Finding {
	f := slot.Finding{Severity: slot.SeverityOK, Code: "kafka_acl", Observed: "the cluster has an authoriser"}
	switch cluster.Authoriser {
	case kafka.AuthoriserOff:
		f.Severity, f.Observed = slot.SeverityInfo, "the cluster has no authoriser: whoever reaches it may read and write every topic"
		f.Required = "an authoriser, if others reach the cluster, too: with one, anybody who may not write cannot forge events"
		f.Fix = "on the brokers: authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer, and ACLs for every client"
	case kafka.AuthoriserUnknown:
		f.Severity, f.Observed = slot.SeverityInfo, "not known: the broker does not tell whether there is an authoriser"
		f.Required, f.Fix = "nothing: what the login may do is looked at below", "ask whoever runs the cluster"
	}
	return f
}
