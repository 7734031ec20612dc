package router

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	sarama "github.com/cloudevents/sdk-go/protocol/kafka_sarama/v2"
	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router/connect"
	"github.com/postrider/postrider/sink"
)

// events is a format of CloudEvents, changed for a test.
func events(mode string, change ...func(*Format)) Format {
	f := DefaultFormat()
	f.CloudEvents = mode
	for _, c := range change {
		c(&f)
	}
	return f
}

// eventOf reads a message with the CloudEvents SDK, as a consumer of its record does.
func eventOf(t testing.TB, m *sink.Message) *event.Event {
	t.Helper()
	headers := map[string][]byte{}
	contentType := ""
	for _, h := range m.Headers {
		require.NotContains(t, headers, h.Key, "a header twice")
		headers[h.Key] = h.Value
		if h.Key == headerContentType {
			contentType = string(h.Value)
		}
	}
	e, err := binding.ToEvent(t.Context(), sarama.NewMessage(m.Value, contentType, headers))
	require.NoError(t, err, "%s", m.Value)
	require.NoError(t, e.Validate())
	return e
}

// headerTexts are the headers as lines.
func headerTexts(m *sink.Message) []string {
	var out []string
	for _, h := range m.Headers {
		out = append(out, h.Key+": "+string(h.Value))
	}
	return out
}

func TestCloudEvents_BinaryHasAttributesAsHeaders(t *testing.T) {
	m, err := newRouter(t, events("binary"), func(c *Config) {
		c.PositionHeaders = true
		c.AdditionalPlacement = "aggregatetype:header:kind,aggregatetype:envelope:aggregate"
	}).Route(insert(outbox(), baseID, "User", "10711fa5", "com.example.UserCreated", `{"id": 1}`))
	require.NoError(t, err)
	require.Equal(t, []string{
		"id: " + baseID, "kind: User",
		"ce_specversion: 1.0", "ce_time: 2019-05-03T13:31:34.484Z", "ce_id: " + baseID,
		"ce_source: /pg/public.outbox", "ce_type: com.example.UserCreated", "ce_subject: 10711fa5",
		"ce_partitionkey: 10711fa5", "ce_aggregate: User", "content-type: application/json",
		"postrider.lsn: 16/B374D848", "postrider.index: 3",
	}, headerTexts(m))
	require.Equal(t, `{"id": 1}`, string(m.Value))
	require.Equal(t, "10711fa5", string(m.Key))
	require.Equal(t, "outbox.event.User", m.Topic)
	requireEvent(t, eventOf(t, m), `{"id": 1}`)
}

func TestCloudEvents_StructuredHasAllInTheValue(t *testing.T) {
	m, err := newRouter(t, events("structured"), func(c *Config) {
		c.PositionHeaders = true
		c.AdditionalPlacement = "aggregatetype:header:kind,aggregatetype:envelope:aggregate"
	}).Route(insert(outbox(), baseID, "User", "10711fa5", "com.example.UserCreated", `{"id": 1}`))
	require.NoError(t, err)
	require.Equal(t, []string{
		"id: " + baseID, "kind: User", "content-type: application/cloudevents+json; charset=UTF-8",
		"postrider.lsn: 16/B374D848", "postrider.index: 3",
	}, headerTexts(m))
	require.Equal(t, `{"specversion":"1.0","time":"2019-05-03T13:31:34.484Z","id":"`+baseID+`",`+
		`"source":"/pg/public.outbox","type":"com.example.UserCreated","subject":"10711fa5",`+
		`"partitionkey":"10711fa5","aggregate":"User","datacontenttype":"application/json","data":{"id": 1}}`, string(m.Value))
	requireEvent(t, eventOf(t, m), `{"id": 1}`)
}

// requireEvent compares an event with what the two tests above make.
func requireEvent(t *testing.T, e *event.Event, data string) {
	t.Helper()
	require.Equal(t, "1.0", e.SpecVersion())
	require.Equal(t, baseID, e.ID())
	require.Equal(t, "/pg/public.outbox", e.Source())
	require.Equal(t, "com.example.UserCreated", e.Type())
	require.Equal(t, "10711fa5", e.Subject())
	require.Equal(t, committed.UTC(), e.Time().UTC())
	require.Equal(t, "application/json", e.DataContentType())
	require.Equal(t, map[string]any{"partitionkey": "10711fa5", "aggregate": "User"}, e.Extensions())
	require.Equal(t, data, string(e.Data()))
}

