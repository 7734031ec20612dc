package outbox_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/postrider/postrider/outbox"
	outboxsql "github.com/postrider/postrider/sql"
	"github.com/postrider/postrider/test/parts"
)

const givenID = "5f0b0bd2-6a3e-4b49-8a0a-0a2b9f1f7c01"

var givenTime = time.Date(2026, 1, 15, 9, 30, 0, 123456789, time.UTC)

// newOutbox makes a database with an outbox table.
func newOutbox(t testing.TB, version, preset string) (*parts.Database, *pgx.Conn) {
	t.Helper()
	db := parts.Postgres(t, version)
	script, err := outboxsql.Outbox(preset, "public", "outbox")
	require.NoError(t, err)
	db.Exec(t, script)
	return db, db.Connect(t)
}

// inTx runs f in a transaction, which is committed.
func inTx(t testing.TB, conn *pgx.Conn, f func(pgx.Tx) error) {
	t.Helper()
	require.NoError(t, pgx.BeginFunc(t.Context(), conn, f))
}

// rows returns what a query selects as one text.
func rows(t testing.TB, conn *pgx.Conn, query string) []string {
	t.Helper()
	result, err := conn.Query(t.Context(), query)
	require.NoError(t, err)
	all, err := pgx.CollectRows(result, pgx.RowTo[string])
	require.NoError(t, err)
	return all
}

func TestEmit_WritesARowForEachEventInOrder(t *testing.T) {
	for _, preset := range []string{outboxsql.Plain, outboxsql.Partitioned} {
		t.Run(preset, func(t *testing.T) {
			_, conn := newOutbox(t, "14", preset)
			before := time.Now()
			inTx(t, conn, func(tx pgx.Tx) error {
				return outbox.Emit(t.Context(), tx,
					outbox.Event{ID: givenID, AggregateType: "order", AggregateID: `a "b" \ 'ü' 🚚, {}`, Type: "OrderCreated",
						Payload: map[string]any{"html": "<&>", "n": 12.5}, Headers: map[string]any{"tenant": "acme", "hops": 2, "none": nil}, OccurredAt: givenTime},
					outbox.Event{AggregateType: "order", AggregateID: "2", Type: "JSONNull", Payload: json.RawMessage("null")},
					outbox.Event{AggregateType: "order", AggregateID: "3", Type: "Tombstone"})
			})
			got := rows(t, conn, "SELECT concat_ws('|', aggregate_type, aggregate_id, event_type, coalesce(payload::text, 'NULL'), coalesce(headers::text, 'NULL')) FROM outbox ORDER BY ctid")
			want := []string{
				`order|a "b" \ 'ü' 🚚, {}|OrderCreated|{"n": 12.5, "html": "<&>"}|{"hops": 2, "none": null, "tenant": "acme"}`,
				"order|2|JSONNull|null|{}", "order|3|Tombstone|NULL|{}",
			}
			if preset == outboxsql.Plain { // partitions have an order each
				require.Equal(t, want, got)
			}
			require.ElementsMatch(t, want, got)
			require.Equal(t, []string{givenID + " 2026-01-15 09:30:00.123456"},
				rows(t, conn, "SELECT id || ' ' || (created_at AT TIME ZONE 'UTC') FROM outbox WHERE event_type = 'OrderCreated'"))
			for _, id := range rows(t, conn, "SELECT id::text FROM outbox WHERE event_type <> 'OrderCreated'") {
				require.Equal(t, uuid.Version(7), uuid.MustParse(id).Version())
			}
			var at time.Time
			require.NoError(t, conn.QueryRow(t.Context(), "SELECT min(created_at) FROM outbox WHERE event_type <> 'OrderCreated'").Scan(&at))
			require.WithinRange(t, at, before.Truncate(time.Microsecond), time.Now())
		})
	}
}

