package router

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/replication"
	"postrider/sink"
)

// outbox is Debezium's table, as the server describes it.
func outbox() *replication.Relation {
	return &replication.Relation{OID: 16400, Namespace: "public", Name: "outbox", Columns: []replication.Column{
		{Name: "id", TypeOID: 2950, TypeMod: -1, Key: true},
		{Name: "aggregatetype", TypeOID: 1043, TypeMod: 259},
		{Name: "aggregateid", TypeOID: 1043, TypeMod: 259},
		{Name: "type", TypeOID: 1043, TypeMod: 259},
		{Name: "payload", TypeOID: 3802, TypeMod: -1},
	}}
}

const baseID = "da8d6de6-3b77-45ff-8f44-57db55a7a06c"

var committed = time.UnixMilli(1556890294484)

func insert(rel *replication.Relation, values ...any) *replication.Event {
	ev := &replication.Event{Kind: replication.Insert, LSN: 0x16B374D848, Index: 3, Time: committed, Relation: rel}
	for _, v := range values {
		if v == nil {
			ev.Values = append(ev.Values, nil)
			continue
		}
		ev.Values = append(ev.Values, []byte(v.(string)))
	}
	return ev
}

func base(rel *replication.Relation) *replication.Event {
	return insert(rel, baseID, "User", "10711fa5", "UserCreated", "{}")
}

func newRouter(t testing.TB, f Format, change func(*Config)) *Router {
	t.Helper()
	cfg := DefaultConfig()
	cfg.TopicPrefix = "pg"
	if change != nil {
		change(&cfg)
	}
	r, err := New([]Config{cfg}, f, Options{})
	require.NoError(t, err)
	return r
}

func TestRoute_WritesTheBaselineRecord(t *testing.T) {
	m, err := newRouter(t, DefaultFormat(), nil).Route(base(outbox()))
	require.NoError(t, err)
	require.Equal(t, &sink.Message{
		Topic: "outbox.event.User", Key: []byte("10711fa5"), Value: []byte("{}"), Partition: sink.ByKey, Timestamp: committed,
		Headers: []sink.Header{{Key: "id", Value: []byte(baseID)}},
		Origin:  sink.Origin{LSN: 0x16B374D848, Index: 3, CommitTime: committed, Relation: "public.outbox", EventID: baseID},
	}, m)
}

func TestRoute_WritesEveryFormatOfTheBaselineRecord(t *testing.T) {
	for format, want := range map[string][2]string{
		"string":      {`10711fa5`, `{}`},
		"json":        {`"10711fa5"`, `"{}"`},
		"json+schema": {`{"schema":{"type":"string","optional":true},"payload":"10711fa5"}`, `{"schema":{"type":"string","optional":true,"name":"io.debezium.data.Json","version":1},"payload":"{}"}`},
	} {
		m, err := newRouter(t, Format{Key: format, Value: format, Headers: "simple"}, nil).Route(base(outbox()))
		require.NoError(t, err)
		require.Equal(t, want[0], string(m.Key), format)
		require.Equal(t, want[1], string(m.Value), format)
	}
}

func TestRoute_KnowsTablesByNameAndByOID(t *testing.T) {
	named := func(oid uint32, name string) *replication.Event {
		rel := outbox()
		rel.OID, rel.Name = oid, name
		return base(rel)
	}
	r, err := New([]Config{DefaultConfig()}, DefaultFormat(), Options{Tables: []string{"public.outbox"}, OIDs: map[uint32]string{16400: "public.outbox"}})
	require.NoError(t, err)
	for _, c := range []struct {
		what string
		ev   *replication.Event
		ours bool
	}{
		{"the table", named(16400, "outbox"), true},
		{"the table before it was renamed", named(16400, "events"), true},
		{"a table that was made anew", named(16500, "outbox"), true},
		{"another table", named(16501, "orders"), false},
	} {
		m, err := r.Route(c.ev)
		require.NoError(t, err, c.what)
		require.Equal(t, c.ours, m != nil, c.what)
	}
}
