package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/test/parts"
)

// message is what a row is to become, in the form of postrider tail.
type message struct {
	Topic     string   `json:"topic"`
	Key       *string  `json:"key"`
	Value     *string  `json:"value"`
	Headers   []header `json:"headers"`
	Timestamp string   `json:"timestamp"` // RFC 3339, or commitTime
}

type header struct {
	Key   string  `json:"key"`
	Value *string `json:"value"`
}

// commitTime stands for a time that is known only when the row is committed.
const commitTime = "COMMIT TIME"

// row is an INSERT and what it becomes.
type row struct {
	insert string
	want   string // a message
}

// shape is a section of docs/OUTBOX-TABLES.md, with rows beyond the one that stands there.
type shape struct {
	section string
	name    string // of the files in docs/outbox-tables
	topics  []string
	rows    []row
	// Each is a transaction after the inserts, of which nothing may come.
	silent []string
}

var shapes = []shape{
	{
		section: "Debezium's", name: "debezium", topics: []string{"outbox.event.order", "outbox.event.Kunde-7_x"},
		rows: []row{
			{`INSERT INTO outbox VALUES ('00000000-0000-0000-0000-000000000101', 'order', '', '', NULL)`,
				`{"topic":"outbox.event.order","key":"","value":null,"headers":[{"key":"id","value":"00000000-0000-0000-0000-000000000101"},
				{"key":"eventType","value":""}],"timestamp":"COMMIT TIME"}`},
			{`INSERT INTO outbox VALUES ('00000000-0000-0000-0000-000000000102', 'Kunde-7_x', 'a "b" \ ''ü'' 🚚, {}', E'tab\tline\n',
				'{"text": "\u00e9 \" \\ \n 🚚", "list": [null, true, 1e3, {}]}')`,
				`{"topic":"outbox.event.Kunde-7_x","key":"a \"b\" \\ 'ü' 🚚, {}",
				"value":"{\"list\": [null, true, 1000, {}], \"text\": \"é \\\" \\\\ \\n 🚚\"}",
				"headers":[{"key":"id","value":"00000000-0000-0000-0000-000000000102"},{"key":"eventType","value":"tab\tline\n"}],"timestamp":"COMMIT TIME"}`},
			{`INSERT INTO outbox VALUES ('00000000-0000-0000-0000-000000000103', 'order', 'order-17', 'JSONNull', 'null')`,
				`{"topic":"outbox.event.order","key":"order-17","value":"null","headers":[{"key":"id","value":"00000000-0000-0000-0000-000000000103"},
				{"key":"eventType","value":"JSONNull"}],"timestamp":"COMMIT TIME"}`},
		},
		silent: []string{
			`UPDATE outbox SET type = 'changed', payload = '{"changed": true}'`,
			`DELETE FROM outbox WHERE aggregatetype = 'order'`,
			`BEGIN; INSERT INTO outbox VALUES (gen_random_uuid(), 'order', 'o', 't', '{}'); ROLLBACK`,
			`TRUNCATE outbox`,
		},
	},
	{
		section: "With processed_at", name: "polled", topics: []string{"outbox.event.customer"},
		rows: []row{
			{`INSERT INTO outbox_events (id, aggregate_type, aggregate_id, event_type, payload, processed_at, created_at)
				VALUES ('00000000-0000-0000-0000-000000000201', 'customer', 'c-5', NULL, '[]', now(), '2026-06-30 23:59:59.9999+00')`,
				`{"topic":"outbox.event.customer","key":"c-5","value":"[]","headers":[{"key":"id","value":"00000000-0000-0000-0000-000000000201"},
				{"key":"eventType","value":null}],"timestamp":"2026-06-30T23:59:59.999Z"}`},
			{`BEGIN; INSERT INTO outbox_events (id, aggregate_type, aggregate_id, event_type, payload, created_at)
				VALUES ('00000000-0000-0000-0000-000000000202', 'customer', 'c-6', 'deleted_at_once', '{}', '2026-01-01 00:00+00');
				DELETE FROM outbox_events WHERE aggregate_id = 'c-6'; COMMIT`,
				`{"topic":"outbox.event.customer","key":"c-6","value":"{}","headers":[{"key":"id","value":"00000000-0000-0000-0000-000000000202"},
				{"key":"eventType","value":"deleted_at_once"}],"timestamp":"2026-01-01T00:00:00.000Z"}`},
		},
		silent: []string{
			`UPDATE outbox_events SET attempts = attempts + 1`,
			`UPDATE outbox_events SET processed_at = now() WHERE processed_at IS NULL`,
			`DELETE FROM outbox_events WHERE processed_at IS NOT NULL`,
		},
	},
	{
		section: "A topic per event type", name: "event-type", topics: []string{"order-created", "payment-failed", "sms-sent2"},
		rows: []row{
			{`INSERT INTO outbox_messages (id, aggregate_type, aggregate_id, event_type, payload, headers)
				VALUES ('00000000-0000-0000-0000-000000000301', 'payment', '17', 'PaymentFailed', '{}', NULL)`,
				`{"topic":"payment-failed","key":"17","value":"{}","headers":[{"key":"id","value":"00000000-0000-0000-0000-000000000301"},
				{"key":"aggregateType","value":"payment"}],"timestamp":"COMMIT TIME"}`},
			{`INSERT INTO outbox_messages (id, aggregate_type, aggregate_id, event_type, payload, headers)
				VALUES ('00000000-0000-0000-0000-000000000302', 'sms', 'ü', 'SMSSent2', '"text"', '{"a": null, "bb": true, "ccc": {"x": ["ü"]}, "dddd": "", "é": "1"}')`,
				`{"topic":"sms-sent2","key":"ü","value":"\"text\"","headers":[{"key":"id","value":"00000000-0000-0000-0000-000000000302"},
				{"key":"aggregateType","value":"sms"},{"key":"a","value":null},{"key":"bb","value":"true"},{"key":"é","value":"1"},
				{"key":"ccc","value":"{\"x\": [\"ü\"]}"},{"key":"dddd","value":""}],"timestamp":"COMMIT TIME"}`},
		},
		silent: []string{
			`UPDATE outbox_messages SET status = 'FAILED', retry_count = retry_count + 1, next_retry_at = now(), last_error = 'broken'`,
			`UPDATE outbox_messages SET status = 'PUBLISHED', published_at = now(), event_type = 'ORDER_CREATED'`,
			`DELETE FROM outbox_messages`,
		},
	},
	{
		section: "Partitioned by time", name: "partitioned", topics: []string{"shop.invoice.events"},
		rows: []row{
			{`INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, created_at)
				VALUES ('invoice', 'i-10', 'invoice.paid', '{}', '2026-02-01 00:00+00')`,
				`{"topic":"shop.invoice.events","key":"i-10","value":"{}","headers":[{"key":"event-id","value":"2"},{"key":"event-type","value":"invoice.paid"}],
				"timestamp":"2026-02-01T00:00:00.000Z"}`},
			{`BEGIN; CREATE TABLE outbox_2026_03 PARTITION OF outbox FOR VALUES FROM ('2026-03-01 00:00+00') TO ('2026-04-01 00:00+00');
				INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, headers, created_at)
				VALUES ('invoice', 'i-11', 'invoice.paid', '{}', '{"n": 1.50}', '2026-03-01 12:00:00.000001+00'); COMMIT`,
				`{"topic":"shop.invoice.events","key":"i-11","value":"{}","headers":[{"key":"event-id","value":"3"},{"key":"event-type","value":"invoice.paid"},
				{"key":"n","value":"1.50"}],"timestamp":"2026-03-01T12:00:00.000Z"}`},
			// A partition that was a table with another order of columns.
			{`BEGIN; CREATE TABLE outbox_2026_04 (attempts int NOT NULL DEFAULT 0, gone text, payload jsonb NOT NULL, id bigint NOT NULL,
					headers jsonb NOT NULL DEFAULT '{}', created_at timestamptz NOT NULL, event_type text NOT NULL, aggregate_id text NOT NULL,
					published_at timestamptz, aggregate_type text NOT NULL, PRIMARY KEY (id, created_at));
				ALTER TABLE outbox_2026_04 DROP COLUMN gone;
				ALTER TABLE outbox ATTACH PARTITION outbox_2026_04 FOR VALUES FROM ('2026-04-01 00:00+00') TO ('2026-05-01 00:00+00');
				INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, created_at)
				VALUES ('invoice', 'i-12', 'attached', '{"other": "order"}', '2026-04-01 12:00+00'); COMMIT`,
				`{"topic":"shop.invoice.events","key":"i-12","value":"{\"other\": \"order\"}","headers":[{"key":"event-id","value":"4"},
				{"key":"event-type","value":"attached"}],"timestamp":"2026-04-01T12:00:00.000Z"}`},
			{`INSERT INTO outbox_2026_01 (id, aggregate_type, aggregate_id, event_type, payload, created_at)
				OVERRIDING SYSTEM VALUE
				VALUES (1000, 'invoice', 'i-13', 'straight', '{}', '2026-01-02 00:00+00')`,
				`{"topic":"shop.invoice.events","key":"i-13","value":"{}","headers":[{"key":"event-id","value":"1000"},{"key":"event-type","value":"straight"}],
				"timestamp":"2026-01-02T00:00:00.000Z"}`},
			// What the page warns of: for the WAL, a row that moves to another partition is a new one.
			{`UPDATE outbox SET created_at = '2026-02-15 00:00+00' WHERE aggregate_id = 'i-13'`,
				`{"topic":"shop.invoice.events","key":"i-13","value":"{}","headers":[{"key":"event-id","value":"1000"},{"key":"event-type","value":"straight"}],
				"timestamp":"2026-02-15T00:00:00.000Z"}`},
		},
		silent: []string{
			`UPDATE outbox SET attempts = attempts + 1, published_at = now()`,
			`ALTER TABLE outbox DETACH PARTITION outbox_2026_01`,
			`DROP TABLE outbox_2026_01, outbox_2026_02`,
			`DELETE FROM outbox`,
		},
	},
	{
		section: "Tasks", name: "tasks", topics: []string{"tasks.send-email", "tasks.book-courier", "tasks.call-back"},
		rows: []row{
			{`INSERT INTO tasks (id, task_type, created_at) VALUES ('00000000-0000-0000-0000-000000000501', 'BOOK_COURIER', '2026-02-28 20:00:00.5+00')`,
				`{"topic":"tasks.book-courier","key":"00000000-0000-0000-0000-000000000501","value":null,
				"headers":[{"key":"id","value":"00000000-0000-0000-0000-000000000501"},{"key":"executeAt","value":null}],"timestamp":"2026-02-28T20:00:00.500Z"}`},
			// A label that is added while the relay runs.
			{`ALTER TYPE task_type ADD VALUE 'CALL_BACK'`, ``},
			{`INSERT INTO tasks (id, task_type, payload, created_at) VALUES ('00000000-0000-0000-0000-000000000502', 'CALL_BACK', '{}', '2026-02-28 20:00+00')`,
				`{"topic":"tasks.call-back","key":"00000000-0000-0000-0000-000000000502","value":"{}",
				"headers":[{"key":"id","value":"00000000-0000-0000-0000-000000000502"},{"key":"executeAt","value":null}],"timestamp":"2026-02-28T20:00:00.000Z"}`},
		},
		silent: []string{
			`UPDATE tasks SET state = 'RUNNING', heartbeat_at = now(), updated_at = now()`,
			`UPDATE tasks SET state = 'FAILED', error_message = 'no answer', retry_count = retry_count + 1`,
			`UPDATE tasks SET state = 'DONE', task_type = 'SEND_EMAIL'`,
			`DELETE FROM tasks WHERE state = 'DONE'`,
		},
	},
	{
		section: "Camel case", name: "camel-case", topics: []string{"outbox.event.cart"},
		rows: []row{
			{`INSERT INTO "OutboxEvent" ("id", "aggregateType", "aggregateId", "eventType", "payload", "createdAt")
				VALUES ('', 'cart', 'Cart "5"', 'ItemAdded', '0', '2026-01-15 09:30')`,
				`{"topic":"outbox.event.cart","key":"Cart \"5\"","value":"0","headers":[{"key":"id","value":""},{"key":"eventType","value":"ItemAdded"}],
				"timestamp":"2026-01-15T09:30:00.000Z"}`},
		},
		silent: []string{
			`UPDATE "OutboxEvent" SET "status" = 'PUBLISHED' WHERE "status" = 'PENDING'`,
			`DELETE FROM "OutboxEvent"`,
		},
	},
}

