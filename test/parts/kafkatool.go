package parts

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// kafkaTools are the classes that the scripts of a Kafka distribution run, by the script's name.
var kafkaTools = map[string]string{
	"kafka-acls.sh":    "org.apache.kafka.tools.AclCommand",
	"kafka-configs.sh": "kafka.admin.ConfigCommand",
	"kafka-topics.sh":  "org.apache.kafka.tools.TopicCommand",
}

// KafkaTool runs a script of Kafka's, such as kafka-topics.sh, with these arguments, and requires
// that it succeeds. It needs an exclusive broker, whose jars it takes.
func (b *Broker) KafkaTool(t testing.TB, script string, args ...string) {
	t.Helper()
	class := kafkaTools[script]
	require.NotEmpty(t, class, "what does %s run?", script)
	own := b.own(t)
	args = append(append(javaFlags(own.jars), own.classes, class), args...)
	output, err := exec.CommandContext(t.Context(), "java", args...).CombinedOutput()
	require.NoError(t, err, "%s", output)
}