// Each of the tables on docs/OUTBOX-TABLES.md takes an event; the configuration has the names of the one beside it.
func TestEmit_WritesTheTablesOfThePage(t *testing.T) {
	event := outbox.Event{AggregateType: "order", AggregateID: "17", Type: "OrderCreated", Payload: `{"id": 17}`}
	for name, c := range map[string]struct {
		cfg    outbox.Config
		change func(*outbox.Event)
		want   string
	}{
		"debezium": {cfg: outbox.DebeziumConfig(),
			want: `SELECT concat_ws('|', aggregatetype, aggregateid, type, payload) FROM outbox`},
		"polled": {cfg: outbox.Config{Table: "outbox_events", FieldTimestamp: "created_at"},
			want: `SELECT concat_ws('|', aggregate_type, aggregate_id, event_type, payload) FROM outbox_events`},
		"event-type": {cfg: outbox.Config{Table: "public.outbox_messages", RouteByField: "event_type", AggregateTypeColumn: "aggregate_type", HeadersColumn: "headers"},
			want: `SELECT concat_ws('|', aggregate_type, aggregate_id, event_type, payload) FROM outbox_messages WHERE headers = '{}'`},
		"partitioned": {cfg: outbox.Config{Table: "outbox", FieldID: outbox.None, FieldTimestamp: "created_at", HeadersColumn: "headers"},
			change: func(e *outbox.Event) { e.OccurredAt = givenTime },
			want:   `SELECT concat_ws('|', aggregate_type, aggregate_id, event_type, payload) FROM outbox`},
		"tasks": {cfg: outbox.Config{Table: "tasks", RouteByField: "task_type", FieldKey: "id", FieldType: outbox.None, FieldTimestamp: "created_at", Columns: []string{"state", "execute_at"}},
			change: func(e *outbox.Event) {
				e.AggregateType, e.AggregateID, e.Type = "SEND_EMAIL", "", ""
				e.Columns = map[string]any{"state": "WAITING", "execute_at": givenTime}
			},
			want: `SELECT CASE WHEN task_type = 'SEND_EMAIL' AND execute_at = '2026-01-15 09:30:00.123457+00' THEN concat('order|17|OrderCreated|', payload) END FROM tasks`},
		"camel-case": {cfg: outbox.Config{Table: "public.OutboxEvent", RouteByField: "aggregateType", FieldKey: "aggregateId", FieldType: "eventType", FieldTimestamp: "createdAt"},
			change: func(e *outbox.Event) { e.ID, e.OccurredAt = "cm5x1", givenTime.In(time.FixedZone("", 3600)) },
			want:   `SELECT concat_ws('|', "aggregateType", "aggregateId", "eventType", payload) FROM "OutboxEvent" WHERE id = 'cm5x1' AND "createdAt" = '2026-01-15 09:30:00.123'`},
	} {
		t.Run(name, func(t *testing.T) {
			script, err := os.ReadFile(filepath.Join("..", "docs", "outbox-tables", name+".sql"))
			require.NoError(t, err)
			db := parts.Postgres(t, "14")
			db.Exec(t, string(script))
			conn := db.Connect(t)
			e := event
			if c.change != nil {
				c.change(&e)
			}
			emitter, err := outbox.New(c.cfg)
			require.NoError(t, err)
			inTx(t, conn, func(tx pgx.Tx) error { return emitter.Emit(t.Context(), tx, e) })
			require.Equal(t, []string{`order|17|OrderCreated|{"id": 17}`}, rows(t, conn, c.want))
		})
	}
}

