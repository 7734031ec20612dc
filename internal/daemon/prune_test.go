package daemon

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/sink"
)

// Relays share a topic: letters of another one say nothing of a table that was renamed here.
func TestOpenRows_TellsLettersOfThisRelayFromThoseOfOthers(t *testing.T) {
	letter := func(system, slot, relation, id, action string) *deadletter.Entry {
		source := sink.Source{SystemID: system, Timeline: 1, Slot: slot}
		return &deadletter.Entry{Letter: deadletter.Letter{Source: source.Header(), Relation: relation, EventID: id}, Action: action}
	}
	entries := []*deadletter.Entry{
		letter("7", "orders", "public.outbox", "1", ""),
		letter("7", "orders", "public.outbox", "2", deadletter.Redriven),
		letter("8", "orders", "public.outbox", "3", ""),
		letter("7", "crm", "public.events", "4", ""),
		{Letter: deadletter.Letter{Source: "of an earlier version", Relation: "public.old", EventID: "5"}},
	}
	own, foreign := openRows(entries, "7", "orders")
	require.Equal(t, map[string][]string{"public.outbox": {"1"}, "public.old": {"5"}}, own)
	require.Equal(t, map[string][]string{"public.outbox": {"3"}, "public.events": {"4"}}, foreign)
	own, foreign = openRows(entries, "", "orders") // a server that does not give its identifier
	require.Equal(t, map[string][]string{"public.outbox": {"1", "3"}, "public.old": {"5"}}, own)
	require.Equal(t, map[string][]string{"public.events": {"4"}}, foreign)
}