// Payloads of each type: what they are in both modes, and what a reader gets.
func TestCloudEvents_DataIsWhatThePayloadIs(t *testing.T) {
	const text = "text/plain; charset=UTF-8"
	for name, c := range map[string]struct {
		oid         uint32
		payload     any
		format      func(*Format)
		rule        func(*Config)
		value       string // in binary mode, and the data that a reader gets
		contentType string
		member      string // of structured mode
	}{
		"jsonb":            {3802, `{"a": [1, "é"]}`, nil, nil, `{"a": [1, "é"]}`, "application/json", `"data":{"a": [1, "é"]}`},
		"json with blanks": {114, " [1,\n2] ", nil, nil, " [1,\n2] ", "application/json", "\"data\": [1,\n2] "},
		"json null":        {3802, `null`, nil, nil, `null`, "application/json", `"data":null`},
		"json text":        {3802, `"a \" b"`, nil, nil, `"a \" b"`, "application/json", `"data":"a \" b"`},
		"text":             {25, "a \"b\" \n ü 🚚", nil, nil, "a \"b\" \n ü 🚚", text, `"data":"a \"b\" \n ü \uD83D\uDE9A"`},
		"empty text":       {25, "", nil, nil, "", text, `"data":""`},
		"bytea":            {17, `\x00ff22`, nil, nil, "\x00\xff\"", "application/octet-stream", `"data_base64":"AP8i"`},
		"empty bytea":      {17, `\x`, nil, nil, "", "application/octet-stream", `"data_base64":""`},
		"bit":              {1562, "10", nil, nil, "\x02", "application/octet-stream", `"data_base64":"Ag=="`},
		"number":           {23, "5", nil, nil, "5", text, `"data":"5"`},
		"decimal":          {1700, "1.50", nil, func(c *Config) { c.DecimalHandling = "string" }, "1.50", text, `"data":"1.50"`},
		"base64 of bytea":  {17, `\x00ff`, nil, func(c *Config) { c.BinaryHandling = "base64" }, "AP8=", text, `"data":"AP8="`},
		"bytes as Java's":  {17, `\x00ff`, nil, func(c *Config) { c.JavaText = true }, "java.nio.HeapByteBuffer[pos=0 lim=2 cap=2]", text, `"data":"java.nio.HeapByteBuffer[pos=0 lim=2 cap=2]"`},
		"JSON of a text": {25, `{"a": 1}`, func(f *Format) { f.EventContentType = "application/json; v=2" }, nil,
			`{"a": 1}`, "application/json; v=2", `"data":{"a": 1}`},
		"JSON of a bytea": {17, `\x7b7d`, func(f *Format) { f.EventContentType = "text/json" }, nil, `{}`, "text/json", `"data":{}`},
		"XML":             {142, `<a b="c"/>`, func(f *Format) { f.EventContentType = "application/xml" }, nil, `<a b="c"/>`, "application/xml", `"data":"<a b=\"c\"/>"`},
		"bytes of a type": {17, `\x0a01`, func(f *Format) { f.EventContentType = "application/protobuf" }, nil, "\n\x01", "application/protobuf", `"data_base64":"CgE="`},
		"JSON that is not": {3802, `{"a": 1}`, func(f *Format) { f.EventContentType = "text/csv" }, nil,
			`{"a": 1}`, "text/csv", `"data":"{\"a\": 1}"`},
		"expanded": {3802, `{"a": 1}`, func(f *Format) { f.Value = "json" }, func(c *Config) { c.ExpandJSONPayload = true },
			`{"a":1}`, "application/json", `"data":{"a":1}`},
		"format json of text": {25, `{"a": 1}`, func(f *Format) { f.Value = "json" }, nil,
			`"{\"a\": 1}"`, "application/json", `"data":"{\"a\": 1}"`},
		"format binary":      {17, `\x00ff`, func(f *Format) { f.Value = "binary" }, nil, "\x00\xff", "application/octet-stream", `"data_base64":"AP8="`},
		"a delegate's JSON":  {25, `x`, func(f *Format) { f.Value, f.ValueDelegate = "binary", "json" }, nil, `"x"`, "application/json", `"data":"x"`},
		"format long":        {20, "5", func(f *Format) { f.Value = "long" }, nil, "\x00\x00\x00\x00\x00\x00\x00\x05", "application/octet-stream", `"data_base64":"AAAAAAAAAAU="`},
		"NULL":               {3802, nil, nil, nil, "", "", ""},
		"NULL bytes":         {17, nil, nil, nil, "", "", ""},
		"NULL, typed":        {25, nil, func(f *Format) { f.EventContentType = "application/json" }, nil, "", "", ""},
		"NULL in JSON":       {3802, nil, func(f *Format) { f.Value = "json" }, nil, "null", "application/json", `"data":null`},
		"enum of no catalog": {99999, "OPEN", nil, nil, "OPEN", text, `"data":"OPEN"`},
	} {
		for _, mode := range []string{"binary", "structured"} {
			t.Run(name+", "+mode, func(t *testing.T) {
				rel := outbox()
				rel.Columns[4].TypeOID = c.oid
				f := events(mode)
				if c.format != nil {
					c.format(&f)
				}
				m, err := newRouter(t, f, c.rule).Route(insert(rel, baseID, "User", "k", "t", c.payload))
				require.NoError(t, err)
				e := eventOf(t, m)
				require.Equal(t, c.contentType, e.DataContentType())
				require.Equal(t, c.member == "", m.Value == nil || mode == "structured" && !strings.Contains(string(m.Value), `"data`))
				if mode == "structured" {
					require.Equal(t, `{"specversion":"1.0","time":"2019-05-03T13:31:34.484Z","id":"`+baseID+
						`","source":"/pg/public.outbox","type":"t","subject":"k","partitionkey":"k"`, beforeData(m.Value))
					require.True(t, strings.HasSuffix(string(m.Value), c.member+"}"), "%s", m.Value)
				} else {
					require.Equal(t, c.value, string(m.Value))
				}
				if c.contentType == text && mode == "structured" {
					var data string
					require.NoError(t, e.DataAs(&data))
					require.Equal(t, c.value, data)
				} else {
					require.Equal(t, strings.TrimSpace(c.value), strings.TrimSpace(string(e.Data())))
				}
			})
		}
	}
}

