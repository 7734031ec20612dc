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
	"github.com/postrider/postrider/sink"
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
	fs := findings{kafkaTLS(cfg)}
	cluster, err := kafka.Inspect(ctx, cfg, names)
	if err != nil {
		f := sinkFinding("kafka", "sink.kafka.brokers", err)
		if refused := new(kafka.OpenError); errors.As(err, &refused) {
			f.Observed, f.Fix = fmt.Sprintf("%v: %s", refused.Class, refused.Text), refused.Hint
		}
		return append(fs, f)
	}
	fs.add(found("kafka", "",
		fmt.Sprintf("version %s, %d brokers", cluster.Version, len(cluster.Brokers))))
	for _, b := range cluster.Brokers {
		if b.Err != nil {
			f := sinkFinding("broker", fmt.Sprintf("%d at %s", b.ID, b.Address), b.Err)
			f.Required = "every broker reachable under its advertised address: it leads partitions"
			f.Fix = kafka.FixAdvertised
			fs.add(f)
		}
	}
	fs.add(producerID(cfg, cluster), authoriserFinding(cluster))
	if all.Relay.ExactlyOnce {
		fs.add(checkTransactions(ctx, cfg)...)
	}
	c.brokers, c.acls = len(cluster.Brokers), cluster.Authoriser != kafka.AuthoriserOff
	for _, t := range cluster.Topics {
		if check := own[t.Name]; check != nil {
			fs.add(check(c, t)...)
			continue
		}
		fs.add(c.topic(t, all.Snapshot.On() || all.Relay.Deduplicates())...)
		fs.add(c.size(t, seen.largest[t.Name])...)
	}
	if len(seen.topics) == 0 {
		fs.add(found("topics", "", "none looked at: no row was read").info("existing topics",
			nameTopic(all)))
	}
	return fs
}

const checkTopic = "postrider check --topic TOPIC   # one to which route.topic.replacement leads"

// nameTopic is the call that names a topic to check, where no row was read.
func nameTopic(all config.Config) string {
	rule := all.Router[0]
	topic := strings.ReplaceAll(rule.TopicReplacement, "${routedByValue}", "VALUE")
	if topic == rule.TopicReplacement || strings.Contains(topic, "$") {
		return checkTopic
	}
	return "postrider check --topic " + topic +
		"   # VALUE: one of the column that route.by.field names"
}

// kafkaTLS judges whether others can eavesdrop on the way to the brokers.
func kafkaTLS(cfg kafka.Config) Finding {
	remote := slices.IndexFunc(cfg.Brokers, func(b string) bool {
		host, _, err := net.SplitHostPort(b)
		return err == nil && !postgres.Local(host)
	})
	f := found("kafka_tls", "", "on")
	switch {
	case cfg.TLS.Enabled && cfg.TLS.InsecureSkipVerify:
		f.Observed = "on, and any certificate is accepted (sink.kafka.tls.insecure_skip_verify)"
		return f.warn("verified certificates: else a man in the middle can pose as the broker",
			"set sink.kafka.tls.insecure_skip_verify = false, and ca_file to the authority that signed "+
				"the brokers' certificates")
	case cfg.TLS.Enabled:
	case remote < 0:
		f.Observed = "off; the connections do not leave this machine"
	case cfg.SASL.InTheClear():
		f.Observed = "off, and the login is sent in the clear (sink.kafka.sasl.mechanism " +
			cfg.SASL.Mechanism + ")"
		return f.warn("TLS, or SCRAM: else an eavesdropper has the login",
			"set sink.kafka.tls.enabled = true, or sink.kafka.sasl.mechanism = SCRAM-SHA-512")
	default:
		f.Observed = "off: an eavesdropper on the way to " + cfg.Brokers[remote] + " reads every message"
		return f.info("TLS, unless the network is yours alone",
			"set sink.kafka.tls.enabled = true, and name the brokers' ports with TLS in sink.kafka.brokers")
	}
	return f
}

// producerID judges whether the login has a producer id, without which nothing is published.
func producerID(cfg kafka.Config, cluster kafka.Report) Finding {
	if cluster.Idempotence == nil {
		return found("producer_id", "", "given: the producer may be idempotent")
	}
	f := sinkFinding("producer_id", "", cluster.Idempotence)
	f.Required = "a producer id: without one a retry could repeat and reorder messages. It takes " +
		"Write on a topic, before Kafka 2.8 IdempotentWrite on the cluster, and Kafka 0.11"
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
	f := found("kafka_acl", "", "the cluster has an authoriser")
	switch cluster.Authoriser {
	case kafka.AuthoriserOff:
		f.Observed = "the cluster has no authoriser: any client may read and write every topic"
		return f.info("an authoriser, if others reach the cluster, too: with one, clients without "+
			"Write cannot forge events",
			"on the brokers: authorizer.class.name=org.apache.kafka.metadata.authorizer."+
				"StandardAuthorizer, and ACLs for every client")
	case kafka.AuthoriserUnknown:
		f.Observed = "not known: the broker does not report whether there is an authoriser"
		return f.info("nothing: what the login may do is looked at below", "ask its administrators")
	}
	return f
}

// checkTransactions checks what relay.exactly_once needs of the brokers.
func checkTransactions(ctx context.Context, cfg kafka.Config) []Finding {
	const code, id = "kafka_transactions", "transactional id"
	report, err := kafka.InspectTransactions(ctx, cfg)
	if err != nil {
		return []Finding{sinkFinding("kafka_transactions", "", err)}
	}
	f := found(code, "", "transaction.version 2 or later")
	if !report.Version2 {
		f.Observed = "transaction.version is below 2: delayed requests can leave a transaction " +
			"partial, or lose it"
		f = f.warn("Kafka 4.0 and transaction.version 2 (KIP-890)", kafka.Command(cfg,
			"kafka-features.sh", "upgrade --feature transaction.version=2   # with Kafka 4.0 or later"))
	}
	fs := findings{f}
	if limit := report.MaxTimeout; limit > 0 && limit < cfg.TransactionTimeout {
		fs.add(found(code, "transaction.max.timeout.ms",
			fmt.Sprintf("%s, and sink.kafka.transaction_timeout is %s", limit, cfg.TransactionTimeout)).
			fail("at least as much: the broker refuses the producer",
				fmt.Sprintf("set sink.kafka.transaction_timeout to %s or less; or on the brokers "+
					"transaction.max.timeout.ms=%d", limit, cfg.TransactionTimeout.Milliseconds())))
	}
	switch {
	case errors.Is(report.IDErr, sink.ErrPermission):
		fs.add(found(code, id, "the login may not use every id that begins with postrider.").info(
			"Write and Describe on its own, postrider.SYSTEM.DATABASE.SLOT, or on all of them",
			kafka.AllowCommand(cfg, "--operation Write --operation Describe --transactional-id "+
				"postrider. --resource-pattern-type prefixed")))
	case report.IDErr != nil:
		fs.add(sinkFinding(code, id, report.IDErr))
	}
	return fs
}
