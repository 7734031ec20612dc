package router

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/sink"
)

// FuzzRoute gives the mapping a row of any content, in columns of any type, by a rule set that uses everything there is. It is a message that
// a broker can take, or a *RowError.
func FuzzRoute(f *testing.F) {
	f.Add("User", "k", `{"a":[1,{"b":null}]}`, `{"trace":"1","n":null}`, "2024-01-02 03:04:05.678+00", "3", uint32(0))
	f.Add("../x", "", `[1,"a"]`, `[]`, "infinity", "-1", uint32(1))
	f.Add("__consumer_offsets", "\x00", `{"a":1e999}`, `{"":{}}`, "0044-03-15 12:00:00 BC", "99999999999", uint32(1700))
	f.Add(strings.Repeat("x", 250), "é", `{"a"`, "null", "", "", uint32(600))
	types := []uint32{25, 16, 17, 20, 21, 23, 114, 600, 700, 701, 790, 869, 1000, 1009, 1015, 1082, 1083, 1114, 1184, 1186, 1266, 1560, 1700, 2950, 3802, 3904, 3926}
	f.Fuzz(func(t *testing.T, route, key, payload, headers, at, partition string, oid uint32) {
		cfg := DefaultConfig()
		cfg.ExpandJSONPayload, cfg.TracingHeaders, cfg.ContextHeaders, cfg.PositionHeaders = true, true, true, true
		cfg.FieldTimestamp, cfg.HeadersColumn = "created_at", "headers"
		cfg.AdditionalPlacement = "payload:envelope:copy,aggregate_id:header:key,part:partition"
		cfg.TopicRegex, cfg.TopicReplacement = `(?<a>[^.]*)(\..*)?`, "t.${a}"
		for _, format := range []Format{DefaultFormat(), {Key: "json+schema", Value: "json+schema", Headers: "json"}} {
			r, err := New([]Config{cfg}, format, Options{})
			require.NoError(t, err)
			rel := &replication.Relation{OID: 1, Namespace: "public", Name: "outbox", Columns: []replication.Column{
				{Name: "id", TypeOID: 25, TypeMod: -1, Key: true}, {Name: "aggregate_type", TypeOID: 25, TypeMod: -1},
				{Name: "aggregate_id", TypeOID: types[int(oid)%len(types)], TypeMod: -1}, {Name: "payload", TypeOID: types[int(oid>>8)%len(types)], TypeMod: -1},
				{Name: "headers", TypeOID: 3802, TypeMod: -1}, {Name: "created_at", TypeOID: 1184, TypeMod: -1},
				{Name: "part", TypeOID: 23, TypeMod: -1}, {Name: "tracingspancontext", TypeOID: 25, TypeMod: -1},
			}}
			m, err := r.Route(&replication.Event{Kind: replication.Insert, Relation: rel, LSN: 7, Time: committed,
				Values: [][]byte{[]byte("1"), []byte(route), []byte(key), []byte(payload), []byte(headers), []byte(at), []byte(partition), []byte(headers)}})
			if err != nil {
				var row *RowError
				var shape *ShapeError
				if !errors.As(err, &row) && !errors.As(err, &shape) {
					t.Fatalf("%T: %v", err, err)
				}
				continue
			}
			if m.Topic == "" || len(m.Topic) > 249 || strings.HasPrefix(m.Topic, "__") {
				t.Fatalf("topic %q", m.Topic)
			}
			if m.Partition < 0 && m.Partition != sink.ByKey {
				t.Fatalf("partition %d", m.Partition)
			}
			if format.Value == "json+schema" && utf8.ValidString(payload+headers+key) && !json.Valid(m.Value) {
				t.Fatalf("value %q is no JSON", m.Value)
			}
		}
	})
}