// The JSON event format makes a JSON value of such data. The SDK for Go expects a string (its issue 797).
func TestCloudEvents_DataOfATypeThatEndsInJSON(t *testing.T) {
	rel := outbox()
	rel.Columns[4].TypeOID = 25
	f := events("structured", func(f *Format) { f.EventContentType = "application/vnd.order.V1+JSON" })
	m, err := newRouter(t, f, nil).Route(insert(rel, baseID, "User", "k", "t", `{"a": 1}`))
	require.NoError(t, err)
	require.Contains(t, string(m.Value), `"datacontenttype":"application/vnd.order.V1+JSON","data":{"a": 1}}`)
}

// beforeData is a structured event up to the type of its data.
func beforeData(value []byte) string {
	before, _, _ := strings.Cut(strings.TrimSuffix(string(value), "}"), `,"datacontenttype"`)
	return before
}

func TestCloudEvents_ColumnsBecomeAttributes(t *testing.T) {
	rel := outbox()
	rel.Columns = append(rel.Columns, replication.Column{Name: "n", TypeOID: 23}, replication.Column{Name: "big", TypeOID: 20},
		replication.Column{Name: "ok", TypeOID: 16}, replication.Column{Name: "at", TypeOID: 1184}, replication.Column{Name: "raw", TypeOID: 17},
		replication.Column{Name: "none", TypeOID: 25}, replication.Column{Name: "blank", TypeOID: 25}, replication.Column{Name: "schema", TypeOID: 25})
	ev := insert(rel, baseID, "User", "k", "t", "{}", "-7", "5000000000", "t", "2026-01-02 03:04:05+00", `\x00ff`, nil, "", "https://example.com/s?v=1")
	place := func(c *Config) {
		c.AdditionalPlacement = "n:envelope,big:envelope,ok:envelope,at:envelope,raw:envelope,none:envelope,blank:envelope,schema:envelope:dataschema"
	}
	m, err := newRouter(t, events("structured"), place).Route(ev)
	require.NoError(t, err)
	require.Contains(t, string(m.Value), `"n":-7,"big":"5000000000","ok":true,"at":"2026-01-02T03:04:05Z","raw":"AP8=","blank":"","dataschema":"https://example.com/s?v=1",`)
	require.NotContains(t, string(m.Value), "none")
	e := eventOf(t, m)
	require.Equal(t, "https://example.com/s?v=1", e.DataSchema())
	require.Equal(t, true, e.Extensions()["ok"])

	m, err = newRouter(t, events("binary"), place).Route(ev)
	require.NoError(t, err)
	require.Equal(t, []string{"ce_n: -7", "ce_big: 5000000000", "ce_ok: true", "ce_at: 2026-01-02T03:04:05Z", "ce_raw: AP8=",
		"ce_blank: ", "ce_dataschema: https://example.com/s?v=1", "content-type: application/json"}, headerTexts(m)[8:])
	require.Equal(t, "https://example.com/s?v=1", eventOf(t, m).DataSchema())
}

