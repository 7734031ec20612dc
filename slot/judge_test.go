package slot

import (
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"postrider/replication"
)

// Ages of catalog rows, for a slot whose catalog_xmin is a hundred transactions old.
const (
	beforeTheSlot = 200
	sinceThen     = 50
)

// evidenceOf is of one outbox table of a kind whose name was last changed at an age.
func evidenceOf(kind string, named int32) *proof {
	horizon := int32(100)
	return &proof{
		Horizon: &horizon, behind: 500, snapshot: &snapshot{xmax: 50, running: []uint32{40}},
		Publication: &publicationProof{Age: beforeTheSlot, AllTables: true},
		Tables: []tableProof{{N: 1, OID: 10, Kind: kind, nameProof: nameProof{
			Class: rowAge{Age: named}, Type: rowAge{Age: named}, NamespaceAge: beforeTheSlot, Namespace: "public", Name: "outbox",
		}}},
	}
}

func assignerThatSaw(e *proof) *Assigner {
	cfg := replication.DefaultConfig()
	cfg.Tables = []string{"public.outbox"}
	a := NewAssigner(cfg, "slot", zerolog.Nop())
	a.see(e, walPosition{flushed: 1000, timeline: "00000001"})
	return a
}

func rowOf(oid uint32, name string, row FirstRow) FirstRow {
	row.Relation = &replication.Relation{OID: oid, Namespace: "public", Name: name}
	return row
}

// Where no outbox table has partitions, and none had the name of one, any other relation is none of ours: up to the look, and for who was visible to it.
func TestAssigner_LeavesOutOtherTablesAsFarAsItHasSeen(t *testing.T) {
	a := assignerThatSaw(evidenceOf("r", beforeTheSlot))
	for row, known := range map[FirstRow]bool{{LSN: 900, XID: 30}: true, {LSN: 1000, XID: 30}: true, {LSN: 1001, XID: 30}: false, {LSN: 900, XID: 40}: false, {LSN: 900, XID: 50}: false} {
		table, is := a.Remembered(rowOf(99, "other", row))
		require.Equal(t, known, is, "%+v", row)
		require.Empty(t, table)
	}
	for what, e := range map[string]*proof{"a table that was renamed": evidenceOf("r", sinceThen), "one with partitions": evidenceOf("p", beforeTheSlot)} {
		_, is := assignerThatSaw(e).Remembered(rowOf(99, "other", FirstRow{LSN: 900, XID: 30}))
		require.False(t, is, what)
	}
}

// publish_via_partition_root says that no row comes under the name of a partition: of the table that has the name now.
func TestAssigner_TrustsTheOptionForATableThatKeptItsName(t *testing.T) {
	for named, known := range map[int32]bool{beforeTheSlot: true, sinceThen: false} {
		e := evidenceOf("p", named)
		e.Publication.ViaRoot = true
		v := assignerThatSaw(e).judge(e, rowOf(99, "gone", FirstRow{LSN: 900, XID: 30}))
		require.Equal(t, known, v.known(), "named at %d", named)
		require.Empty(t, v.table())
	}
}

// A partition of a table that was renamed is one of the outbox as soon as that was seen under its name.
func TestAssigner_KnowsTheTableAboveSinceItSawIt(t *testing.T) {
	e := evidenceOf("p", sinceThen)
	e.Relation = &relationProof{Partition: true, nameProof: nameProof{Class: rowAge{Age: beforeTheSlot}}}
	e.Links = []linkProof{{Parent: 10, Link: rowAge{Age: beforeTheSlot}, nameProof: e.Tables[0].nameProof, ID: "1"}}
	a := assignerThatSaw(e)
	v := a.judge(e, rowOf(99, "part", FirstRow{LSN: 500, XID: 30}))
	require.True(t, v.known())
	require.Equal(t, "public.outbox", v.table())
	require.False(t, a.judge(e, rowOf(99, "part", FirstRow{LSN: 499, XID: 30})).known())
}