func TestEmit_WritesPayloadsOfEveryType(t *testing.T) {
	conn := parts.Postgres(t, "14").Connect(t)
	duration := durationpb.New(1500 * time.Millisecond)
	binary, err := proto.Marshal(duration)
	require.NoError(t, err)
	type pair struct {
		payload any
		want    []byte // nil: NULL
	}
	for columnType, pairs := range map[string][]pair{
		"jsonb": {{`{"b": 1, "a": 1.50}`, []byte(`{"a": 1.50, "b": 1}`)}, {[]byte("[]"), []byte("[]")}, {json.RawMessage(`"text"`), []byte(`"text"`)},
			{duration, []byte(`"1.500s"`)}, {map[string]int{"a": 1}, []byte(`{"a": 1}`)}, {(*int)(nil), []byte("null")}, {17, []byte("17")}, {nil, nil}, {[]byte(nil), nil}},
		"json":  {{"{ \"b\":1,\t\"b\":  1e3}", []byte("{ \"b\":1,\t\"b\":  1e3}")}, {"null", []byte("null")}, {struct{ A string }{"<ü>"}, []byte(`{"A":"<ü>"}`)}, {nil, nil}},
		"text":  {{"no JSON\n\\ \"", []byte("no JSON\n\\ \"")}, {"", []byte{}}, {[]byte("<a/>"), []byte("<a/>")}, {duration, []byte(`"1.500s"`)}, {nil, nil}},
		"bytea": {{[]byte{0, 1, 255}, []byte{0, 1, 255}}, {[]byte{}, []byte{}}, {duration, binary}, {&durationpb.Duration{}, []byte{}}, {map[string]int{"a": 1}, []byte(`{"a":1}`)}, {nil, nil}},
	} {
		table := "outbox_" + columnType
		_, err := conn.Exec(t.Context(), "CREATE TABLE "+table+" (n serial, id uuid, aggregate_type varchar(20), aggregate_id text, event_type text, payload "+columnType+")")
		require.NoError(t, err)
		emitter, err := outbox.New(outbox.Config{Table: table, PayloadType: columnType})
		require.NoError(t, err)
		var events []outbox.Event
		for _, p := range pairs {
			events = append(events, outbox.Event{AggregateType: "order", AggregateID: "17", Payload: p.payload})
		}
		inTx(t, conn, func(tx pgx.Tx) error { return emitter.Emit(t.Context(), tx, events...) })
		for i, p := range pairs {
			var stored *[]byte
			asBytes := "convert_to(payload::text, 'UTF8')"
			if columnType == "bytea" {
				asBytes = "payload"
			}
			require.NoError(t, conn.QueryRow(t.Context(), fmt.Sprintf("SELECT %s FROM %s WHERE n = %d", asBytes, table, i+1)).Scan(&stored))
			if p.want == nil {
				require.Nil(t, stored, "%s %v", columnType, p.payload)
				continue
			}
			require.NotNil(t, stored, "%s %v", columnType, p.payload)
			if _, ok := p.payload.(*durationpb.Duration); ok && columnType != "bytea" {
				require.JSONEq(t, string(p.want), string(*stored))
				continue
			}
			require.Equal(t, string(p.want), string(*stored), "%s %v", columnType, p.payload)
		}
	}
}

func TestEmit_KeyAndFurtherColumns(t *testing.T) {
	db := parts.Postgres(t, "14")
	db.Exec(t, `CREATE SCHEMA "my shop"; CREATE TABLE "my shop"."Order ""Events""" (id uuid, "aggregate.type" text, aggregate_id text, "event's key" text, event_type text,
		payload jsonb, version int, tenant bigint NOT NULL, raw bytea, note text, tags text[], trace text)`)
	conn := db.Connect(t)
	emitter, err := outbox.New(outbox.Config{Table: `my shop.Order "Events"`, RouteByField: "aggregate.type", FieldKey: "event's key", AggregateIDColumn: "aggregate_id",
		FieldSchemaVersion: "version", Columns: []string{"tenant", "raw", "note", "tags"}, TracingField: "trace"})
	require.NoError(t, err)
	inTx(t, conn, func(tx pgx.Tx) error {
		return emitter.Emit(t.Context(), tx,
			outbox.Event{AggregateType: "order", AggregateID: "17", PartitionKey: "customer 5", SchemaVersion: 3,
				Columns: map[string]any{"tenant": int64(9007199254740993), "raw": []byte("\x00\xff"), "tags": []string{"a", "b,c"}}},
			outbox.Event{AggregateType: "order", AggregateID: "18", Columns: map[string]any{"tenant": 1, "note": "<n>"}})
	})
	require.Equal(t, []string{`17|customer 5|3|9007199254740993|\x00ff|NULL|{a,"b,c"}|NULL`, `18|18|NULL|1|NULL|<n>|NULL|NULL`}, rows(t, conn,
		`SELECT concat_ws('|', aggregate_id, "event's key", coalesce(version::text, 'NULL'), tenant, coalesce(raw::text, 'NULL'), coalesce(note, 'NULL'), coalesce(tags::text, 'NULL'), coalesce(trace, 'NULL'))
		FROM "my shop"."Order ""Events""" ORDER BY ctid`))
}

