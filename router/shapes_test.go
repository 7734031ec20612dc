package router

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router/connect"
	"github.com/postrider/postrider/sink"
)

func table(columns ...replication.Column) *replication.Relation {
	return &replication.Relation{OID: 16500, Namespace: "public", Name: "outbox", Columns: columns}
}

func col(name string, oid uint32) replication.Column {
	return replication.Column{Name: name, TypeOID: oid, TypeMod: -1}
}

const (
	oidUUID, oidText, oidVarchar, oidJSONB, oidInt4, oidInt8, oidTimestampTZ = 2950, 25, 1043, 3802, 23, 20, 1184
)

func headerMap(m *sink.Message) map[string]string {
	out := map[string]string{}
	for _, h := range m.Headers {
		out[h.Key] = string(h.Value)
	}
	return out
}

// The outbox tables that people have, each relayed as it is.
func TestRoute_TakesOutboxTablesAsTheyAre(t *testing.T) {
	const enumOID = 90001
	for name, c := range map[string]struct {
		change            func(*Config)
		event             *replication.Event
		topic, key, value string
		headers           map[string]string
		describe          func(uint32, uint32) (*Table, error)
	}{
		"snake case with a default id and bookkeeping columns": {
			event: insert(table(col("id", oidUUID), col("aggregate_type", oidVarchar), col("aggregate_id", oidVarchar), col("event_type", oidVarchar),
				col("payload", oidJSONB), col("attempts", oidInt4), col("created_at", oidTimestampTZ), col("processed_at", oidTimestampTZ)),
				baseID, "order", "42", "ORDER_CREATED", `{"n": 1}`, "0", "2024-05-06 07:08:09.1+00", nil),
			change: func(c *Config) {
				c.AdditionalPlacement = "event_type:header:eventType"
				c.FieldTimestamp = "created_at"
			},
			topic: "outbox.event.order", key: "42", value: `{"n": 1}`, headers: map[string]string{"id": baseID, "eventType": "ORDER_CREATED"},
		},
		"topics from the event type": {
			event: insert(table(col("id", oidUUID), col("aggregate_type", oidText), col("aggregate_id", oidText), col("event_type", oidText),
				col("payload", oidJSONB), col("headers", oidJSONB), col("status", oidText), col("retry_count", oidInt4), col("next_retry_at", oidTimestampTZ)),
				baseID, "order", "42", "ORDER_CREATED", `{}`, `{"trace": "t-1", "n": 5, "gone": null}`, "NEW", "0", nil),
			change: func(c *Config) {
				c.RouteByField = "event_type"
				c.TopicCase = "kebab"
				c.TopicReplacement = "${routedByValue}"
				c.HeadersColumn = "headers"
			},
			topic: "order-created", key: "42", value: `{}`, headers: map[string]string{"id": baseID, "trace": "t-1", "n": "5", "gone": ""},
		},
		"bigint identity, id under another header": {
			event: insert(table(col("id", oidInt8), col("aggregate_type", oidText), col("aggregate_id", oidText), col("event_type", oidText),
				col("payload", oidJSONB), col("headers", oidJSONB), col("created_at", oidTimestampTZ)),
				"7", "order", "42", "created", `{}`, nil, "2024-05-06 07:08:09+00"),
			change: func(c *Config) { c.HeaderID = "event-id"; c.HeadersColumn = "headers" },
			topic:  "outbox.event.order", key: "42", value: `{}`, headers: map[string]string{"event-id": "7"},
		},
		"a task table routed by an enum": {
			event: insert(table(col("id", oidUUID), col("task_type", enumOID), col("state", enumOID), col("payload", oidJSONB), col("retry_count", oidInt4)),
				baseID, "send_mail", "pending", `{}`, "0"),
			change: func(c *Config) {
				c.RouteByField = "task_type"
				c.FieldKey = "id"
				c.TopicReplacement = "tasks.${routedByValue}"
			},
			describe: func(uint32, uint32) (*Table, error) {
				return &Table{Columns: []tableColumn{{Name: "task_type", NotNull: true,
					Type: connect.Type{OID: enumOID, Name: "task_type", Kind: "e", Mod: -1, Labels: []string{"send_mail", "bill"}}}}}, nil
			},
			topic: "tasks.send_mail", key: baseID, value: `{}`, headers: map[string]string{"id": baseID},
		},
		"quoted camel case": {
			event: insert(table(col("id", oidUUID), col("aggregateType", oidText), col("aggregateId", oidText), col("eventType", oidText),
				col("payload", oidJSONB), col("createdAt", oidTimestampTZ), col("status", oidText)),
				baseID, "Order", "42", "OrderCreated", `{}`, "2024-05-06 07:08:09+00", "PENDING"),
			change: func(c *Config) {
				c.RouteByField, c.FieldKey = "aggregateType", "aggregateId"
				c.AdditionalPlacement = "eventType:header"
			},
			topic: "outbox.event.Order", key: "42", value: `{}`, headers: map[string]string{"id": baseID, "eventType": "OrderCreated"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := DefaultConfig()
			if c.change != nil {
				c.change(&cfg)
			}
			r, err := New([]Config{cfg}, DefaultFormat(), Options{Describe: c.describe})
			require.NoError(t, err)
			require.NoError(t, r.Check(c.event.Relation))
			m, err := r.Route(c.event)
			require.NoError(t, err)
			require.Equal(t, c.topic, m.Topic)
			require.Equal(t, c.key, string(m.Key))
			require.Equal(t, c.value, string(m.Value))
			require.Equal(t, c.headers, headerMap(m))
		})
	}
}

