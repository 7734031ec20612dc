package router

import (
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router/connect"
	"github.com/postrider/postrider/sink"
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
		Origin:  sink.Origin{LSN: 0x16B374D848, Index: 3, CommitTime: committed, OID: 16400, Relation: "public.outbox", EventID: baseID},
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

func TestRoute_AsksOnceForEachRelationWhichTableItBelongsTo(t *testing.T) {
	asked := 0
	r, err := New([]Config{DefaultConfig()}, DefaultFormat(), Options{
		Tables: []string{"public.outbox"},
		ParentTable: func(ev *replication.Event) (string, pglogrepl.LSN, error) {
			asked++
			switch {
			case ev.Relation.OID == 16400:
				return "public.outbox", 0, nil
			case ev.Relation.OID == 16401 && ev.LSN <= 30:
				return "public.outbox", 30, nil
			}
			return "", 0, nil
		},
	})
	require.NoError(t, err)
	partition, until, other := outbox(), outbox(), outbox()
	partition.OID, partition.Name = 16400, "outbox_1"
	until.OID, until.Name = 16401, "outbox_2"
	other.OID = 16402 // the name alone does not make it the table
	for i, c := range []struct {
		rel   *replication.Relation
		lsn   pglogrepl.LSN
		ours  bool
		asked int
	}{
		{partition, 10, true, 1}, {partition, 20, true, 1}, {other, 20, false, 2}, {partition, 25, true, 2},
		{until, 29, true, 3}, {until, 30, true, 3}, {until, 31, false, 4}, {until, 40, false, 4},
	} {
		ev := base(c.rel)
		ev.LSN = c.lsn
		m, err := r.Route(ev)
		require.NoError(t, err, i)
		require.Equal(t, c.ours, m != nil, i)
		require.Equal(t, c.asked, asked, i)
	}
	require.ElementsMatch(t, []Assigned{
		{OID: 16400, Table: "public.outbox", First: 10, Last: 25}, {OID: 16402, First: 20, Last: 20},
		{OID: 16401, Table: "public.outbox", First: 29, Last: 30}, {OID: 16401, First: 31, Last: 40},
	}, r.Assigned())
}

// With a publication of all tables, tables that come and go are any number.
func TestRouter_ForgetsForeignTablesAndNoOutbox(t *testing.T) {
	asked := 0
	home := func(ev *replication.Event) (string, pglogrepl.LSN, error) {
		if ev.Relation.OID == 1 {
			asked++
			return "public.outbox", 0, nil
		}
		return "", 0, nil
	}
	released := map[uint32]Assigned{}
	r, err := New([]Config{DefaultConfig()}, DefaultFormat(), Options{Tables: []string{"public.outbox"}, ParentTable: home,
		Release: func(a Assigned) { released[a.OID] = a }})
	require.NoError(t, err)
	ours := &replication.Relation{OID: 1, Namespace: "public", Name: "outbox_1", Columns: []replication.Column{
		{Name: "id", TypeOID: 23}, {Name: "aggregatetype", TypeOID: 25}, {Name: "aggregateid", TypeOID: 25}, {Name: "type", TypeOID: 25}, {Name: "payload", TypeOID: 25},
	}}
	row := &replication.Event{Kind: replication.Insert, Relation: ours, Values: [][]byte{[]byte("1"), []byte("order"), []byte("k"), []byte("e"), []byte("{}")}}
	for oid := range uint32(10 * maxForeign) {
		_, err := r.Route(row)
		require.NoError(t, err)
		m, err := r.Route(&replication.Event{Kind: replication.Insert, LSN: pglogrepl.LSN(oid + 7),
			Relation: &replication.Relation{OID: oid + 2, Namespace: "public", Name: "staging"}})
		require.NoError(t, err)
		require.Nil(t, m)
		require.LessOrEqual(t, len(r.plans), maxForeign+1)
		require.LessOrEqual(t, len(r.assigned), maxForeign+1)
	}
	require.Equal(t, 1, asked, "the outbox is looked up once")
	kept := r.Assigned()
	require.Len(t, kept, maxForeign+1)
	require.Contains(t, kept, Assigned{OID: 1, Table: "public.outbox"})
	require.Len(t, released, 9*maxForeign, "none is lost")
	require.Equal(t, Assigned{OID: 2, First: 7, Last: 7}, released[2])
}

// unregistered is a schema registry that answers every request with an error.
type unregistered struct{ err error }

func (u unregistered) Append([]byte, string, *connect.Schema, any) ([]byte, error) { return nil, u.err }

func TestAddress_IsNotUnknownWhileTheRegistryIsAway(t *testing.T) {
	for _, c := range []struct{ err, want error }{
		{connect.ErrRegistry, connect.ErrRegistry},
		{connect.ErrRegistryLogin, connect.ErrRegistryLogin},
		{connect.ErrRegistryHalt, connect.ErrRegistryHalt},
		{connect.Unwritable("", "the registry refuses the schema"), nil},
	} {
		f := DefaultFormat()
		f.Key = "avro"
		r, err := New([]Config{DefaultConfig()}, f, Options{Registries: Registries{Key: unregistered{c.err}}})
		require.NoError(t, err)
		_, key, err := r.Address(base(outbox()))
		require.ErrorIs(t, err, c.want)
		require.Nil(t, key)
	}
}

func TestAddress_IsUnknownWhereTopicOrKeyIsWrong(t *testing.T) {
	r := newRouter(t, DefaultFormat(), nil)
	for name, ev := range map[string]*replication.Event{
		"topic":  insert(outbox(), baseID, nil, "10711fa5", "UserCreated", "{}"),
		"key":    insert(outbox(), baseID, "User", nil, "UserCreated", "{}"),
		"values": insert(outbox(), baseID),
	} {
		_, key, err := r.Address(ev)
		require.NoError(t, err, name)
		require.Nil(t, key, name)
	}
	topic, key, err := r.Address(base(outbox()))
	require.NoError(t, err)
	require.Equal(t, "outbox.event.User 10711fa5", topic+" "+string(key))
}
