package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/postrider/postrider/outbox"
	outboxsql "github.com/postrider/postrider/sql"
	"github.com/postrider/postrider/test/parts"
)

// An event is the same record whether it was written as a row, as a logical message, or with the SQL function.
func TestEmit_EveryFormBecomesTheSameRecord(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	topic := c.Topic(t, partitions)
	table, err := outboxsql.Outbox(outboxsql.Partitioned, "public", "outbox")
	require.NoError(t, err)
	function, err := outboxsql.Emit("public", "outbox")
	require.NoError(t, err)
	s := newShop(t, parts.AnyVersion, table+function+outboxsql.Publication(), routeTo(topic, `
table.field.event.timestamp = "created_at"
headers_column = "headers"
fields.null.include = true
[replication]
messages = ["outbox"]`))
	r := s.run(t)

	id, err := oteltrace.TraceIDFromHex("0af7651916cd43dd8448eb211c80319c")
	require.NoError(t, err)
	ctx := oteltrace.ContextWithSpanContext(t.Context(), oteltrace.NewSpanContext(oteltrace.SpanContextConfig{TraceID: id, SpanID: oteltrace.SpanID{1}}))
	const traceparent = "00-0af7651916cd43dd8448eb211c80319c-0100000000000000-00"
	event := func(n int) outbox.Event {
		return outbox.Event{ID: fmt.Sprintf("5f0b0bd2-6a3e-4b49-8a0a-0a2b9f1f7c0%d", n), AggregateType: "order", AggregateID: fmt.Sprintf(`key "%d" ü`, n),
			Type: `Order\Created 🚚`, Payload: `{"n": 1, "text": "é \" \\ \u00e9", "<&>": null}`, OccurredAt: time.Date(2026, 1, 15, 9, 30, 0, 123456000, time.UTC),
			Headers: map[string]any{"tenant": `a"cme`, "hops": 2, "none": nil}}
	}
	tombstone := outbox.Event{AggregateType: "order", AggregateID: "gone", Type: "OrderDeleted"}
	require.NoError(t, pgx.BeginFunc(ctx, s.sql, func(tx pgx.Tx) error {
		require.NoError(t, outbox.Emit(ctx, tx, event(1), tombstone))
		require.NoError(t, outbox.Message(ctx, tx, "outbox", event(2)))
		require.NoError(t, outbox.Message(ctx, tx, "outbox", event(3), event(4)))
		e := event(5)
		e.Headers["traceparent"] = traceparent
		_, err := tx.Exec(ctx, "SELECT public.outbox_emit($1, $2, $3, $4, $5, $6, $7)", e.AggregateType, e.AggregateID, e.Type, e.Payload, e.Headers, e.ID, e.OccurredAt)
		return err
	}))
	// Before a commit, which flushes what the rollback has not.
	tx, err := s.sql.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, outbox.Message(t.Context(), tx, "outbox", event(6)))
	require.NoError(t, outbox.Message(t.Context(), tx, "outbox", event(7), event(8)))
	require.NoError(t, outbox.Emit(t.Context(), tx, event(9)))
	require.NoError(t, tx.Rollback(t.Context()))
	ofText, err := outbox.New(outbox.Config{Table: "public.outbox", HeadersColumn: "headers", FieldTimestamp: "created_at", PayloadType: outbox.Text, MessageNulls: true})
	require.NoError(t, err)
	require.NoError(t, pgx.BeginFunc(ctx, s.sql, func(tx pgx.Tx) error {
		return ofText.Message(t.Context(), tx, "outbox", outbox.Event{AggregateType: "order", AggregateID: "text", Type: "Text", Payload: "no JSON\n\x01"},
			outbox.Event{AggregateType: "order", AggregateID: "also gone"})
	}))
	s.awaitConfirmed(t, r)
	r.Stop(t)

	records := s.All(t, topic)
	require.Len(t, records, 8, "and none that was rolled back")
	for n := 1; n <= 5; n++ {
		e := event(n)
		of := byKey(records, e.AggregateID)
		require.Len(t, of, 1, e.AggregateID)
		value := e.Payload.(string) // a message has the text as it was written
		if n == 1 || n == 5 {
			value = `{"n": 1, "<&>": null, "text": "é \" \\ é"}` // jsonb
		}
		requireRecord(t, message{Topic: topic, Key: &e.AggregateID, Value: &value, Timestamp: "2026-01-15T09:30:00.123Z",
			Headers: []header{{"id", &e.ID}, {"eventType", &e.Type}, {"hops", text("2")}, {"none", nil}, {"tenant", text(`a"cme`)}, {"traceparent", text(traceparent)}}},
			time.Time{}, time.Time{}, of[0])
	}
	for _, key := range []string{"gone", "also gone"} {
		require.Nil(t, byKey(records, key)[0].Value)
	}
	require.Equal(t, "no JSON\n\x01", string(byKey(records, "text")[0].Value))
}