func TestCloudEvents_SourceIsOfTheOutboxTable(t *testing.T) {
	odd := outbox()
	odd.Name = `out"box /ü`
	m, err := newRouter(t, events("binary"), func(c *Config) { c.TopicPrefix = "a b" }).Route(base(odd))
	require.NoError(t, err)
	require.Equal(t, `/a%20b/public.out%22box%20%2F%C3%BC`, eventOf(t, m).Source())

	m, err = newRouter(t, events("binary", func(f *Format) { f.EventSource = "https://shop.example.com/${table}#${topic.prefix}" }), nil).Route(base(outbox()))
	require.NoError(t, err)
	require.Equal(t, "https://shop.example.com/public.outbox#pg", eventOf(t, m).Source())
}

func TestCloudEvents_SourceOfAPartitionIsThatOfItsTable(t *testing.T) {
	r, err := New([]Config{DefaultConfig()}, events("binary"), Options{Tables: []string{"public.events"},
		ParentTable: func(*replication.Event) (string, pglogrepl.LSN, error) { return "public.events", 0, nil }})
	require.NoError(t, err)
	m, err := r.Route(base(outbox()))
	require.NoError(t, err)
	require.Equal(t, "/postrider/public.events", eventOf(t, m).Source())
}

// With time.precision.mode = "connect" a date is an int32 whose text is no number.
func TestCloudEvents_AnExtensionWithADateIsAText(t *testing.T) {
	rel := outbox()
	rel.Columns = append(rel.Columns, replication.Column{Name: "day", TypeOID: 1082, TypeMod: -1},
		replication.Column{Name: "n", TypeOID: 23, TypeMod: -1})
	m, err := newRouter(t, events("structured"), func(c *Config) {
		c.AdditionalPlacement, c.TimePrecision = "day:envelope,n:envelope", "connect"
	}).Route(insert(rel, baseID, "User", "k", "T", `{}`, "2024-05-06", "7"))
	require.NoError(t, err)
	require.True(t, json.Valid(m.Value), string(m.Value))
	require.Contains(t, string(m.Value), `"day":"2024-05-06`)
	require.Contains(t, string(m.Value), `"n":7`)
}

func TestCloudEvents_OfLogicalMessages(t *testing.T) {
	for payload, want := range map[string]string{
		`{"n": 1, "text": "é"}`: `application/json {"n": 1, "text": "é"}`,
		`"text"`:                `text/plain; charset=UTF-8 text`,
		`[1]`:                   `application/json [1]`,
		`null`:                  ` `,
	} {
		for _, mode := range []string{"binary", "structured"} {
			r, err := New([]Config{DefaultConfig()}, events(mode), Options{MessagePrefixes: []string{"my prefix"}})
			require.NoError(t, err)
			ev := &replication.Event{Kind: replication.Message, Prefix: "my prefix", Time: committed,
				Content: []byte(`{"id": 7, "aggregate_type": "order", "aggregate_id": 17, "event_type": "e", "payload": ` + payload + `}`)}
			m, err := r.Route(ev)
			if payload == "null" {
				require.ErrorContains(t, err, "payload") // as without CloudEvents: it is no member
				continue
			}
			require.NoError(t, err)
			e := eventOf(t, m)
			require.Equal(t, "/postrider/message:my%20prefix", e.Source())
			require.Equal(t, "7", e.ID())
			require.Equal(t, "17", e.Subject())
			data := string(e.Data())
			if strings.HasPrefix(want, "text") {
				require.NoError(t, e.DataAs(&data))
			}
			require.Equal(t, want, e.DataContentType()+" "+data)
		}
	}
}

