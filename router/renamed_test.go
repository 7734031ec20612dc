package router

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router/connect"
)

// A row that is older than the names in the table.
func TestRoute_FindsARenamedColumnByItsPlace(t *testing.T) {
	columns := func(names ...string) (table []tableColumn, row []replication.Column) {
		for _, n := range names {
			table = append(table, tableColumn{Name: n, Type: connect.Type{OID: 25, Name: "text", Kind: "b", Mod: -1}})
			row = append(row, replication.Column{Name: n, TypeOID: 25, TypeMod: -1})
		}
		return table, row
	}
	_, row := columns("id", "aggregate_type", "aggregate_id", "payload", "note")
	for name, tt := range map[string]struct {
		now     []string
		dropped bool
		payload string // configured
		wrong   string
	}{
		"renamed":                      {now: []string{"id", "aggregate_type", "aggregate_id", "body", "note"}, payload: "body"},
		"renamed, old name configured": {now: []string{"id", "aggregate_type", "aggregate_id", "body", "note"}, payload: "payload"},
		"names exchanged":              {now: []string{"id", "aggregate_type", "aggregate_id", "note", "payload"}, payload: "payload"},
		"one added since": {
			now: []string{"id", "aggregate_type", "aggregate_id", "body", "note", "more"}, payload: "body",
			wrong: `column "body" is in the table, but not in this row, which was written before (router.table.field.event.payload)`,
		},
		"one dropped and one added": {
			now: []string{"id", "aggregate_type", "aggregate_id", "note", "body"}, dropped: true, payload: "body", wrong: "not in this row",
		},
		"never there": {now: []string{"id", "aggregate_type", "aggregate_id", "body", "note"}, payload: "bodi", wrong: `"bodi" does not exist`},
	} {
		t.Run(name, func(t *testing.T) {
			table, _ := columns(tt.now...)
			cfg := DefaultConfig()
			cfg.FieldPayload = tt.payload
			r, err := New([]Config{cfg}, DefaultFormat(), Options{Describe: func(uint32, uint32) (*Table, error) {
				return &Table{Columns: table, Dropped: tt.dropped}, nil
			}})
			require.NoError(t, err)
			m, err := r.Route(&replication.Event{
				Kind: replication.Insert, Relation: &replication.Relation{OID: 1, Namespace: "public", Name: "outbox", Columns: row},
				Values: [][]byte{[]byte("1"), []byte("order"), []byte("key"), []byte("the payload"), []byte("a note")},
			})
			if tt.wrong != "" {
				require.ErrorContains(t, err, tt.wrong)
				return
			}
			require.NoError(t, err)
			require.Equal(t, "the payload", string(m.Value))
		})
	}
}
