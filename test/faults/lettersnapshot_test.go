package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

// A slot that is lost while a key is parked is recreated with all rows of the tables: those of the key belong behind its open letters.
func TestFault10_SnapshotDoesNotOvertakeAParkedKey(t *testing.T) {
	t.Parallel()
	p := newPoisonRig(t, "dead_letter_key")
	p.settings["snapshot.mode"] = quote("when_needed")
	p.settings["snapshot.order_by"] = quote("number")
	p.settings[`router."table.field.event.timestamp"`] = quote("")
	p.settings["snapshot.topic"] = quote(parts.Unique("snapshot"))
	p.settings["sink.kafka.max_message_bytes"] = "100000"
	p.rows(t, "k", 1, 3)
	execute(t, p.dsn, fmt.Sprintf(`INSERT INTO outbox (aggregate_type, aggregate_id, payload, number)
		VALUES ('%s', 'k', jsonb_build_object('key', 'k', 'number', 4, 'pad', repeat('x', 200000)), 4)`, p.topic))
	p.rows(t, "k", 5, 7)
	relay := p.started(t)
	p.drained(t, time.Minute)
	relay.stop(t)
	require.Equal(t, upTo(3), p.numbers(t, "k"))
	require.Len(t, p.list(t), 4)

	p.settings["sink.kafka.max_message_bytes"] = "1000000"
	execute(t, p.dsn, "SELECT pg_drop_replication_slot('"+p.slot+"')")
	relay = p.start(t)
	require.Equal(t, 78, relay.Wait(t))
	require.Contains(t, relay.Log.String(), "breaks the key's order")
	require.Contains(t, relay.Log.String(), "postrider deadletter list")
	require.Equal(t, upTo(3), p.numbers(t, "k"), "nothing of the key")

	_, errs, code := p.cli(t, "deadletter", "redrive", "--all", "--yes")
	require.Zero(t, code, errs)
	relay = p.started(t)
	p.drained(t, time.Minute)
	relay.stop(t)
	require.Equal(t, append(upTo(7), upTo(7)...), p.numbers(t, "k"), "in order, and then all rows of the table once more")
}