// One statement text, one round trip, for one event as for a thousand.
func TestEmit_TakesOneRoundTrip(t *testing.T) {
	_, conn := newOutbox(t, "18", outboxsql.Plain)
	event := outbox.Event{AggregateType: "order", AggregateID: "17", Type: "OrderCreated"}
	thousand := make([]outbox.Event, 1000)
	for i := range thousand {
		thousand[i] = event
	}
	inTx(t, conn, func(tx pgx.Tx) error {
		require.NoError(t, outbox.Emit(t.Context(), tx, event)) // prepares the statement
		require.NoError(t, outbox.Message(t.Context(), tx, "outbox", withPayload(event)...))
		require.NoError(t, outbox.Message(t.Context(), tx, "outbox", withPayload(event, event)...))
		for sends, emit := range map[int]func() error{
			0: func() error { return outbox.Emit(t.Context(), tx) },
			1: func() error { return outbox.Emit(t.Context(), tx, event) },
			4: func() error { return outbox.Message(t.Context(), tx, "outbox", withPayload(event)...) },
			2: func() error { return outbox.Message(t.Context(), tx, "outbox", withPayload(thousand...)...) },
			3: func() error { return outbox.Emit(t.Context(), tx, thousand...) },
		} {
			var sent bytes.Buffer
			conn.PgConn().Frontend().Trace(&sent, pgproto3.TracerOptions{SuppressTimestamps: true})
			err := emit()
			conn.PgConn().Frontend().Untrace()
			require.NoError(t, err)
			require.Equal(t, min(sends, 1), strings.Count(sent.String(), "F\tSync"), sent.String()[:min(sent.Len(), 2000)])
			require.NotContains(t, sent.String(), "F\tParse")
		}
		return nil
	})
	require.Equal(t, []string{"1002"}, rows(t, conn, "SELECT count(*)::text FROM outbox"))
}

func withPayload(events ...outbox.Event) []outbox.Event {
	with := append([]outbox.Event{}, events...)
	for i := range with {
		with[i].Payload = "{}"
	}
	return with
}

// Whatever way a driver sends parameters, the rows are the same.
func TestEmit_TakesTransactionsOfEveryKind(t *testing.T) {
	db, conn := newOutbox(t, "14", outboxsql.Plain)
	event := outbox.Event{AggregateType: "order", AggregateID: `it's \ "17"`, Type: "OrderCreated", Payload: `{"a": "it's \\ \"b\""}`, Headers: map[string]any{"h": "ü"}}
	ctx := t.Context()
	kinds := map[string]func(t *testing.T){
		"pgx.Batch": func(t *testing.T) {
			inTx(t, conn, func(tx pgx.Tx) error {
				batch := &pgx.Batch{}
				batch.Queue("SELECT 1")
				require.NoError(t, outbox.Emit(ctx, batch, event))
				return tx.SendBatch(ctx, batch).Close()
			})
		},
	}
	for mode, exec := range map[string]pgx.QueryExecMode{"cache_statement": pgx.QueryExecModeCacheStatement, "cache_describe": pgx.QueryExecModeCacheDescribe,
		"describe_exec": pgx.QueryExecModeDescribeExec, "exec": pgx.QueryExecModeExec, "simple_protocol": pgx.QueryExecModeSimpleProtocol} {
		kinds["pgx.Tx "+mode] = func(t *testing.T) {
			cfg, err := pgx.ParseConfig(db.DSN())
			require.NoError(t, err)
			cfg.DefaultQueryExecMode = exec
			own, err := pgx.ConnectConfig(ctx, cfg)
			require.NoError(t, err)
			defer func() { _ = own.Close(context.Background()) }()
			inTx(t, own, func(tx pgx.Tx) error {
				return firstOf(outbox.Emit(ctx, tx, event), outbox.Message(ctx, tx, "outbox", event))
			})
		}
		kinds["sql.Tx "+mode] = func(t *testing.T) {
			pool, err := sql.Open("pgx", db.DSN()+"&default_query_exec_mode="+mode)
			require.NoError(t, err)
			defer func() { _ = pool.Close() }()
			tx, err := pool.BeginTx(ctx, nil)
			require.NoError(t, err)
			require.NoError(t, outbox.Emit(ctx, tx, event))
			require.NoError(t, outbox.Message(ctx, tx, "outbox", event))
			require.NoError(t, tx.Commit())
		}
	}
	for name, emit := range kinds {
		t.Run(name, func(t *testing.T) {
			emit(t)
			require.Equal(t, []string{`order|it's \ "17"|OrderCreated|{"a": "it's \\ \"b\""}|{"h": "ü"}`}, rows(t, conn,
				"WITH gone AS (DELETE FROM outbox RETURNING *) SELECT concat_ws('|', aggregate_type, aggregate_id, event_type, payload, headers) FROM gone"))
		})
	}
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestEmit_IsUndoneWithItsTransaction(t *testing.T) {
	_, conn := newOutbox(t, "14", outboxsql.Plain)
	event := outbox.Event{AggregateType: "order", AggregateID: "17", Type: "OrderCreated"}
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, outbox.Emit(t.Context(), tx, event))
	savepoint, err := tx.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, outbox.Emit(t.Context(), savepoint, event, event))
	require.NoError(t, savepoint.Rollback(t.Context()))
	require.Equal(t, []string{"1"}, rows(t, conn, "SELECT count(*)::text FROM outbox"))
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, []string{"0"}, rows(t, conn, "SELECT count(*)::text FROM outbox"))
}

