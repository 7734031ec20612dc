package parts

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// kafkaTools are the classes that the scripts of a Kafka distribution run, by the script's name.
var kafkaTools = map[string]string{
	"kafka-acls.sh":             "org.apache.kafka.tools.AclCommand",
	"kafka-configs.sh":          "kafka.admin.ConfigCommand",
	"kafka-topics.sh":           "org.apache.kafka.tools.TopicCommand",
	"kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
}

// KafkaTool runs a script of Kafka's, such as kafka-topics.sh, with these arguments, requires that
// it succeeds, and returns what it prints. It needs an exclusive broker, whose jars it takes.
func (b *Broker) KafkaTool(t testing.TB, script string, args ...string) string {
	t.Helper()
	class := kafkaTools[script]
	require.NotEmpty(t, class, "what does %s run?", script)
	own := b.own(t)
	args = append(append(javaFlags(own.jars), own.classes, class), args...)
	said, err := exec.CommandContext(t.Context(), "java", args...).CombinedOutput()
	require.NoError(t, err, "%s", said)
	return string(said)
}