func TestCloudEvents_KeepTheTraceOfTheRow(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	rel := outbox()
	rel.Columns = append(rel.Columns, replication.Column{Name: "tracingspancontext", TypeOID: 25}, replication.Column{Name: "trace", TypeOID: 25})
	for name, c := range map[string]struct {
		rule    func(*Config)
		context any
		trace   any
		want    any // ce_traceparent
		state   any
	}{
		"of tracing_headers":  {func(c *Config) { c.TracingHeaders = true }, "traceparent=" + parent + "\ntracestate=a=b", nil, parent, "a=b"},
		"no context":          {func(c *Config) { c.TracingHeaders = true }, nil, nil, nil, nil},
		"no span context":     {func(c *Config) { c.TracingHeaders = true }, "traceparent=x", nil, nil, nil},
		"of a placed column":  {func(c *Config) { c.AdditionalPlacement = "trace:header:traceparent" }, nil, parent, parent, nil},
		"no trace in it":      {func(c *Config) { c.AdditionalPlacement = "trace:header:traceparent" }, nil, "x\ny", nil, nil},
		"NULL in it":          {func(c *Config) { c.AdditionalPlacement = "trace:header:traceparent" }, nil, nil, nil, nil},
		"of a headers column": {func(c *Config) { c.HeadersColumn = "trace" }, nil, `{"tracestate": "a=b", "traceparent": "` + parent + `"}`, parent, "a=b"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, mode := range []string{"binary", "structured"} {
				r := newRouter(t, events(mode), c.rule)
				ev := insert(rel, baseID, "User", "k", "t", "{}", c.context, c.trace)
				m, err := r.Route(ev)
				require.NoError(t, err)
				extensions := eventOf(t, m).Extensions()
				require.Equal(t, c.want, extensions["traceparent"])
				require.Equal(t, c.state, extensions["tracestate"])
				again, err := r.Route(ev)
				require.NoError(t, err)
				require.Equal(t, string(m.Value), string(again.Value), "a claim is redriven by the digest of the value")
			}
		})
	}
}

func TestCloudEvents_RefuseRowsThatAreNone(t *testing.T) {
	for name, c := range map[string]struct {
		row    []any
		format func(*Format)
		want   string
	}{
		"NULL id":            {[]any{nil, "User", "k", "t", "{}"}, nil, "column id, which is the id of the CloudEvent, is NULL"},
		"empty id":           {[]any{"", "User", "k", "t", "{}"}, nil, "column id, which is the id of the CloudEvent, is empty"},
		"NULL type":          {[]any{"1", "User", "k", nil, "{}"}, nil, "column type, which is the type of the CloudEvent, is NULL"},
		"empty type":         {[]any{"1", "User", "k", "", "{}"}, nil, "column type, which is the type of the CloudEvent, is empty"},
		"line end in a type": {[]any{"1", "User", "k", "a\nb", "{}"}, nil, "type of the CloudEvent, has a control character"},
		"C1 in a subject":    {[]any{"1", "User", "\u0085", "t", "{}"}, nil, "subject of the CloudEvent, has a control character"},
		"no character":       {[]any{"1", "User", "\uffff", "t", "{}"}, nil, "subject of the CloudEvent, has a code point that is no character"},
		"no UTF-8":           {[]any{"1", "User", "\xff", "t", "{}"}, nil, "subject of the CloudEvent, is no valid UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, mode := range []string{"binary", "structured"} {
				_, err := newRouter(t, events(mode), nil).Route(insert(outbox(), c.row...))
				var row *RowError
				require.ErrorAs(t, err, &row)
				require.Equal(t, "invalid_cloudevent", row.Reason)
				require.ErrorContains(t, err, c.want)
				require.NotEmpty(t, row.Hint)
			}
		})
	}
	json := func(f *Format) { f.EventContentType = "application/json" }
	for name, c := range map[string]struct {
		oid     uint32
		payload string
		format  func(*Format)
		want    string
	}{
		"no JSON":           {25, `{"a"`, json, "column payload, which is the data of the CloudEvent, is no JSON, but its content type is application/json"},
		"empty":             {25, ``, json, "is no JSON"},
		"two values":        {25, `{} {}`, json, "is no JSON"},
		"bytes":             {17, `\xff`, json, "is no valid UTF-8"},
		"text in SQL_ASCII": {25, "\xff", func(*Format) {}, "is no valid UTF-8"},
		"JSON in SQL_ASCII": {3802, "\"\xff\"", func(*Format) {}, "is no valid UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			rel := outbox()
			rel.Columns[4].TypeOID = c.oid
			ev := insert(rel, "1", "User", "k", "t", c.payload)
			_, err := newRouter(t, events("structured", c.format), nil).Route(ev)
			require.ErrorContains(t, err, c.want)
			_, err = newRouter(t, events("binary", c.format), nil).Route(ev)
			require.NoError(t, err, "binary mode passes on what it is")
		})
	}
}