// The role of an application has INSERT and no more; what others made in public is not called.
func TestEmit_CallsNothingThatOthersMade(t *testing.T) {
	for _, version := range []string{"14", "18"} {
		db, conn := newOutbox(t, version, outboxsql.Plain)
		app, mallory := parts.Unique("app"), parts.Unique("mallory")
		db.Exec(t, "CREATE ROLE "+app+"; CREATE ROLE "+mallory+"; GRANT CREATE ON SCHEMA public TO "+mallory+"; GRANT INSERT ON outbox TO "+app+
			"; GRANT USAGE ON SCHEMA public TO PUBLIC; SET ROLE "+mallory+`;
			CREATE FUNCTION public.jsonb_populate_record(public.outbox, jsonb) RETURNS public.outbox LANGUAGE plpgsql AS 'BEGIN RAISE ''called''; END';
			CREATE FUNCTION public.jsonb_array_elements(jsonb) RETURNS SETOF jsonb LANGUAGE plpgsql AS 'BEGIN RAISE ''called''; END';
			CREATE FUNCTION public.json_array_elements(json) RETURNS SETOF json LANGUAGE plpgsql AS 'BEGIN RAISE ''called''; END';
			CREATE FUNCTION public.pg_logical_emit_message(boolean, text, text) RETURNS pg_lsn LANGUAGE plpgsql AS 'BEGIN RAISE ''called''; END';
			CREATE FUNCTION public.member(jsonb, text) RETURNS jsonb LANGUAGE plpgsql AS 'BEGIN RAISE ''called''; END';
			CREATE OPERATOR public.-> (LEFTARG = jsonb, RIGHTARG = text, FUNCTION = public.member);
			CREATE TYPE public.jsonb AS (x int); CREATE TYPE public.text AS (x int)`)
		defer db.Exec(t, "DROP OWNED BY "+app+", "+mallory+"; DROP ROLE "+app+", "+mallory)
		_, err := conn.Exec(t.Context(), "SET search_path = public, pg_catalog; SET ROLE "+app)
		require.NoError(t, err)
		event := outbox.Event{AggregateType: "order", AggregateID: "17", Type: "OrderCreated", Payload: "{}"}
		inTx(t, conn, func(tx pgx.Tx) error {
			return firstOf(outbox.Emit(t.Context(), tx, event), outbox.Message(t.Context(), tx, "outbox", event))
		})
		_, err = conn.Exec(t.Context(), "SELECT jsonb_populate_record(NULL::public.outbox, '{}'::pg_catalog.jsonb)")
		require.ErrorContains(t, err, "called", "the trap is set")
	}
}
