package router

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/replication"
)

func TestRoute_TakesMessagesOfAnyPrefix(t *testing.T) {
	r, err := New([]Config{DefaultConfig()}, DefaultFormat(), Options{MessagePrefixes: []string{AnyPrefix}})
	require.NoError(t, err)
	for _, prefix := range []string{"foo", "other"} {
		m, err := r.Route(&replication.Event{Kind: replication.Message, Time: committed, Prefix: prefix,
			Content: []byte(`{"id": "1", "aggregatetype": "User", "aggregateid": "k", "type": "T", "payload": "x"}`)})
		require.NoError(t, err)
		require.Equal(t, "outbox.event.User", m.Topic)
	}
}

func TestCheck_AsksNoColumnsOfATableBesideMessages(t *testing.T) {
	rel := &replication.Relation{OID: 1, Namespace: "public", Name: "outbox", Columns: []replication.Column{{Name: "id", TypeOID: 25, Key: true}}}
	ev := &replication.Event{Kind: replication.Insert, Time: committed, Relation: rel, Values: [][]byte{[]byte("1")}}
	for _, prefixes := range [][]string{nil, {"foo"}} {
		r, err := New([]Config{DefaultConfig()}, DefaultFormat(), Options{Tables: []string{"public.outbox"}, MessagePrefixes: prefixes})
		require.NoError(t, err)
		var shape *ShapeError
		if prefixes == nil {
			require.ErrorAs(t, r.Check(rel), &shape)
		} else {
			require.NoError(t, r.Check(rel))
		}
		_, err = r.Route(ev)
		require.ErrorAs(t, err, &shape, "a row is not passed over")
	}
}
