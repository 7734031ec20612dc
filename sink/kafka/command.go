package kafka

import (
	"fmt"
	"strings"

	"github.com/postrider/postrider/internal/terminal"
)

// Command is a script of Kafka's, for the cluster. With TLS or a login it takes a file of an
// administrator's; docs/SIGN-IN.md says what is in it.
func Command(cfg Config, script, options string) string {
	command := script + " --bootstrap-server " + cfg.bootstrap()
	if cfg.TLS.Enabled || cfg.SASL.Mechanism != "" {
		command += " --command-config admin.properties"
	}
	return strings.TrimSpace(command + " " + options)
}

// usualReplicas is how many a topic has in production.
const usualReplicas = 3

// CreateTopicCommand creates a topic in a cluster of so many brokers; zero: not known. The
// operator changes the number of partitions.
func CreateTopicCommand(cfg Config, topic string, brokers int) string {
	return createCommand(cfg, topic, 6, brokers)
}

// CreateDeadLetterTopicCommand creates the topic of dead letters.
func CreateDeadLetterTopicCommand(cfg Config, topic string, brokers int) string {
	return CreateTopicCommand(cfg, topic, brokers) +
		" --config cleanup.policy=delete --config retention.ms=-1 --config retention.bytes=-1"
}

// CreateCompactedTopicCommand creates a topic that keeps the newest record of each key.
func CreateCompactedTopicCommand(cfg Config, topic string, brokers int) string {
	return createCommand(cfg, topic, 1, brokers) + " --config cleanup.policy=compact"
}

func createCommand(cfg Config, topic string, partitions, brokers int) string {
	return Command(cfg, "kafka-topics.sh", fmt.Sprintf("--create --topic %s --partitions %d "+
		"--replication-factor %d", topic, partitions, replicas(brokers)))
}

// replicas is the usual number, or as many as there are brokers: a cluster refuses more.
func replicas(brokers int) int {
	if brokers > 0 {
		return min(brokers, usualReplicas)
	}
	return usualReplicas
}

// AddPartitionsCommand gives a topic so many partitions.
func AddPartitionsCommand(cfg Config, topic string, partitions int32) string {
	return Command(cfg, "kafka-topics.sh",
		fmt.Sprintf("--alter --topic %s --partitions %d", topic, partitions))
}

// AlterTopicCommand changes a setting of a topic; value may be a number.
func AlterTopicCommand(cfg Config, topic, setting string, value any) string {
	return Command(cfg, "kafka-configs.sh",
		fmt.Sprintf("--alter --topic %s --add-config %s=%v", topic, setting, value))
}

// FindSmallISRCommand lists partitions without enough replicas.
func FindSmallISRCommand(cfg Config) string {
	return Command(cfg, "kafka-topics.sh", "--describe --under-min-isr-partitions")
}

// FindLeaderlessCommand lists partitions without a leader.
func FindLeaderlessCommand(cfg Config) string {
	return Command(cfg, "kafka-topics.sh", "--describe --unavailable-partitions")
}

// FindQuotasCommand lists the quotas of all users; those of client ids have a list of their own.
func FindQuotasCommand(cfg Config) string {
	return Command(cfg, "kafka-configs.sh",
		"--describe --entity-type users   # and --entity-type clients")
}

// AllowCommand gives our login a right: options of kafka-acls.sh, the topic among them. Only the
// brokers have the name of a login by certificate, token or Kerberos.
func AllowCommand(cfg Config, right string) string {
	login, of, remark := cfg.SASL.Username, "", ""
	switch {
	case login != "":
	case cfg.SASL.Mechanism == "GSSAPI":
		of = "the principal of sink.kafka.sasl.kerberos"
	case cfg.SASL.Mechanism != "":
		of = "the subject of the token"
	case cfg.TLS.CertFile != "":
		of = "the subject of sink.kafka.tls.cert_file"
	default:
		login = "ANONYMOUS"
	}
	if of != "" {
		login, remark = "NAME", "   # NAME: "+of+", as the brokers map it"
	}
	return Command(cfg, "kafka-acls.sh", fmt.Sprintf("--add --allow-principal %s %s%s",
		terminal.ShellWord("User:"+login), right, remark))
}
