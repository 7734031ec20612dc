package router

import (
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/replication"
)

// set is a rule set for some tables and prefixes.
func set(tables, messages []string) Config {
	c := DefaultConfig()
	c.Tables, c.Messages = tables, messages
	return c
}

func TestDivide_GivesEveryTableOneRuleSet(t *testing.T) {
	rules := []Config{set([]string{"a.x", "a.y"}, []string{"m"}), set(nil, nil), set([]string{"b.x"}, nil)}
	got, err := Divide(rules, []string{"a.x", "c.x", "b.x", "a.y", "c.y"}, []string{"m", "n"})
	require.NoError(t, err)
	for i, want := range []struct{ tables, messages []string }{
		{[]string{"a.x", "a.y"}, []string{"m"}}, {[]string{"c.x", "c.y"}, []string{"n"}}, {[]string{"b.x"}, nil},
	} {
		require.Equal(t, want.tables, got[i].Tables)
		require.Equal(t, want.messages, got[i].Messages)
	}
	require.Nil(t, rules[1].Tables, "what was given stays as it is")

	one, err := Divide([]Config{set([]string{"a.x"}, nil)}, []string{"a.x"}, []string{"m"})
	require.NoError(t, err)
	require.Equal(t, []string{"m"}, one[0].Messages, "a single rule set takes all messages")
}

func TestDivide_NamesWhatDoesNotFit(t *testing.T) {
	a, b, rest := []string{"p.a"}, []string{"p.b"}, []string(nil)
	for name, tt := range map[string]struct {
		rules    []Config
		messages []string
		want     []string
	}{
		"none":              {nil, nil, []string{"router: there is no rule set"}},
		"unknown table":     {[]Config{set([]string{"p.A"}, nil), set(nil, nil)}, nil, []string{`router[1].tables has "p.A", which is not in replication.tables (p.a, p.b)`}},
		"unknown to one":    {[]Config{set([]string{"p.a", "p.b", "p.c"}, nil)}, nil, []string{`router.tables has "p.c", which is not in replication.tables`}},
		"overlap":           {[]Config{set(a, nil), set([]string{"p.b", "p.a"}, nil)}, nil, []string{`router[2].tables has "p.a", which is in router[1].tables already`}},
		"twice in one":      {[]Config{set([]string{"p.a", "p.b", "p.a"}, nil)}, nil, []string{`router.tables has "p.a", which is in router.tables already`}},
		"left out":          {[]Config{set(a, nil)}, nil, []string{`replication.tables has "p.b", which no rule set is for: add it to tables of a [[router]]`}},
		"two for the rest":  {[]Config{set(a, nil), set(rest, nil), set(rest, nil)}, nil, []string{"router[3].tables is empty, as in router[2]"}},
		"nothing left":      {[]Config{set(a, nil), set(b, nil), set(rest, nil)}, nil, []string{"router[3].tables is empty, and every table has another rule set"}},
		"unknown prefix":    {[]Config{set(nil, []string{"m"})}, nil, []string{`router.messages has "m", which is not in replication.messages ()`}},
		"prefix of nobody":  {[]Config{set(a, nil), set(b, nil)}, []string{"m"}, []string{`replication.messages has "m", which no rule set is for: add it to messages`}},
		"all that is wrong": {[]Config{set([]string{"p.x"}, nil), set(a, []string{"n"})}, nil, []string{`"p.x"`, `"n"`, `"p.b"`}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Divide(tt.rules, []string{"p.a", "p.b"}, tt.messages)
			for _, want := range tt.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

func TestRoute_ChoosesTheRuleSetOfTheTable(t *testing.T) {
	orders, tasks := set([]string{"public.orders"}, []string{"o"}), set(nil, nil)
	tasks.RouteByField, tasks.FieldKey, tasks.TopicReplacement, tasks.HeaderID = "kind", "id", "tasks.${routedByValue}", "task"
	homes := 0
	r, err := New([]Config{orders, tasks}, DefaultFormat(), Options{
		Tables: []string{"public.tasks", "public.orders"}, MessagePrefixes: []string{"o", "t"},
		ParentTable: func(ev *replication.Event) (string, pglogrepl.LSN, error) {
			homes++
			return map[uint32]string{1: "public.orders", 2: "public.tasks", 3: "public.tasks", 4: "public.tasks"}[ev.Relation.OID], 0, nil
		},
	})
	require.NoError(t, err)
	insert := func(oid uint32, name string, columns ...string) *replication.Event {
		rel := &replication.Relation{OID: oid, Namespace: "public", Name: name}
		ev := &replication.Event{Kind: replication.Insert, Relation: rel}
		for _, c := range columns {
			rel.Columns = append(rel.Columns, replication.Column{Name: c, TypeOID: 25, TypeMod: -1})
			ev.Values = append(ev.Values, []byte(c))
		}
		return ev
	}
	task := []string{"id", "kind", "payload"}
	for _, tt := range []struct {
		ev     *replication.Event
		topic  string
		header string
	}{
		{insert(1, "orders", "id", "aggregatetype", "aggregateid", "payload"), "outbox.event.aggregatetype", "id"},
		{insert(2, "tasks", task...), "tasks.kind", "task"},
		{insert(3, "renamed", task...), "tasks.kind", "task"},
		{insert(4, "tasks_2026_02", task...), "tasks.kind", "task"},
		{&replication.Event{Kind: replication.Message, Prefix: "o", Content: []byte(`{"id": "1", "aggregatetype": "x", "aggregateid": "2", "payload": "p"}`)}, "outbox.event.x", "id"},
		{&replication.Event{Kind: replication.Message, Prefix: "t", Content: []byte(`{"id": "1", "kind": "x", "payload": "p"}`)}, "tasks.x", "task"},
	} {
		for range 2 {
			m, err := r.Route(tt.ev)
			require.NoError(t, err)
			require.Equal(t, tt.topic, m.Topic)
			require.Equal(t, tt.header, m.Headers[0].Key)
		}
	}
	require.Equal(t, 4, homes, "called once for each relation")
	for _, other := range []*replication.Event{insert(5, "other", "x"), insert(6, "another", "x"), {Kind: replication.Message, Prefix: "u"}} {
		for range 2 {
			m, err := r.Route(other)
			require.NoError(t, err)
			require.Nil(t, m)
		}
	}
	require.Equal(t, 6, homes)

	wrong := set(nil, nil)
	wrong.TopicRegex = "("
	_, err = New([]Config{orders, wrong}, DefaultFormat(), Options{Tables: []string{"public.orders", "public.tasks"}, MessagePrefixes: []string{"o"}})
	require.ErrorContains(t, err, "router[2]: router.route.topic.regex")
}