func TestShapes_AreRelayedUnchanged(t *testing.T) {
	page := readFile(t, "OUTBOX-TABLES.md")
	for _, s := range shapes {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			sql, config := readFile(t, "outbox-tables", s.name+".sql"), readFile(t, "outbox-tables", s.name+".toml")
			blocks := codeBlocks(t, page, s.section)
			require.Equal(t, sql, blocks[0], "the table on the page")
			require.Equal(t, config, blocks[1], "the configuration on the page")
			relayShape(t, s, sql, config, append([]row{{blocks[2], blocks[3]}}, s.rows...))
		})
	}
}

func relayShape(t *testing.T, shape shape, sql, config string, rows []row) {
	s := newShop(t, parts.AnyVersion, sql, config)
	s.createTopics(t, shape.topics...)
	r := s.run(t)
	type expectation struct {
		message
		after, before time.Time
	}
	var expected []expectation
	for _, row := range rows {
		e := expectation{after: s.clock(t)}
		s.do(t, row.insert)
		e.before = s.clock(t)
		if row.want != "" {
			require.NoError(t, json.Unmarshal([]byte(row.want), &e.message), "%s", row.want)
			expected = append(expected, e)
		}
	}
	s.do(t, shape.silent...)
	s.awaitConfirmed(t, r)
	r.Stop(t)

	records := map[string][]*kgo.Record{}
	total := 0
	for _, topic := range shape.topics {
		records[topic] = s.All(t, topic)
		total += len(records[topic])
	}
	for _, e := range expected {
		of := byKey(records[e.Topic], *e.Key)
		require.NotEmpty(t, of, "no record in topic %s with key %s", e.Topic, *e.Key)
		requireRecord(t, e.message, e.after, e.before, of[0])
		records[e.Topic] = remove(records[e.Topic], of[0])
	}
	require.Equal(t, len(expected), total, "records in all topics")
}