func TestCheck_AsksForAChoiceOrNamesWhatIsThere(t *testing.T) {
	for name, c := range map[string]struct {
		rel       *replication.Relation
		change    func(*Config)
		key, want string
		hint      string
	}{
		"both candidates": {
			rel: table(col("id", oidUUID), col("aggregate_type", oidText), col("aggregatetype", oidText), col("aggregate_id", oidText), col("payload", oidJSONB)),
			key: "route.by.field", want: `"aggregate_type" or "aggregatetype" is ambiguous: both exist`,
		},
		"no candidate": {
			rel: table(col("id", oidUUID), col("aggregate_type", oidText), col("payload", oidJSONB)),
			key: "table.field.event.key", want: `it has the columns id, aggregate_type, payload`, hint: "set router.table.field.event.key to the column that is meant",
		},
		"missing payload": {
			rel: table(col("id", oidUUID), col("aggregate_type", oidText), col("aggregate_id", oidText), col("body", oidJSONB)),
			key: "table.field.event.payload", want: `column "payload" does not exist`,
		},
		"number to route by": {
			rel: table(col("id", oidUUID), col("aggregate_type", oidInt4), col("aggregate_id", oidText), col("payload", oidJSONB)),
			key: "route.by.field", want: "is of type int4, which is no text",
		},
		"missing placement": {
			rel: outbox(), change: func(c *Config) { c.AdditionalPlacement = "nope:header" },
			key: "table.fields.additional.placement", want: `column "nope" does not exist`,
		},
		"text as partition": {
			rel: outbox(), change: func(c *Config) { c.AdditionalPlacement = "type:partition" },
			key: "table.fields.additional.placement", want: "which is no partition",
		},
		"text as time": {
			rel: outbox(), change: func(c *Config) { c.FieldTimestamp = "type" },
			key: "table.field.event.timestamp", want: "is no time of a record", hint: "choose a column of type timestamp, timestamptz, date or bigint (milliseconds)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRouter(t, DefaultFormat(), c.change)
			err := r.Check(c.rel)
			var shape *ShapeError
			require.ErrorAs(t, err, &shape)
			require.Equal(t, c.key, shape.Key)
			require.ErrorContains(t, err, c.want)
			require.NotEmpty(t, shape.Hint)
			require.Contains(t, shape.Hint, c.hint)
			_, err = r.Route(insert(c.rel, "x"))
			require.ErrorAs(t, err, &shape, "a row reports the same")
		})
	}
}

