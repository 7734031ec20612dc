package config

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/relay"
)

func TestValidate_JudgesWhatRemembersPositionsAndLetters(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"dedup without position headers": {func(c *Config) { c.Relay.Dedup = relay.DedupTail },
			"router.position_headers = true"},
		"dedup and exactly once": {func(c *Config) {
			c.Relay.Dedup,
				c.Relay.ExactlyOnce = relay.DedupTail, true
		}, "conflicts with relay.exactly_once"},
		"exactly once on stdout": {func(c *Config) {
			c.Relay.ExactlyOnce, c.Sink.Kind = true,
				SinkStdout
		}, `sink.kind = "kafka"`},
		"letters on stdout": {func(c *Config) {
			c.DeadLetter.Refused,
				c.Sink.Kind = deadletter.DeadLetter, SinkStdout
		}, `sink.kind = "kafka"`},
		"letters among positions": {func(c *Config) { c.DeadLetter.Topic = c.Relay.PositionTopic }, "name two topics"},
		"positions among snapshots": {func(c *Config) { c.Relay.PositionTopic = c.Snapshot.Topic },
			"name two topics"},
	} {
		t.Run(name, func(t *testing.T) {
			c := Default()
			c.Sink.Kafka.Brokers = []string{"kafka:9092"}
			require.NoError(t, c.Validate("relay", "deadletter"))
			test.change(&c)
			require.ErrorContains(t, c.Validate("relay", "deadletter"), test.want)
		})
	}
}
