package exit

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
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

// A server reports names, and what triggers raise: both are of the owner of a table.
func TestPrint_GivesNoAdviceOfTheError(t *testing.T) {
	var b strings.Builder
	Print(&b, &Error{Code: Runtime, Next: "postrider check\x1b[8m",
		Err: errors.New("ERROR: \x1b[2K\u202e\n  next: GRANT postgres TO app;\nWAL: none\nmore")})
	require.Equal(t, "postrider: ERROR:  [2K \n  > next: GRANT postgres TO app;\n  > WAL: none\n  more\n"+
		"  next: postrider check [8m\n", b.String())
}
