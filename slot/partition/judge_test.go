package partition

import (
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/slot"
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
		Horizon: &horizon, behind: 500, snapshot: &slot.Snapshot{Xmax: 50, Running: []uint32{40}},
		Publication: &publicationProof{Age: beforeTheSlot, AllTables: true},
		Tables: []tableProof{{N: 1, OID: 10, Kind: kind, nameProof: nameProof{
			Class: rowAge{Age: named}, Type: rowAge{Age: named}, NamespaceAge: beforeTheSlot, Namespace: "public", Name: "outbox",
		}}},
	}
}

func assignerThatSaw(e *proof) *Assigner {
	cfg := replication.DefaultConfig()
	cfg.Tables = []string{"public.outbox"}
	a := New(cfg, "slot", zerolog.Nop())
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
	moved := evidenceOf("r", beforeTheSlot)
	moved.Tables[0].NamespaceAge = sinceThen
	for what, e := range map[string]*proof{
		"a table that was renamed": evidenceOf("r", sinceThen), "one whose schema was": moved, "one with partitions": evidenceOf("p", beforeTheSlot),
	} {
		_, is := assignerThatSaw(e).Remembered(rowOf(99, "other", FirstRow{LSN: 900, XID: 30}))
		require.False(t, is, what)
	}
	_, is := a.Remembered(rowOf(10, "outbox_was", FirstRow{LSN: 900, XID: 30}))
	require.False(t, is, "the table itself, under another name")
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
	member := func(age int32) *int32 { return &age }
	for what, c := range map[string]struct {
		publication publicationProof
		member      *int32 // age of the entry of the table; nil: none
		known       bool
	}{
		"of all tables":       {publicationProof{Age: beforeTheSlot, ViaRoot: true, AllTables: true}, nil, true},
		"altered since":       {publicationProof{Age: sinceThen, ViaRoot: true, AllTables: true}, nil, false},
		"without the option":  {publicationProof{Age: beforeTheSlot, AllTables: true}, nil, false},
		"of the table":        {publicationProof{Age: beforeTheSlot, ViaRoot: true}, member(beforeTheSlot), true},
		"the table was added": {publicationProof{Age: beforeTheSlot, ViaRoot: true}, member(sinceThen), false},
		"not of the table":    {publicationProof{Age: beforeTheSlot, ViaRoot: true}, nil, false},
	} {
		e := evidenceOf("p", beforeTheSlot)
		e.Publication, e.Tables[0].MembershipAge = &c.publication, c.member
		require.Equal(t, c.known, assignerThatSaw(e).judge(e, rowOf(99, "gone", FirstRow{LSN: 900, XID: 30})).known(), what)
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

// belowTables has a relation be a partition of tables, the nearest first, since before all that the slot sends.
func (e *proof) belowTables(oids ...uint32) *proof {
	e.Relation = &relationProof{Partition: true, nameProof: nameProof{Class: rowAge{Age: beforeTheSlot}, NamespaceOID: 2200, Namespace: "public"}}
	for _, oid := range oids {
		e.Links = append(e.Links, linkProof{Parent: oid, Link: rowAge{Age: beforeTheSlot}, ID: "1", nameProof: nameProof{
			Class: rowAge{Age: beforeTheSlot}, Type: rowAge{Age: beforeTheSlot}, NamespaceAge: beforeTheSlot, NamespaceOID: 2200, Namespace: "public", Name: "above",
		}})
	}
	return e
}

// What is below a table now was so at the commit only if neither the place nor the names above it have changed since.
func TestAssigner_KnowsAPlaceThatHasNotChanged(t *testing.T) {
	for what, c := range map[string]struct {
		change func(e *proof)
		table  string // empty: not known
	}{
		"nothing":                         {func(*proof) {}, "public.outbox"},
		"it is being detached":            {func(e *proof) { e.Links[0].Pending = true }, ""},
		"it was attached":                 {func(e *proof) { e.Links[0].Link.Age = sinceThen }, ""},
		"the table was renamed":           {func(e *proof) { e.Links[0].Class.Age, e.Links[0].Type.Age = sinceThen, sinceThen }, ""},
		"the table's own schema was":      {func(e *proof) { e.Links[0].NamespaceAge, e.Links[0].NamespaceOID = sinceThen, 2 }, ""},
		"the schema of both was, or more": {func(e *proof) { e.Links[0].NamespaceAge = sinceThen }, "public.outbox"}, // the row says what it was called
	} {
		e := evidenceOf("p", beforeTheSlot).belowTables(10)
		c.change(e)
		v := assignerThatSaw(e).judge(e, rowOf(99, "part", FirstRow{LSN: 499, XID: 30}))
		require.Equal(t, c.table != "", v.known(), what)
		require.Equal(t, c.table, v.table(), what)
	}
}

// A partition of another tree is none of the outbox, if the table at the top of that tree was no partition of it.
func TestAssigner_KnowsAnotherTreeThatHasNotChanged(t *testing.T) {
	for age, known := range map[int32]bool{beforeTheSlot: true, sinceThen: false} {
		e := evidenceOf("p", beforeTheSlot).belowTables(77)
		e.Links[0].Class.Age, e.Links[0].Columns = age, []rowAge{{Age: age}}
		v := assignerThatSaw(e).judge(e, rowOf(99, "part", FirstRow{LSN: 499, XID: 30}))
		require.Equal(t, known, v.known(), "changed at %d", age)
		require.Empty(t, v.table())
	}
}

// An outbox table may be a partition of another one. What is below both belongs to the nearest.
func TestAssigner_TakesTheNearestTable(t *testing.T) {
	e := evidenceOf("p", beforeTheSlot).belowTables(20, 10)
	inner := e.Tables[0]
	inner.N, inner.OID, inner.Name = 2, 20, "inner"
	e.Tables = append(e.Tables, inner)
	cfg := replication.DefaultConfig()
	cfg.Tables = []string{"public.outbox", "public.inner"}
	a := New(cfg, "slot", zerolog.Nop())
	a.see(e, walPosition{flushed: 1000, timeline: "00000001"})
	v := a.judge(e, rowOf(99, "part", FirstRow{LSN: 499, XID: 30}))
	require.True(t, v.known())
	require.Equal(t, "public.inner", v.table())
}

// Positions of another timeline are of other transactions.
func TestAssigner_ForgetsAnotherTimeline(t *testing.T) {
	row := rowOf(99, "part", FirstRow{LSN: 900, XID: 30})
	withPartitions := evidenceOf("p", beforeTheSlot)
	for what, a := range map[string]*Assigner{"no table has partitions": assignerThatSaw(evidenceOf("r", beforeTheSlot)), "a partition": assignerThatSaw(withPartitions)} {
		a.Remember(1, 98, "public.outbox", 800, 950)
		part := row
		if what == "a partition" {
			part = rowOf(98, "part", FirstRow{LSN: 900, XID: 30})
		}
		_, known := a.Remembered(part)
		require.True(t, known, what)
		a.see(withPartitions, walPosition{flushed: 100, timeline: "00000002"})
		_, known = a.Remembered(part)
		require.False(t, known, what)
	}
}

// A row of which two tables may be the one is of none that is known.
func TestVerdict_IsOfOneTable(t *testing.T) {
	for _, c := range []struct {
		is    []belonging
		known bool
		table string
	}{
		{[]belonging{no, no}, true, ""},
		{[]belonging{no, yes}, true, "b"},
		{[]belonging{yes, yes}, false, "a"},
		{[]belonging{yes, unknown}, false, "a"},
		{[]belonging{no, unknown}, false, ""},
	} {
		v := &verdict{tables: []string{"a", "b"}, is: c.is}
		require.Equal(t, c.known, v.known(), "%v", c.is)
		require.Equal(t, c.table, v.table(), "%v", c.is)
	}
}
