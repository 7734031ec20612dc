package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	sarama "github.com/cloudevents/sdk-go/protocol/kafka_sarama/v2"
	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/test/parts"
)

// cloudEventShapes are the sections of docs/CLOUDEVENTS.md, with rows beyond those that stand there.
var cloudEventShapes = []shape{
	{
		section: "Binary mode", name: "binary", topics: []string{"outbox.event.booking"},
		rows: []row{{
			`INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, created_at)
				VALUES ('00000000-0000-0000-0000-000000000101', 'booking', '🚚 "18"', 'deleted', '2026-01-15 09:30+00')`,
			`{"topic":"outbox.event.booking","key":"🚚 \"18\"","value":null,"headers":[{"key":"id","value":"00000000-0000-0000-0000-000000000101"},
			{"key":"ce_specversion","value":"1.0"},{"key":"ce_time","value":"2026-01-15T09:30:00.000Z"},{"key":"ce_id","value":"00000000-0000-0000-0000-000000000101"},
			{"key":"ce_source","value":"/shop/public.outbox"},{"key":"ce_type","value":"deleted"},{"key":"ce_subject","value":"🚚 \"18\""},
			{"key":"ce_partitionkey","value":"🚚 \"18\""}],"timestamp":"2026-01-15T09:30:00.000Z"}`,
		}},
	},
	{
		section: "Structured mode", name: "structured", topics: []string{"outbox.event.parcel"},
		rows: []row{{
			`INSERT INTO outbox (aggregate_type, aggregate_id, event_type, attempt, created_at) VALUES ('parcel', 'o-"18"', 'deleted', 2, '2026-01-15 09:30+00')`,
			`{"topic":"outbox.event.parcel","key":"o-\"18\"","value":"{\"specversion\":\"1.0\",\"time\":\"2026-01-15T09:30:00.000Z\",\"id\":\"2\",` +
				`\"source\":\"https://shop.example.com/public.outbox\",\"type\":\"deleted\",\"subject\":\"o-\\\"18\\\"\",\"partitionkey\":\"o-\\\"18\\\"\",\"attempt\":2}",
			"headers":[{"key":"id","value":"2"},{"key":"content-type","value":"application/cloudevents+json; charset=UTF-8"}],"timestamp":"2026-01-15T09:30:00.000Z"}`,
		}},
	},
}

func TestCloudEvents_AreThoseOfThePage(t *testing.T) {
	page := readFile(t, "CLOUDEVENTS.md")
	for _, s := range cloudEventShapes {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			blocks := codeBlocks(t, page, s.section)
			relayShape(t, s, blocks[0], blocks[1], append([]row{{blocks[2], blocks[3]}}, s.rows...))
		})
	}
}

// payloads are a table for each type of payload, one of them partitioned.
const payloads = `
CREATE TABLE of_json (id text PRIMARY KEY, aggregate_type text NOT NULL, aggregate_id text, event_type text, payload jsonb);
CREATE TABLE of_text (id text PRIMARY KEY, aggregate_type text NOT NULL, aggregate_id text, event_type text, payload text, tracingspancontext text) PARTITION BY LIST (id);
CREATE TABLE of_text_1 PARTITION OF of_text DEFAULT;
CREATE TABLE of_bytes (id text PRIMARY KEY, aggregate_type text NOT NULL, aggregate_id text, event_type text, payload bytea);
CREATE PUBLICATION postrider FOR TABLE of_json, of_text, of_bytes WITH (publish = 'insert');`

// trace is the context of a span of an application.
const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestCloudEvents_AreReadByTheSDK(t *testing.T) {
	for _, mode := range []string{"binary", "structured"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			readBySDK(t, mode)
		})
	}
}

