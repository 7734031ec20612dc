package kafka

import "fmt"

// Commands that messages advise.

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
	return fmt.Sprintf("kafka-topics.sh --bootstrap-server %s --create --topic %s --partitions %d "+
		"--replication-factor %d", cfg.bootstrap(), topic, partitions, replicas(brokers))
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
	return fmt.Sprintf("kafka-topics.sh --bootstrap-server %s --alter --topic %s --partitions %d",
		cfg.bootstrap(), topic, partitions)
}

// RaiseTopicLimitCommand makes a topic take batches of so many bytes.
func RaiseTopicLimitCommand(cfg Config, topic string, bytes int) string {
	return fmt.Sprintf("kafka-configs.sh --bootstrap-server %s --alter --topic %s --add-config "+
		"max.message.bytes=%d", cfg.bootstrap(), topic, bytes)
}

// FindSmallISRCommand lists partitions without enough replicas.
func FindSmallISRCommand(cfg Config) string {
	return "kafka-topics.sh --bootstrap-server " + cfg.bootstrap() +
		" --describe --under-min-isr-partitions"
}

// FindLeaderlessCommand lists partitions without a leader.
func FindLeaderlessCommand(cfg Config) string {
	return "kafka-topics.sh --bootstrap-server " + cfg.bootstrap() +
		" --describe --unavailable-partitions"
}

// FindQuotasCommand lists the quotas of all users; those of client ids have a list of their own.
func FindQuotasCommand(cfg Config) string {
	return "kafka-configs.sh --bootstrap-server " + cfg.bootstrap() +
		" --describe --entity-type users   # and --entity-type clients"
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
	return fmt.Sprintf("kafka-acls.sh --bootstrap-server %s --add --allow-principal User:%s %s%s",
		cfg.bootstrap(), login, right, remark)
}