func TestRoute_ResolvesColumnsAnewWhenTheShapeChanges(t *testing.T) {
	calls := 0
	r, err := New([]Config{DefaultConfig()}, DefaultFormat(), Options{Describe: func(uint32, uint32) (*Table, error) { calls++; return nil, nil }})
	require.NoError(t, err)
	before := outbox()
	for range 3 {
		_, err = r.Route(base(before))
		require.NoError(t, err)
	}
	require.Equal(t, 1, calls)
	after := outbox()
	after.Columns[0], after.Columns[4] = after.Columns[4], after.Columns[0]
	m, err := r.Route(insert(after, "{}", "User", "k", "T", baseID))
	require.NoError(t, err)
	require.Equal(t, 2, calls)
	require.Equal(t, baseID, m.Origin.EventID)
}

func TestRoute_LeavesOtherTablesAndPrefixesAlone(t *testing.T) {
	r, err := New([]Config{DefaultConfig()}, DefaultFormat(), Options{Tables: []string{"public.events"}, MessagePrefixes: []string{"outbox"}})
	require.NoError(t, err)
	for _, ev := range []*replication.Event{base(outbox()), {Kind: replication.Message, Prefix: "audit", Content: []byte("x")}, {Kind: replication.Begin}} {
		m, err := r.Route(ev)
		require.NoError(t, err)
		require.Nil(t, m)
	}
}

func TestRoute_SaysWhatIsWrongWithARow(t *testing.T) {
	withPartition := outbox()
	withPartition.Columns = append(withPartition.Columns, col("p", oidInt4), col("at", oidTimestampTZ), col("h", oidJSONB))
	full := func(values ...any) *replication.Event { return insert(withPartition, values...) }
	for name, c := range map[string]struct {
		change func(*Config)
		event  *replication.Event
		reason string
	}{
		"null route":             {nil, insert(outbox(), baseID, nil, "k", "T", "{}"), ReasonNullRoute},
		"null key and partition": {func(c *Config) { c.AdditionalPlacement = "p:partition" }, full(baseID, "User", nil, "T", "{}", nil, nil, nil), ReasonNullKey},
		"too few values":         {nil, &replication.Event{Kind: replication.Insert, LSN: 0x16B374D848, Index: 3, Relation: outbox(), Values: [][]byte{[]byte(baseID)}}, ReasonUnconvertible},
		"null key":               {nil, insert(outbox(), baseID, "User", nil, "T", "{}"), ReasonNullKey},
		"invalid topic":          {nil, insert(outbox(), baseID, "a b", "k", "T", "{}"), ReasonInvalidTopic},
		"internal topic":         {func(c *Config) { c.TopicReplacement = "${routedByValue}" }, insert(outbox(), baseID, "__x", "k", "T", "{}"), ReasonInvalidTopic},
		"negative partition":     {func(c *Config) { c.AdditionalPlacement = "p:partition" }, full(baseID, "User", "k", "T", "{}", "-1", nil, nil), ReasonInvalidPartition},
		"time before 1970":       {func(c *Config) { c.FieldTimestamp = "at" }, full(baseID, "User", "k", "T", "{}", nil, "1960-01-01 00:00:00+00", nil), ReasonInvalidTimestamp},
		"infinite time":          {func(c *Config) { c.FieldTimestamp = "at" }, full(baseID, "User", "k", "T", "{}", nil, "infinity", nil), ReasonInvalidTimestamp},
		"headers no object":      {func(c *Config) { c.HeadersColumn = "h" }, full(baseID, "User", "k", "T", "{}", nil, nil, "[1]"), ReasonInvalidHeaders},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newRouter(t, DefaultFormat(), c.change).Route(c.event)
			var row *RowError
			require.ErrorAs(t, err, &row)
			require.Equal(t, c.reason, row.Reason)
			require.Equal(t, "public.outbox", row.Relation)
			if len(c.event.Values) > 1 {
				require.Equal(t, baseID, row.EventID)
			}
			require.Equal(t, c.event.LSN, row.LSN)
			require.Equal(t, uint32(3), row.Index)
			require.ErrorContains(t, err, "16/B374D848")
		})
	}
}

func TestRoute_PublishesANullKeyWhenAsked(t *testing.T) {
	m, err := newRouter(t, DefaultFormat(), func(c *Config) { c.NullKey = "publish" }).Route(insert(outbox(), baseID, "User", nil, "T", "{}"))
	require.NoError(t, err)
	require.Nil(t, m.Key)
}

