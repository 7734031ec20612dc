package router

import (
	"fmt"
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router/connect"
	"github.com/postrider/postrider/sink"
)

func headerNames(m *sink.Message) (names []string) {
	for _, h := range m.Headers {
		names = append(names, h.Key)
	}
	return names
}

func TestRoute_HandsOnTheTraceWithANewSpan(t *testing.T) {
	rel := outbox()
	rel.Columns = append(rel.Columns, col("tracingspancontext", oidText))
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	const span = "-[0-9a-f]{16}-"
	for what, c := range map[string]struct {
		context any
		all     bool   // also rows without a context
		parent  string // pattern; empty: no header
		state   string
	}{
		"a context":               {"#Mon May 06\ntraceparent=00-" + trace + "-00f067aa0ba902b7-01\nbaggage=x\n", false, "^00-" + trace + span + "01$", ""},
		"not sampled":             {"traceparent=00-" + trace + "-00f067aa0ba902b7-00", false, "^00-" + trace + span + "00$", ""},
		"a state":                 {"traceparent=00-" + trace + "-00f067aa0ba902b7-01\ntracestate=a=1 , b=2", false, "^00-" + trace + span + "01$", "a=1,b=2"},
		"a state that is none":    {"traceparent=00-" + trace + "-00f067aa0ba902b7-01\ntracestate=a=1,B=2", false, "^00-" + trace + span + "01$", ""},
		"escapes":                 {"traceparent\\=x=y\ntrace\\u0070arent : 00-\\\n   " + trace + "-00f067aa0ba902b7-01", false, "^00-" + trace + span + "01$", ""},
		"a version to come":       {"traceparent=cc-" + trace + "-00f067aa0ba902b7-03-more", false, "^00-" + trace + span + "01$", ""},
		"more than its version":   {"traceparent=00-" + trace + "-00f067aa0ba902b7-01-more\ntracestate=a=1", false, "^00-[0-9a-f]{32}" + span + "01$", ""},
		"a trace of zeros":        {"traceparent=00-00000000000000000000000000000000-00f067aa0ba902b7-01", false, "^00-[0-9a-f]{32}" + span + "01$", ""},
		"empty":                   {"", false, "^00-[0-9a-f]{32}" + span + "01$", ""},
		"NULL":                    {nil, false, "", ""},
		"NULL, and all are meant": {nil, true, "^00-[0-9a-f]{32}" + span + "01$", ""},
	} {
		t.Run(what, func(t *testing.T) {
			m, err := newRouter(t, DefaultFormat(), func(cfg *Config) { cfg.TracingHeaders, cfg.TracingContextOnly = true, !c.all }).
				Route(insert(rel, baseID, "User", "k", "T", "{}", c.context))
			require.NoError(t, err)
			want := []string{"id"}
			if c.state != "" {
				want = append([]string{"tracestate"}, want...)
				require.Equal(t, c.state, string(m.Headers[1].Value))
			}
			if c.parent != "" {
				want = append([]string{"traceparent"}, want...)
				require.Regexp(t, c.parent, string(m.Headers[0].Value))
				require.NotContains(t, string(m.Headers[0].Value), "00f067aa0ba902b7", "the span is a new one")
			}
			require.Equal(t, want, headerNames(m))
		})
	}
}

func TestRoute_TellsOfTheRunBeforeAllElse(t *testing.T) {
	r := newRouter(t, Format{Key: "string", Value: "string", Headers: "json+schema"}, func(c *Config) { c.ContextHeaders, c.AdditionalPlacement = true, "type:header" })
	m, err := r.Route(base(outbox()))
	require.NoError(t, err)
	require.Equal(t, []string{"__debezium.context.connectorLogicalName", "__debezium.context.taskId", "__debezium.context.connectorName",
		"__debezium.context.runId", "id", "type"}, headerNames(m))
	require.Equal(t, `{"schema":{"type":"string","optional":false},"payload":"pg"}`, string(m.Headers[0].Value))
	require.Contains(t, string(m.Headers[1].Value), `"payload":"0"`)
	require.Contains(t, string(m.Headers[2].Value), `"payload":"postgresql"`)
	require.Regexp(t, `"payload":"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-`, string(m.Headers[3].Value))

	again, err := r.Route(base(outbox()))
	require.NoError(t, err)
	require.Equal(t, m.Headers[3], again.Headers[3], "one run, one id")
}

func update(old []any, values ...any) *replication.Event {
	ev := insert(outbox(), values...)
	ev.Kind = replication.Update
	if old != nil {
		ev.Old = insert(outbox(), old...).Values
	}
	return ev
}

func TestRoute_PublishesARowWhosePrimaryKeyChanged(t *testing.T) {
	const other = "d81ae6b7-bf20-57ae-807e-1ed6d1fd3e64"
	changed := update([]any{baseID, nil, nil, nil, nil}, other, "User", "10711fa5", "UserCreated", "{}")
	for format, want := range map[string]string{
		"simple": `{"id":"` + baseID + `"}`,
		"string": `Struct{id=` + baseID + `}`,
		"json":   `{"id":"` + baseID + `"}`,
		"json+schema": `{"schema":{"type":"struct","fields":[{"type":"string","optional":false,"name":"io.debezium.data.Uuid","version":1,"field":"id"}],` +
			`"optional":false,"name":"pg.public.outbox.Key"},"payload":{"id":"` + baseID + `"}}`,
	} {
		r := newRouter(t, Format{Key: "string", Value: "string", Headers: format}, func(c *Config) { c.OpInvalidBehavior, c.ContextHeaders = "fatal", true })
		m, err := r.Route(changed)
		require.NoError(t, err)
		require.Equal(t, sink.Header{Key: "__debezium.oldkey", Value: []byte(want)}, m.Headers[0])
		require.Len(t, m.Headers, 6)
		require.Equal(t, other, m.Origin.EventID)
	}
}