// A type of another schema can have the name.
func TestCloudEvents_DoNotTrustATypeThatIsNamedJSON(t *testing.T) {
	rel := outbox()
	rel.Columns[4].TypeOID = 70000
	r, err := New([]Config{DefaultConfig()}, events("structured"), Options{Describe: func(uint32, uint32) (*Table, error) {
		return &Table{Columns: []tableColumn{{Name: "payload", Type: connect.Type{OID: 70000, Name: "json", Kind: "c"}}}}, nil
	}})
	require.NoError(t, err)
	_, err = r.Route(insert(rel, "1", "User", "k", "t", `(1,"},{")`))
	require.ErrorContains(t, err, "is no JSON")
	_, err = r.Route(insert(rel, "1", "User", "k", "t", `{}`))
	require.NoError(t, err)
}

func TestCloudEvents_LeaveOutASubjectThatIsNoText(t *testing.T) {
	for _, key := range []any{nil, ""} {
		m, err := newRouter(t, events("structured"), func(c *Config) { c.NullKey = "publish" }).Route(insert(outbox(), "1", "User", key, "t", "{}"))
		require.NoError(t, err)
		require.NotContains(t, string(m.Value), "subject")
		require.NotContains(t, string(m.Value), "partitionkey")
		require.Equal(t, key == nil, m.Key == nil)
		eventOf(t, m)
	}
}

func TestCloudEvents_TimeIsThatOfTheRecord(t *testing.T) {
	rel := outbox()
	rel.Columns = append(rel.Columns, replication.Column{Name: "at", TypeOID: 1184})
	at := func(c *Config) { c.FieldTimestamp = "at" }
	route := func(text any) (*sink.Message, error) {
		return newRouter(t, events("binary"), at).Route(insert(rel, "1", "User", "k", "t", "{}", text))
	}
	m, err := route("2026-01-31 23:59:59.9999+00")
	require.NoError(t, err)
	require.Equal(t, m.Timestamp.UTC(), eventOf(t, m).Time())
	require.Equal(t, "2026-01-31T23:59:59.999Z", string(m.Headers[2].Value))

	m, err = route("1969-12-31 23:59:59.999+00") // -1: the producer's clock
	require.NoError(t, err)
	require.True(t, eventOf(t, m).Time().IsZero())

	_, err = route("10000-01-01 00:00:00+00")
	require.ErrorContains(t, err, "the year 10000 cannot be in the time of a CloudEvent")
	var row *RowError
	require.True(t, errors.As(err, &row))
	require.Equal(t, "invalid_timestamp", row.Reason)
}

func TestCloudEvents_NeedTheColumnOfTheType(t *testing.T) {
	rel := outbox()
	rel.Columns[3].Name = "kind"
	_, err := newRouter(t, events("binary"), nil).Route(base(rel))
	require.ErrorContains(t, err, `public.outbox cannot be routed: column "event_type" or "type" does not exist (router.table.field.event.type)`)
	var bad *ShapeError
	require.ErrorAs(t, err, &bad)
	require.Equal(t, "set router.table.field.event.type to the column that is meant, which every CloudEvent needs (format.cloudevents)", bad.Hint)
	require.NoError(t, newRouter(t, DefaultFormat(), nil).Check(rel))
	for _, column := range []string{"kind", " kind "} { // trimmed as every option of Kafka Connect
		require.NoError(t, newRouter(t, events("binary"), func(c *Config) { c.FieldType = column }).Check(rel))
	}

	rel.Columns[3] = replication.Column{Name: "type", TypeOID: 17}
	require.ErrorContains(t, newRouter(t, events("binary"), nil).Check(rel), `column "type" is of type bytea, which is no text`)
}

func TestCloudEvents_RefuseHeadersOfTheirOwnFromARow(t *testing.T) {
	rel := outbox()
	rel.Columns = append(rel.Columns, replication.Column{Name: "headers", TypeOID: 3802})
	with := func(c *Config) { c.HeadersColumn = "headers" }
	for _, name := range []string{"ce_id", "CE_Source", "content-type", "Content-Type"} {
		ev := insert(rel, "1", "User", "k", "t", "{}", `{"`+name+`": "x"}`)
		for _, mode := range []string{"binary", "structured"} {
			_, err := newRouter(t, events(mode), with).Route(ev)
			require.ErrorContains(t, err, "has a name that is CloudEvents' own")
		}
		_, err := newRouter(t, DefaultFormat(), with).Route(ev)
		require.NoError(t, err, "without CloudEvents")
	}
}