// requireRecord compares a record with what it should be. A commit lies between after and before, by the server's clock.
func requireRecord(t testing.TB, want message, after, before time.Time, got *kgo.Record) {
	t.Helper()
	require.Equal(t, want.Topic, got.Topic)
	require.Equal(t, *want.Key, string(got.Key))
	require.Equal(t, partitionOf(got.Topic, got.Key), got.Partition, "partition")
	if want.Value == nil {
		require.Nil(t, got.Value)
	} else {
		require.Equal(t, *want.Value, string(got.Value))
	}
	var headers []header
	for _, h := range got.Headers {
		if h.Value == nil {
			headers = append(headers, header{Key: h.Key})
			continue
		}
		value := string(h.Value)
		headers = append(headers, header{h.Key, &value})
	}
	require.Equal(t, want.Headers, headers, "headers in order")
	if want.Timestamp == commitTime {
		require.False(t, got.Timestamp.Before(after.Truncate(time.Millisecond)), "timestamp %s, insert began %s", got.Timestamp, after)
		require.False(t, got.Timestamp.After(before), "timestamp %s, insert ended %s", got.Timestamp, before)
		return
	}
	at, err := time.Parse(time.RFC3339, want.Timestamp)
	require.NoError(t, err)
	require.Equal(t, at.UTC(), got.Timestamp.UTC(), "timestamp")
}