func TestRoute_NeedsNoKeyWhereThePartitionIsGiven(t *testing.T) {
	rel := outbox()
	rel.Columns = append(rel.Columns, col("p", oidInt8))
	m, err := newRouter(t, DefaultFormat(), func(c *Config) { c.AdditionalPlacement = "p:partition" }).Route(insert(rel, baseID, "User", nil, "T", "{}", "11"))
	require.NoError(t, err)
	require.Nil(t, m.Key)
	require.Equal(t, int32(11), m.Partition)
}

func TestRoute_TakesTimesThatDebeziumRefuses(t *testing.T) {
	for oid, text := range map[uint32]string{oidTimestampTZ: "2019-03-24 22:52:59.123456+02", oidInt8: "1553460779123", 1114: "2019-03-24 20:52:59.123456"} {
		rel := outbox()
		rel.Columns = append(rel.Columns, col("at", oid))
		m, err := newRouter(t, DefaultFormat(), func(c *Config) { c.FieldTimestamp = "at" }).Route(insert(rel, baseID, "User", "k", "T", "{}", text))
		require.NoError(t, err)
		require.Equal(t, int64(1553460779123), m.Timestamp.UnixMilli(), text)
	}
}

func TestRoute_AddsPositionHeadersLast(t *testing.T) {
	m, err := newRouter(t, DefaultFormat(), func(c *Config) {
		c.PositionHeaders = true
		c.AdditionalPlacement = "type:header"
	}).Route(base(outbox()))
	require.NoError(t, err)
	require.Equal(t, []sink.Header{{Key: "id", Value: []byte(baseID)}, {Key: "type", Value: []byte("UserCreated")},
		{Key: HeaderLSN, Value: []byte("16/B374D848")}, {Key: HeaderIndex, Value: []byte("3")}}, m.Headers)
}

func TestRoute_ReadsLogicalMessagesAsRows(t *testing.T) {
	r, err := New([]Config{DefaultConfig()}, DefaultFormat(), Options{MessagePrefixes: []string{"outbox"}})
	require.NoError(t, err)
	message := func(content string) *replication.Event {
		return &replication.Event{Kind: replication.Message, Prefix: "outbox", Content: []byte(content), LSN: 7, Index: 1, Time: committed}
	}
	m, err := r.Route(message(`{"id": "1", "aggregate_type": "User", "aggregate_id": 42, "payload": {"a": [1, 2], "b": null}}`))
	require.NoError(t, err)
	require.Equal(t, "outbox.event.User", m.Topic)
	require.Equal(t, "42", string(m.Key))
	require.Equal(t, `{"a": [1, 2], "b": null}`, string(m.Value), "text of the member, untouched")
	require.Equal(t, sink.Origin{LSN: 7, Index: 1, CommitTime: committed, Relation: "message:outbox", EventID: "1"}, m.Origin)

	for _, content := range []string{"plain", "", "[1]", "{}", `{"id": "1", "aggregate_type": "User", "aggregate_id": "k", "payload": null}`, `{"a": `} {
		_, err := r.Route(message(content))
		var row *RowError
		require.ErrorAs(t, err, &row, content)
		require.Equal(t, ReasonInvalidMessage, row.Reason)
		require.Equal(t, "message:outbox", row.Relation)
	}
}

func FuzzRoute_LogicalMessage(f *testing.F) {
	for _, seed := range []string{`{"id":"1","aggregate_type":"User","aggregate_id":"k","payload":{"a":[1,{"b":null}]}}`, `{"a":"\ud83d\ude00\ud83d"}`, `[`, `{"a":1e400}`} {
		f.Add([]byte(seed))
	}
	cfg := DefaultConfig()
	cfg.ExpandJSONPayload = true
	cfg.AdditionalPlacement = "payload:envelope:copy"
	r, err := New([]Config{cfg}, Format{Key: "json+schema", Value: "json+schema", Headers: "json"}, Options{MessagePrefixes: []string{"outbox"}})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, content []byte) {
		m, err := r.Route(&replication.Event{Kind: replication.Message, Prefix: "outbox", Content: content, Time: committed})
		if err != nil {
			var row *RowError
			require.ErrorAs(t, err, &row)
			return
		}
		doc, err := connect.ParseJSON(m.Value)
		require.NoError(t, err)
		require.Equal(t, connect.JSONObject, doc.Kind)
	})
}