func TestFormat_NamesWhatCloudEventsCannotBeWith(t *testing.T) {
	for name, c := range map[string]struct {
		mode   string
		format func(*Format)
		rule   func(*Config)
		want   string
	}{
		"headers":           {"binary", func(f *Format) { f.Headers = "json" }, nil, `format.headers = "json": must be "simple" or "string"`},
		"encoding":          {"binary", func(f *Format) { f.ValueEncoding = "ISO-8859-1" }, nil, `format.value.encoding = "ISO-8859-1": must be UTF-8`},
		"no media type":     {"binary", func(f *Format) { f.EventContentType = "json" }, nil, `format.cloudevents.datacontenttype = "json" is no media type`},
		"a line end in it":  {"binary", func(f *Format) { f.EventContentType = "text/plain\n" }, nil, `is no media type`},
		"an event's type":   {"binary", func(f *Format) { f.EventContentType = "application/CloudEvents+json" }, nil, `is the type of an event`},
		"a type of JSON":    {"binary", func(f *Format) { f.EventContentType, f.Value = "text/xml", "json" }, nil, `has no place with format.value = "json"`},
		"no source":         {"binary", func(f *Format) { f.EventSource = "" }, nil, `format.cloudevents.source = "" is empty; must be a URI reference`},
		"unknown in source": {"binary", func(f *Format) { f.EventSource = "/${tabel}" }, nil, `has a ${...} that is neither`},
		"blank in source":   {"binary", func(f *Format) { f.EventSource = "/a b" }, nil, `is no URI reference`},
		"no URI":            {"binary", func(f *Format) { f.EventSource = "http://[" }, nil, `is no URI reference`},
		"tombstones":        {"structured", nil, func(c *Config) { c.TombstoneOnEmptyPayload = true }, `router.route.tombstone.on.empty.payload = true: a structured CloudEvent is no null value`},
		"expansion":         {"binary", nil, func(c *Config) { c.ExpandJSONPayload = true }, `router.table.expand.json.payload = true writes no JSON with format.value = "string"`},
		"version":           {"binary", nil, func(c *Config) { c.FieldSchemaVersion = "v" }, `router.table.field.event.schema.version = "v": a CloudEvent has no version of a schema; leave it out, and place the column as an attribute, as "v:envelope:schemaversion"`},
		"header_id":         {"binary", nil, func(c *Config) { c.HeaderID = "ce_id" }, `router.header_id = "ce_id": with format.cloudevents = "binary" the headers ce_*`},
		"a header of ours":  {"structured", nil, func(c *Config) { c.AdditionalPlacement = "event_type:header:Content-Type" }, `the header Content-Type would be that of the CloudEvent; place the column in the envelope to make it an attribute, as "event_type:envelope:eventtype"`},
		"no attribute":      {"binary", nil, func(c *Config) { c.AdditionalPlacement = "event_type:envelope" }, `"event_type" has other characters than lower-case letters and digits; give it an alias, as "event_type:envelope:eventtype"`},
		"one of ours":       {"binary", nil, func(c *Config) { c.AdditionalPlacement = "x:envelope:type" }, `"type" is one that the relay sets; give it an alias, as "x:envelope:x"`},
		"data":              {"structured", nil, func(c *Config) { c.AdditionalPlacement = "data:envelope" }, `"data" is one that the relay sets; give it an alias, as "data:envelope:rowdata"`},
		"data_base64":       {"structured", nil, func(c *Config) { c.AdditionalPlacement = "data_base64:envelope" }, `"data_base64" has other characters`},
	} {
		t.Run(name, func(t *testing.T) {
			f, rule := events(c.mode), DefaultConfig()
			if c.format != nil {
				c.format(&f)
			}
			if c.rule != nil {
				c.rule(&rule)
			}
			require.ErrorContains(t, f.Fits([]Config{rule}), c.want)
			_, err := New([]Config{rule}, f, Options{})
			require.ErrorContains(t, err, c.want)
			if strings.HasPrefix(c.want, "router.") {
				require.ErrorContains(t, f.Fits([]Config{DefaultConfig(), rule}), strings.Replace(c.want, "router.", "router[2].", 1))
			}
			f.CloudEvents = "none"
			require.NoError(t, f.Fits([]Config{rule}))
		})
	}
	f := events("xml")
	require.ErrorContains(t, f.Validate(), `format.cloudevents = "xml": must be one of none, binary, structured`)
}

