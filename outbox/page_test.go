package outbox_test

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/postrider/postrider/outbox"
	outboxsql "github.com/postrider/postrider/sql"
	"github.com/postrider/postrider/test/parts"
)

// order is what the application of docs/WRITING-EVENTS.md has.
type order struct {
	ID    string `json:"id"`
	Total int    `json:"total"`
}

// blocks returns the fenced blocks of the page in a language.
func blocks(t *testing.T, language string) (all []string) {
	t.Helper()
	page, err := os.ReadFile("../docs/WRITING-EVENTS.md")
	require.NoError(t, err)
	for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		all = append(all, m[1])
	}
	require.NotEmpty(t, all)
	return all
}

// The Go of the page stands in this file, where it runs: the page has nothing else.
func TestPage_ItsGoIsWhatRunsHere(t *testing.T) {
	file, err := os.ReadFile("page_test.go")
	require.NoError(t, err)
	withoutIndent := func(text string) string {
		return regexp.MustCompile(`(?m)^\s+`).ReplaceAllString(text, "")
	}
	for _, block := range blocks(t, "go") {
		require.Contains(t, withoutIndent(string(file)), withoutIndent(block))
	}
}

func pageDatabase(t *testing.T) *pgx.Conn {
	t.Helper()
	db, conn := newOutbox(t, parts.AnyVersion, outboxsql.Plain)
	function, err := outboxsql.Emit("public", "outbox")
	require.NoError(t, err)
	db.Exec(t, function+"CREATE TABLE orders (id text PRIMARY KEY, total int NOT NULL, paid boolean)")
	return conn
}

func TestPage_ItsGoWritesEvents(t *testing.T) {
	ctx, conn, order := t.Context(), pageDatabase(t), order{ID: "17", Total: 1250}
	var err error
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO orders (id, total) VALUES ($1, $2)", order.ID, order.Total)
		if err != nil {
			return err
		}
		return outbox.Emit(ctx, tx, outbox.Event{
			AggregateType: "order",
			AggregateID:   order.ID,
			Type:          "OrderCreated",
			Payload:       order,
		})
	})
	require.NoError(t, err)

	require.NoError(t, pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		batch := &pgx.Batch{}
		batch.Queue("UPDATE orders SET paid = true WHERE id = $1", order.ID)
		if err := outbox.Emit(ctx, batch, outbox.Event{
			AggregateType: "order", AggregateID: order.ID, Type: "OrderPaid", Payload: `{"paid": true}`,
		}); err != nil {
			return err
		}
		return tx.SendBatch(ctx, batch).Close()
	}))
	require.Equal(t, []string{`order|17|OrderCreated|{"id": "17", "total": 1250}`, `order|17|OrderPaid|{"paid": true}`},
		rows(t, conn, "SELECT concat_ws('|', aggregate_type, aggregate_id, event_type, payload) FROM outbox ORDER BY created_at"))
	require.Equal(t, []string{"true"}, rows(t, conn, "SELECT paid::text FROM orders"))

	require.NoError(t, pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		err = outbox.Message(ctx, tx, "outbox", outbox.Event{
			AggregateType: "order",
			AggregateID:   order.ID,
			Type:          "OrderCreated",
			Payload:       order,
		})
		return err
	}))
}

func TestPage_ItsConfigWritesAnotherTable(t *testing.T) {
	conn := pageDatabase(t)
	_, err := conn.Exec(t.Context(), `CREATE SCHEMA shop;
		CREATE TABLE shop.events (id uuid, topic text, key text, name text, document jsonb, at timestamptz, tenant text NOT NULL, status text DEFAULT 'new')`)
	require.NoError(t, err)
	emitter, err := outbox.New(outbox.Config{
		Table:          "shop.events", // as in replication.tables
		RouteByField:   "topic",       // of AggregateType
		FieldKey:       "key",         // of AggregateID
		FieldType:      "name",
		FieldPayload:   "document",
		FieldTimestamp: "at",
		Columns:        []string{"tenant"}, // of Event.Columns
	})
	require.NoError(t, err)
	event := good
	event.Columns = map[string]any{"tenant": "acme"}
	inTx(t, conn, func(tx pgx.Tx) error { return emitter.Emit(t.Context(), tx, event) })
	require.Equal(t, []string{"order|17|OrderCreated|{}|acme|new"}, rows(t, conn, "SELECT concat_ws('|', topic, key, name, document, tenant, status) FROM shop.events"))
}

func TestPage_ItsEnvelopeIsWhatIsWritten(t *testing.T) {
	conn := pageDatabase(t)
	cfg := outbox.DefaultConfig()
	cfg.Envelope = true
	enveloping, err := outbox.New(cfg)
	require.NoError(t, err)
	ctx := trace.ContextWithSpanContext(t.Context(), spanContext(t))
	inTx(t, conn, func(tx pgx.Tx) error {
		return enveloping.Emit(ctx, tx, outbox.Event{ID: "0196e8a1-9c00-7000-8000-000000000001", AggregateType: "order", AggregateID: "17", Type: "OrderCreated",
			SchemaVersion: 2, OccurredAt: time.Date(2026, 1, 15, 10, 30, 0, 123456789, time.FixedZone("", 3600)), Payload: map[string]int{"total": 1250}})
	})
	require.JSONEq(t, blocks(t, "json")[0], rows(t, conn, "SELECT payload::text FROM outbox")[0])
}

func TestPage_ItsSQLWritesEvents(t *testing.T) {
	conn := pageDatabase(t)
	all := blocks(t, "sql")
	for _, block := range all {
		_, err := conn.Exec(t.Context(), block)
		require.NoError(t, err, block)
	}
	require.Equal(t, []string{`OrderCreated|{"total": 1250}|`, `OrderPaid|{"total": 1250}|{"tenant": "acme"}`, `OrderShipped|{"carrier": "post"}|`},
		rows(t, conn, "SELECT event_type || '|' || payload || '|' || coalesce(headers::text, '') FROM outbox WHERE aggregate_type = 'order' AND aggregate_id = '17' ORDER BY ctid"))

	content := regexp.MustCompile(`(?s)'outbox', '(.*)'\);`).FindStringSubmatch(all[len(all)-1])
	require.NotNil(t, content)
	var members map[string]string
	require.NoError(t, json.Unmarshal([]byte(content[1]), &members))
	require.Subset(t, []string{"id", "aggregate_type", "aggregate_id", "event_type", "payload"}, keys(members))
	require.True(t, strings.HasPrefix(members["payload"], "{"))
}

func keys(m map[string]string) (all []string) {
	for k := range m {
		all = append(all, k)
	}
	return all
}