func remove(records []*kgo.Record, one *kgo.Record) []*kgo.Record {
	var rest []*kgo.Record
	for _, r := range records {
		if r != one {
			rest = append(rest, r)
		}
	}
	return rest
}

// clock is the server's.
func (s *shop) clock(t testing.TB) time.Time {
	t.Helper()
	var now time.Time
	require.NoError(t, s.sql.QueryRow(t.Context(), "SELECT clock_timestamp()").Scan(&now))
	return now
}

// readFile reads a file below docs, without the line end at its end.
func readFile(t testing.TB, path ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(append([]string{"..", "..", "docs"}, path...)...))
	require.NoError(t, err)
	return strings.TrimSpace(string(b))
}

var codeBlock = regexp.MustCompile("(?s)```[a-z]+\n(.*?)\n```")

// codeBlocks returns the four of a section: table, configuration, insert, message.
func codeBlocks(t testing.TB, page, section string) []string {
	t.Helper()
	_, text, found := strings.Cut(page, "\n## "+section+"\n")
	require.True(t, found, "section %s", section)
	text, _, _ = strings.Cut(text, "\n## ")
	var blocks []string
	for _, m := range codeBlock.FindAllStringSubmatch(text, -1) {
		blocks = append(blocks, m[1])
	}
	require.Len(t, blocks, 4, "code blocks of section %s", section)
	return blocks
}
