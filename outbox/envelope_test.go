package outbox_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/postrider/postrider/outbox"
	outboxsql "github.com/postrider/postrider/sql"
)

const (
	traceID     = "0af7651916cd43dd8448eb211c80319c"
	traceparent = "00-" + traceID + "-b7ad6b7169203331-01"
)

func spanContext(t *testing.T) trace.SpanContext {
	t.Helper()
	id, err := trace.TraceIDFromHex(traceID)
	require.NoError(t, err)
	span, err := trace.SpanIDFromHex("b7ad6b7169203331")
	require.NoError(t, err)
	state, err := trace.ParseTraceState("vendor=a:b,other=c")
	require.NoError(t, err)
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: span, TraceFlags: trace.FlagsSampled, TraceState: state})
}

func TestEmit_WritesTheTraceOfTheContext(t *testing.T) {
	db, conn := newOutbox(t, "14", outboxsql.Plain)
	db.Exec(t, "ALTER TABLE outbox ADD tracingspancontext text")
	ctx := trace.ContextWithSpanContext(t.Context(), spanContext(t))
	inTx(t, conn, func(tx pgx.Tx) error {
		own := good
		own.Headers = map[string]any{"traceparent": "mine"}
		cfg := outbox.DefaultConfig()
		cfg.TracingField = "tracingspancontext"
		properties, err := outbox.New(cfg)
		require.NoError(t, err)
		return firstOf(outbox.Emit(ctx, tx, good, own), properties.Emit(ctx, tx, good), outbox.Emit(t.Context(), tx, good))
	})
	require.Equal(t, []string{
		`{"tracestate": "vendor=a:b,other=c", "traceparent": "` + traceparent + `"}`,
		`{"tracestate": "vendor=a:b,other=c", "traceparent": "mine"}`,
		"traceparent=" + traceparent + "\ntracestate=vendor=a:b,other=c\n",
		"{}",
	}, rows(t, conn, "SELECT coalesce(tracingspancontext, headers::text) FROM outbox ORDER BY ctid"))
}

func TestEmit_PutsThePayloadIntoAnEnvelope(t *testing.T) {
	db, conn := newOutbox(t, "14", outboxsql.Plain)
	ctx := trace.ContextWithSpanContext(t.Context(), spanContext(t))
	cfg := outbox.DefaultConfig()
	cfg.Envelope = true
	emitter, err := outbox.New(cfg)
	require.NoError(t, err)
	full, short, tombstone := good, good, good
	full.ID, full.SchemaVersion, full.OccurredAt, full.Payload = givenID, 3, givenTime, map[string]any{"total": 12.5}
	tombstone.Payload = nil
	inTx(t, conn, func(tx pgx.Tx) error {
		return firstOf(emitter.Emit(ctx, tx, full), emitter.Emit(t.Context(), tx, short, tombstone))
	})
	got := rows(t, conn, "SELECT coalesce(payload::text, 'NULL') FROM outbox ORDER BY ctid")
	require.JSONEq(t, `{"eventId": "`+givenID+`", "eventType": "OrderCreated", "schemaVersion": 3, "occurredAt": "2026-01-15T09:30:00.123456Z",
		"traceId": "`+traceID+`", "data": {"total": 12.5}}`, got[0])
	var document map[string]any
	require.NoError(t, json.Unmarshal([]byte(got[1]), &document))
	require.Len(t, document, 4, got[1])
	require.Equal(t, uuid.Version(7), uuid.MustParse(document["eventId"].(string)).Version())
	require.Equal(t, "NULL", got[2], "a tombstone stays one")
	require.Equal(t, []string{"true"}, rows(t, conn, `SELECT bool_and(id::text = payload->>'eventId' AND created_at = (payload->>'occurredAt')::timestamptz)::text
		FROM outbox WHERE payload IS NOT NULL`), "what is in the envelope is in the columns")

	db.Exec(t, "CREATE TABLE raw (id uuid, aggregate_type text, aggregate_id text, payload bytea)")
	raw, err := outbox.New(outbox.Config{Table: "raw", FieldType: outbox.None, PayloadType: outbox.Bytea, Envelope: true})
	require.NoError(t, err)
	inTx(t, conn, func(tx pgx.Tx) error {
		require.ErrorContains(t, raw.Emit(ctx, tx, outbox.Event{AggregateType: "order", AggregateID: "17", Payload: []byte("\xff")}), "not UTF-8")
		return raw.Emit(ctx, tx, full)
	})
	stored := rows(t, conn, "SELECT convert_from(payload, 'UTF8') FROM raw")[0]
	require.True(t, strings.HasPrefix(stored, `{"eventId":"`+givenID+`","eventType":"OrderCreated","schemaVersion":3,"occurredAt":"`), stored)
}

func TestEmit_IDsAreInTheOrderOfTheCalls(t *testing.T) {
	_, conn := newOutbox(t, "14", outboxsql.Plain)
	inTx(t, conn, func(tx pgx.Tx) error {
		for range 3 {
			if err := outbox.Emit(t.Context(), tx, good, good); err != nil {
				return err
			}
		}
		return nil
	})
	require.Equal(t, rows(t, conn, "SELECT id::text FROM outbox ORDER BY id"), rows(t, conn, "SELECT id::text FROM outbox ORDER BY ctid"))
	first := uuid.MustParse(rows(t, conn, "SELECT min(id::text) FROM outbox")[0])
	seconds, _ := first.Time().UnixTime()
	require.WithinDuration(t, time.Now(), time.Unix(seconds, 0), time.Minute)
}