// A snapshot finds what it has published by the record, and makes the row's message again, at another time.
func TestWithoutTime_IsTheSameAtAnyTime(t *testing.T) {
	r := newRouter(t, events("structured"), nil)
	ev := base(outbox())
	one, err := r.Route(ev)
	require.NoError(t, err)
	ev.Time = ev.Time.Add(time.Hour)
	other, err := r.Route(ev)
	require.NoError(t, err)
	require.NotEqual(t, string(one.Value), string(other.Value))
	require.Equal(t, string(WithoutTime(one.Value)), string(WithoutTime(other.Value)))
	require.Contains(t, string(WithoutTime(one.Value)), `"data":{}`)
	for _, value := range []string{"", "{}", structuredTime, structuredTime + `2019"`, structuredStart + `,"id":"1"}`} {
		require.Equal(t, value, string(WithoutTime([]byte(value))))
	}
	require.Nil(t, WithoutTime(nil))
}

func TestAttributeProblem_KnowsTheCharactersOfCloudEvents(t *testing.T) {
	for text, ok := range map[string]bool{
		"": true, "aé🚚~": true, "\u00a0": true, "\ufdcf": true, "\ufdf0": true, "\ufffd": true, "\U0010fffd": true,
		"\x00": false, "\x1f": false, "\x7f": false, "\u0080": false, "\u009f": false, "\ufdd0": false, "\ufdef": false, "\ufffe": false, "\U0001ffff": false,
		"\xc3": false, "\xed\xa0\x80": false,
	} {
		require.Equal(t, ok, attributeProblem([]byte(text)) == "", "%q", text)
	}
}

func TestCloudEvents_AllocateNothingInBinaryMode(t *testing.T) {
	for mode, allowed := range map[string]float64{"binary": 0, "structured": 1} {
		r := newRouter(t, events(mode), manyHeaders)
		ev, m := base(outbox()), new(sink.Message)
		route := func() {
			ev.LSN++
			ev.Time = ev.Time.Add(time.Millisecond)
			ours, err := r.RouteTo(m, ev)
			require.NoError(t, err)
			require.True(t, ours)
		}
		route()
		require.LessOrEqual(t, testing.AllocsPerRun(10_000, route), allowed, mode)
	}
}

func BenchmarkRoute_CloudEventsBinary(b *testing.B)     { benchmark(b, events("binary"), nil) }
func BenchmarkRoute_CloudEventsStructured(b *testing.B) { benchmark(b, events("structured"), nil) }

// FuzzCloudEvents gives the mapping a row of any content. It is an event that the SDK reads, or a *RowError.
func FuzzCloudEvents(f *testing.F) {
	f.Add("1", "k", "t", "{}", "x", uint32(0), false)
	f.Add("\x7f", "é", "\u0085", "[1,", "\"\\", uint32(1), true)
	f.Add("1", "", "t", "\xff", "", uint32(2), true)
	types := []uint32{25, 17, 23, 3802}
	f.Fuzz(func(t *testing.T, id, key, kind, payload, extra string, oid uint32, declared bool) {
		for _, mode := range []string{"binary", "structured"} {
			format := events(mode)
			if declared {
				format.EventContentType = "application/json"
			}
			r := newRouter(t, format, func(c *Config) { c.AdditionalPlacement, c.HeadersColumn = "extra:envelope", "extra" })
			rel := outbox()
			rel.Columns[0].TypeOID, rel.Columns[4].TypeOID = 25, types[int(oid%math.MaxInt32)%len(types)]
			rel.Columns = append(rel.Columns, replication.Column{Name: "extra", TypeOID: 25})
			if rel.Columns[4].TypeOID == 17 {
				payload = `\x` + strings.Repeat("0f", len(payload))
			}
			if rel.Columns[4].TypeOID == 3802 { // the server sends valid JSON alone
				payload = string(connect.AppendJSONString(nil, []byte(base64.StdEncoding.EncodeToString([]byte(payload)))))
			}
			m, err := r.Route(insert(rel, id, "User", key, kind, payload, extra))
			if row := (*RowError)(nil); err != nil {
				require.ErrorAs(t, err, &row)
				continue
			}
			e := eventOf(t, m)
			require.Equal(t, id, e.ID())
			require.Equal(t, kind, e.Type())
			require.Equal(t, key, e.Subject())
			require.Equal(t, "/pg/public.outbox", e.Source())
		}
	})
}