func TestRoute_DropsOtherUpdatesAndTellsOnce(t *testing.T) {
	calls := 0
	r, err := New([]Config{DefaultConfig()}, DefaultFormat(), Options{Updated: func(table, behavior string) {
		calls++
		require.Equal(t, "public.outbox warn", table+" "+behavior)
	}})
	require.NoError(t, err)
	rel := outbox()
	for _, old := range [][]any{nil, {baseID, "User", "10711fa5", "UserCreated", `{"before": 1}`}, nil} {
		ev := update(old, baseID, "User", "10711fa5", "UserCreated", "{}")
		ev.Relation = rel
		m, err := r.Route(ev)
		require.NoError(t, err)
		require.Nil(t, m)
	}
	require.Equal(t, 1, calls)
}

func TestRoute_StopsAtAnUpdateIfThatIsFatal(t *testing.T) {
	_, err := newRouter(t, DefaultFormat(), func(c *Config) { c.OpInvalidBehavior = " FATAL" }).
		Route(update(nil, baseID, "User", "10711fa5", "UserCreated", "{}"))
	var row *RowError
	require.ErrorAs(t, err, &row)
	require.Equal(t, ReasonUpdate, row.Reason)
	require.Equal(t, baseID, row.EventID)
}

func TestRoute_KeepsTheOrderOfAPrimaryKey(t *testing.T) {
	rel := outbox()
	r, err := New([]Config{DefaultConfig()}, DefaultFormat(), Options{Describe: func(uint32, uint32) (*Table, error) {
		table := &Table{OID: rel.OID}
		for i, c := range rel.Columns {
			table.Columns = append(table.Columns, tableColumn{Name: c.Name, NotNull: true, Type: *connect.Builtin(c.TypeOID, c.TypeMod), Key: []int{2, 0, 1, 0, 0}[i]})
		}
		return table, nil
	}})
	require.NoError(t, err)
	ev := update([]any{baseID, nil, "before", nil, nil}, baseID, "User", "after", "T", "{}")
	m, err := r.Route(ev)
	require.NoError(t, err)
	require.Equal(t, `{"aggregateid":"before","id":"`+baseID+`"}`, string(m.Headers[0].Value))
}

// An old row that is known by another index than the primary key has none: Debezium takes its key for the empty text.
func TestRoute_HasAnEmptyOldKeyWhereAnotherIndexKnowsTheRow(t *testing.T) {
	ev := update([]any{nil, nil, "10711fa5", nil, nil}, baseID, "User", "10711fa5", "UserCreated", "{}")
	m, err := newRouter(t, Format{Key: "string", Value: "string", Headers: "json"}, nil).Route(ev)
	require.NoError(t, err)
	require.Equal(t, sink.Header{Key: "__debezium.oldkey", Value: []byte(`{"id":""}`)}, m.Headers[0])
}

func TestPositionHeaders_ArePrintedAsByPostgreSQL(t *testing.T) {
	r := newRouter(t, DefaultFormat(), func(c *Config) { c.PositionHeaders = true })
	var kept []*sink.Message
	var want []string
	for i := range 3000 { // more than fit into a chunk
		ev := base(outbox())
		ev.LSN, ev.Index = pglogrepl.LSN(uint64(i/3)*0x9E3779B97F4A7C15>>(i%64)), uint32(i*i)
		m, err := r.Route(ev)
		require.NoError(t, err)
		kept, want = append(kept, m), append(want, fmt.Sprintf("%s %d", ev.LSN, ev.Index))
	}
	for i, m := range kept {
		require.Equal(t, want[i], fmt.Sprintf("%s %s", m.Headers[1].Value, m.Headers[2].Value))
	}
}

func TestRouteTo_LeavesNothingOfTheMessageBefore(t *testing.T) {
	full := newRouter(t, DefaultFormat(), func(c *Config) {
		c.AdditionalPlacement, c.PositionHeaders = "type:header,aggregatetype:header,version:partition", true
	})
	plain := newRouter(t, DefaultFormat(), nil)
	rel := outbox()
	rel.Columns = append(rel.Columns, replication.Column{Name: "version", TypeOID: 23, TypeMod: -1})
	m := new(sink.Message)
	ours, err := full.RouteTo(m, insert(rel, "1", "Order", "k1", "Created", "{}", "7"))
	require.NoError(t, err)
	require.True(t, ours)
	m.Origin.Transaction, m.Origin.HandedOver = 9, committed
	ours, err = plain.RouteTo(m, insert(outbox(), "2", "User", "k2", nil, nil))
	require.NoError(t, err)
	require.True(t, ours)
	fresh, err := plain.Route(insert(outbox(), "2", "User", "k2", nil, nil))
	require.NoError(t, err)
	require.Equal(t, fresh, m)
}
