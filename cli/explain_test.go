package cli

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/deadletter"
	"postrider/relay"
	"postrider/router"
)

func TestExplain_NamesThePolicyOfAHalt(t *testing.T) {
	row := &router.RowError{Reason: router.ReasonInvalidMessage, Relation: "message:outbox", Err: errors.New("no JSON"), Hint: "emit JSON"}
	f := relayFailure(&relay.HaltError{Cause: deadletter.Malformed, Err: row}, relay.State{})
	require.Equal(t, exitRuntime, f.code)
	require.Contains(t, f.next, "emit JSON\nor go on without it")
	require.Contains(t, f.next, `deadletter.malformed = "dead_letter"`)
	require.NotContains(t, relayFailure(row, relay.State{}).next, "deadletter.", "a policy is not why it ends")
}
