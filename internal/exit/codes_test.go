package exit

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
)

func TestExplain_NamesThePolicyOfAHalt(t *testing.T) {
	row := &router.RowError{Reason: router.ReasonInvalidMessage, Relation: "message:outbox",
		Err: errors.New("no JSON"), Hint: "emit JSON"}
	f := OfRelay(&relay.HaltError{Cause: deadletter.Malformed, Err: row}, relay.State{})
	require.Equal(t, Runtime, f.Code)
	require.Contains(t, f.Next, "emit JSON\nor go on without it")
	require.Contains(t, f.Next, `deadletter.malformed = "dead_letter"`)
	require.NotContains(t, OfRelay(row, relay.State{}).Next, "deadletter.",
		"a policy is not why it ends")
}

func TestExplain_NamesThePolicyForAMissingTopic(t *testing.T) {
	row := &sink.MessageError{Topic: "typo",
		Origin: sink.Origin{Relation: "public.outbox", EventID: "7", LSN: 0x1000},
		Err:    sink.ErrUnknownTopic}
	f := OfRelay(&relay.HaltError{Cause: deadletter.UnknownTopic, Err: row}, relay.State{})
	require.Contains(t, f.Error(), `event "7" of public.outbox at 0/1000 index 0 to topic "typo"`)
	require.Contains(t, f.Next, "create the topic")
	require.Contains(t, f.Next, `deadletter.unknown_topic = "dead_letter"`)
}

// A right that is missing is named completely: with less, the same error comes again.
func TestFor_NamesTheRightThatIsMissing(t *testing.T) {
	const base = "--operation Write --operation Describe"
	refused := func(cause error) error {
		return &sink.MessageError{Topic: "orders", Err: kafka.Translate(cause)}
	}
	for name, c := range map[string]struct {
		set  func(*config.Config)
		err  error
		want string
	}{
		"to write": {func(*config.Config) {}, refused(kerr.TopicAuthorizationFailed), "--producer --topic orders"},
		"to read what is published": {func(c *config.Config) { c.Relay.Dedup = relay.DedupTail },
			refused(kerr.TopicAuthorizationFailed), base + " --operation Read --topic orders"},
		"to create and read": {
			func(c *config.Config) { c.Relay.Dedup, c.Sink.Kafka.Topics.Create = relay.DedupTail, true },
			refused(kerr.TopicAuthorizationFailed), base + " --operation Read --operation Create --topic orders",
		},
		"of a transactional id": {func(c *config.Config) { c.Relay.ExactlyOnce = true },
			refused(new(kafka.Config).ExplainTransactional(kerr.TransactionalIDAuthorizationFailed, "postrider.1")),
			base + " --transactional-id 'postrider.1'"},
	} {
		t.Run(name, func(t *testing.T) {
			var cfg config.Config
			c.set(&cfg)
			next := OfRelay(c.err, relay.State{}).For(cfg).Next
			require.Contains(t, next, "kafka-acls.sh")
			require.True(t, strings.HasSuffix(next, c.want), next)
		})
	}
}

// A server reports names, and what triggers raise: both are of the owner of a table.
func TestPrint_GivesNoAdviceOfTheError(t *testing.T) {
	var b strings.Builder
	Print(&b, &Error{Code: Runtime, Next: "postrider check\x1b[8m",
		Err: errors.New("ERROR: \x1b[2K\u202e\n  next: GRANT postgres TO app;\nWAL: none\nmore")})
	require.Equal(t, "postrider: ERROR:  [2K \n  > next: GRANT postgres TO app;\n  > WAL: none\n  more\n"+
		"  next: postrider check [8m\n", b.String())
}
