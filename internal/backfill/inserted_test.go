package backfill

import (
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/slot/partition"
)

// A decision of the operator may hold for rows up to a position alone: who comes behind it is asked about again.
func TestInserted_AsksAgainBehindAPosition(t *testing.T) {
	a := partition.New(replication.DefaultConfig(), "slot", zerolog.Nop())
	a.On(1)
	a.Remember(1, 99, "public.outbox", 101, 101)
	rel := &replication.Relation{OID: 99, Namespace: "public", Name: "part"}
	outbox, other := &TableReader{Name: "public.outbox"}, &TableReader{Name: "public.other"}
	f := insertedRows{assigner: a, tables: map[string]*TableReader{"public.outbox": outbox, "public.other": other}, assigned: map[*replication.Relation]assignment{rel: {other, 100}}}
	for _, row := range []struct {
		lsn   pglogrepl.LSN
		table *TableReader
	}{{100, other}, {101, outbox}} {
		got, err := f.table(t.Context(), &replication.Event{Relation: rel, LSN: row.lsn})
		require.NoError(t, err)
		require.Same(t, row.table, got, "row at %s", row.lsn)
	}
}
