package check

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/sink/kafka"
)

// checkKafka checks the cluster, the topics of seen, and those of the relay itself.
func checkKafka(ctx context.Context, all config.Config, seen *samples) []Finding {
	cfg := all.Sink.Kafka
	c := topicCheck{kafka: cfg, all: all}
	own := c.own()
	names := slices.Clone(seen.topics)
	for topic := range own {
		if !slices.Contains(names, topic) {
			names = append(names, topic)
		}
	}
	findings := kafkaTLS(cfg)
	cluster, err := kafka.Inspect(ctx, cfg, names)
	if err != nil {
		f := sinkFinding("kafka", "sink.kafka.brokers", err)
		var refused *kafka.OpenError
		if errors.As(err, &refused) {
			f.Observed, f.Fix = fmt.Sprintf("%v: %s", refused.Class, refused.Text), refused.Hint
		}
		return append(findings, f)
	}
	findings = append(findings, okFinding("kafka", "",
		fmt.Sprintf("version %s, %d brokers", cluster.Version, len(cluster.Brokers))))
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
	c.brokers, c.acls = len(cluster.Brokers), cluster.Authoriser != kafka.AuthoriserOff
	for _, t := range cluster.Topics {
		if check := own[t.Name]; check != nil {
			findings = append(findings, check(c, t)...)
			continue
		}
		findings = append(findings, c.topic(t, all.Snapshot.On())...)
		findings = append(findings, c.size(t, seen.largest[t.Name])...)
	}
	if len(seen.topics) == 0 {
		findings = append(findings, infoFinding("topics", "", "none looked at: no row was read",
			"existing topics", nameTopic(all)))
	}
	return findings
}

// nameTopic is the call that names a topic to check, where no row was read.
func nameTopic(all config.Config) string {
	rule := all.Router[0]
	topic := strings.ReplaceAll(rule.TopicReplacement, "${routedByValue}", "VALUE")
	if topic == rule.TopicReplacement || strings.Contains(topic, "$") {
		return "postrider check --topic TOPIC   # one to which route.topic.replacement leads"
	}
	return fmt.Sprintf("postrider check --topic %s   # VALUE: one of the column that "+
		"route.by.field names", topic)
}

// kafkaTLS judges who can listen on the way to the brokers.
func kafkaTLS(cfg kafka.Config) []Finding {
	const code = "kafka_tls"
	remote := slices.IndexFunc(cfg.Brokers, func(b string) bool {
		host, _, err := net.SplitHostPort(b)
		return err == nil && !postgres.Local(host)
	})
	f := okFinding("kafka_tls", "", "on")
	switch {
	case cfg.TLS.Enabled && cfg.TLS.InsecureSkipVerify:
		f = warningFinding(code, "",
			"on, and any certificate is accepted (sink.kafka.tls.insecure_skip_verify)",
			"verified certificates: else who stands in between can pose as the broker",
			"set sink.kafka.tls.insecure_skip_verify = false, "+
				"and ca_file to the authority that signed the brokers' certificates")
	case cfg.TLS.Enabled:
	case remote < 0:
		f.Observed = "off; the connections do not leave this machine"
	case cfg.SASL.Mechanism == "PLAIN":
		f = warningFinding(code, "",
			"off, and the password is sent in the clear (sink.kafka.sasl.mechanism PLAIN)",
			"TLS, or SCRAM: else who listens on the way has the login",
			"set sink.kafka.tls.enabled = true, or sink.kafka.sasl.mechanism = SCRAM-SHA-512")
	default:
		f = infoFinding(code, "",
			"off: who listens on the way to "+cfg.Brokers[remote]+" reads every message",
			"TLS, unless the network is yours alone",
			"set sink.kafka.tls.enabled = true, "+
				"and name the brokers' ports with TLS in sink.kafka.brokers")
	}
	return []Finding{f}
}

// producerID judges whether the login has a producer id, without which nothing is published.
func producerID(cfg kafka.Config, cluster kafka.Report) Finding {
	if cluster.Idempotence == nil {
		return okFinding("producer_id", "", "given: the producer may be idempotent")
	}
	f := sinkFinding("producer_id", "", cluster.Idempotence)
	f.Required = "a producer id: without one a retry could repeat and reorder messages. " +
		"It takes Write on a topic, before Kafka 2.8 IdempotentWrite on the cluster, and Kafka " +
		"0.11"
	if f.Class == ClassPermission {
		topic := "'*'"
		if len(cluster.Topics) > 0 {
			topic = cluster.Topics[0].Name
		}
		f.Fix = kafka.AllowCommand(cfg, "--producer --topic "+topic)
	}
	return f
}

func authoriserFinding(cluster kafka.Report) Finding {
	switch cluster.Authoriser {
	case kafka.AuthoriserOff:
		return infoFinding("kafka_acl", "",
			"the cluster has no authoriser: any client may read and write every topic",
			"an authoriser, if others reach the cluster, too: "+
				"with one, anybody who may not write cannot forge events",
			"on the brokers: authorizer.class.name="+
				"org.apache.kafka.metadata.authorizer.StandardAuthorizer, and ACLs for every "+
				"client")
	case kafka.AuthoriserUnknown:
		return infoFinding("kafka_acl", "",
			"not known: the broker does not tell whether there is an authoriser",
			"nothing: what the login may do is looked at below", "ask its administrators")
	}
	return okFinding("kafka_acl", "", "the cluster has an authoriser")
}