// readBySDK relays rows of each type of payload, a logical message, and rows that are no events, and reads the records.
func readBySDK(t *testing.T, mode string) {
	topic, letters := parts.Unique("events"), parts.Unique("letters")
	s := newShop(t, parts.AnyVersion, payloads, `
[replication]
tables = ["public.of_json", "public.of_text", "public.of_bytes"]
messages = ["events"]
[router]
route.topic.regex = ".*"
route.topic.replacement = "`+topic+`"
position_headers = true
tracing_headers = true
[format]
cloudevents = "`+mode+`"
[deadletter]
topic = "`+letters+`"
not_routable = "dead_letter"
too_large = "dead_letter"
[sink.kafka]
max_message_bytes = "32KiB"
`)
	s.createTopics(t, topic)
	s.CreateTopic(t, letters, 1, nil)
	r := s.run(t)
	s.do(t,
		`INSERT INTO of_json VALUES ('j1', 'order', 'k', 'com.example.json', '{"a": [1, "é"]}'), ('j2', 'order', 'k', 'com.example.json', NULL), ('j3', 'order', 'k', 'com.example.json', 'null')`,
		`INSERT INTO of_text VALUES ('t1', 'order', 'k', 'com.example.text', E'a "b"\n🚚'), ('t2', 'order', 'k', 'com.example.text', NULL), ('t3', 'order', 'k', 'com.example.text', '')`,
		`INSERT INTO of_bytes VALUES ('b1', 'order', 'k', 'com.example.bytes', '\x00ff22'), ('b2', 'order', 'k', 'com.example.bytes', NULL)`,
		`INSERT INTO of_json VALUES ('no type', 'order', 'other', '', '{}'), (E'line\nend', 'order', 'other', 'x', '{}')`,
		`INSERT INTO of_text VALUES ('large', 'order', 'large', 'com.example.large', (SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 4000)), 'traceparent=`+trace+`')`,
		`SELECT pg_logical_emit_message(true, 'events', '{"id": "m1", "aggregate_type": "order", "aggregate_id": "k", "event_type": "com.example.message", "payload": {"n": 1}}')`,
	)
	s.awaitConfirmed(t, r)
	r.Stop(t)

	const text = "text/plain; charset=UTF-8"
	want := []struct{ id, source, contentType, data string }{
		{"j1", "/postrider/public.of_json", "application/json", `{"a": [1, "é"]}`},
		{"j2", "/postrider/public.of_json", "", ""},
		{"j3", "/postrider/public.of_json", "application/json", "null"},
		{"t1", "/postrider/public.of_text", text, "a \"b\"\n🚚"},
		{"t2", "/postrider/public.of_text", "", ""},
		{"t3", "/postrider/public.of_text", text, ""},
		{"b1", "/postrider/public.of_bytes", "application/octet-stream", "\x00\xff\""},
		{"b2", "/postrider/public.of_bytes", "", ""},
		{"m1", "/postrider/message:events", "application/json", `{"n": 1}`},
	}
	records := byKey(s.All(t, topic), "k")
	require.Len(t, records, len(want))
	for i, w := range want {
		e := readEvent(t, records[i])
		require.Equal(t, w.id, e.ID())
		require.Equal(t, w.source, e.Source())
		require.True(t, strings.HasPrefix(e.Type(), "com.example."), e.Type())
		require.Equal(t, "k", e.Subject())
		require.Equal(t, map[string]any{"partitionkey": "k"}, e.Extensions())
		require.Equal(t, records[i].Timestamp.UTC(), e.Time().UTC())
		require.Equal(t, w.contentType, e.DataContentType())
		require.Equal(t, w.data, string(e.Data()))
		require.Equal(t, w.contentType == "" && mode == "binary", records[i].Value == nil, "a null value")
	}
	refused := s.All(t, letters)
	require.Len(t, refused, 3)
	for _, letter := range refused[:2] {
		require.Contains(t, headersOf(letter), "invalid_cloudevent")
	}
	s.requireRecovered(t, 11, len(refused))
	s.requireRedriven(t, topic)
}

// requireRecovered loses the slot: a recovery finds the rows in their topic, though it makes their events at another time.
func (s *shop) requireRecovered(t *testing.T, rows, dead int) {
	t.Helper()
	s.do(t, "SELECT pg_drop_replication_slot('"+s.slot+"')")
	p := start(t, s.environment(), "recover", "--publish", "--yes", "--json", "--config", s.file)
	require.Equal(t, 0, p.Wait(t), p.Log.String())
	var found struct {
		Published int64
		Tables    []struct {
			Rows, Delivered int
			DeadLetters     int `json:"dead_letters"`
		}
	}
	require.NoError(t, json.Unmarshal(p.Stdout.Bytes(), &found), p.Stdout.String())
	require.Zero(t, found.Published)
	var of, delivered, letters int
	for _, table := range found.Tables {
		of, delivered, letters = of+table.Rows, delivered+table.Delivered, letters+table.DeadLetters
	}
	require.Equal(t, []int{rows, rows - dead, dead}, []int{of, delivered, letters}, p.Stdout.String())
}

// requireRedriven redrives a row that was too large, whose event has to be the one that was refused, by its digest; and a row that was
// no event, with a column for the type that all rows have.
func (s *shop) requireRedriven(t *testing.T, topic string) {
	t.Helper()
	p := start(t, s.environment(), "deadletter", "redrive", "--cause", "too_large", "--yes", "--config", s.file, "--set", "sink.kafka.max_message_bytes=1MiB")
	require.Equal(t, 0, p.Wait(t), p.Log.String())
	large := byKey(s.All(t, topic), "large")
	require.Len(t, large, 1)
	require.Equal(t, trace, readEvent(t, large[0]).Extensions()["traceparent"])

	p = start(t, s.environment(), "deadletter", "redrive", "--all", "--yes", "--config", s.file, "--set", "router.table.field.event.type=aggregate_type")
	require.NotEqual(t, 0, p.Wait(t), "the id with a line end is still none")
	redriven := byKey(s.All(t, topic), "other")
	require.Len(t, redriven, 1)
	e := readEvent(t, redriven[0])
	require.Equal(t, "no type", e.ID())
	require.Equal(t, "order", e.Type())
	require.Contains(t, headersOf(redriven[0]), "postrider.redriven: ")
}

// readEvent reads a record with the CloudEvents SDK.
func readEvent(t *testing.T, r *kgo.Record) *event.Event {
	t.Helper()
	headers := map[string][]byte{}
	for _, h := range r.Headers {
		headers[h.Key] = h.Value
	}
	e, err := binding.ToEvent(t.Context(), sarama.NewMessage(r.Value, string(headers["content-type"]), headers))
	require.NoError(t, err, "%s", r.Value)
	require.NoError(t, e.Validate())
	return e
}

func headersOf(r *kgo.Record) string {
	var out strings.Builder
	for _, h := range r.Headers {
		out.WriteString(h.Key + ": " + string(h.Value) + "\n")
	}
	return out.String()
}
