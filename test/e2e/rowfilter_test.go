package e2e

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// The SQL and the line of docs/PERFORMANCE.md, "More than one slot".
const (
	slots     = 4
	rowFilter = `(hashtext(coalesce(aggregate_id, '')) & %d) = %d`
)

// Several relays share an outbox, each with a slot and a publication that has the rows of its share of the aggregates. Each row has to be in
// exactly one share, also one without a key, and the events of an aggregate keep their order, since they are all in the same.
func TestRowFilter_GivesEachRowToOneOfSeveralSlots(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	topic, keyless := c.Topic(t, partitions), c.Topic(t, partitions)
	s := newShop(t, "18", outboxSQL+"DROP PUBLICATION postrider", `
[router]
null_key = "publish"
table.fields.additional.placement = "event_type:header:eventType"
route.topic.regex = "(.*)"
route.topic.replacement = "$1"`)
	var relays []*relay
	for i := range slots {
		s.do(t, fmt.Sprintf("CREATE PUBLICATION postrider_%d FOR TABLE outbox WHERE ("+rowFilter+") WITH (publish = 'insert')", i, slots-1, i))
		share := s.share(i)
		relays = append(relays, s.run(t, map[string]string{
			"POSTRIDER_SLOT_NAME": share.slot, "POSTRIDER_REPLICATION_PUBLICATION": fmt.Sprintf("postrider_%d", i),
		}))
	}
	const keys, transactions = 200, 20
	ledger := newLedger()
	for range transactions {
		d := ledger.draft()
		var rows [][]any
		for k := range keys {
			key := fmt.Sprintf("aggregate-%d", k)
			rows = append(rows, []any{topic, key, "changed", d.payload(key)}, []any{topic, key, "changed", d.payload(key)})
		}
		rows = append(rows, []any{keyless, nil, "changed", "{}"})
		_, err := s.sql.CopyFrom(t.Context(), pgx.Identifier{"outbox"}, []string{"aggregate_type", "aggregate_id", "event_type", "payload"}, pgx.CopyFromRows(rows))
		require.NoError(t, err)
		d.committed()
	}
	for i, r := range relays {
		s.share(i).awaitConfirmed(t, r)
	}
	for i, r := range relays { // each has had a share
		require.Positive(t, r.metrics(t).Value("postrider_relay_events_total", "result", "routed", "slot", s.share(i).slot), "slot %d", i)
		r.Stop(t)
	}
	ledger.received(t, s.All(t, topic))
	ledger.requireExact(t, 2*keys*transactions)
	require.Len(t, s.All(t, keyless), transactions)
}

// share is the shop with the slot of a share.
func (s *shop) share(i int) *shop {
	one := *s
	one.slot = fmt.Sprintf("%s_%d", s.slot, i)
	return &one
}
