package partition

import (
	"fmt"
	"slices"
	"strings"

	"github.com/postrider/postrider/replication"
)

// verdict has what is known of each outbox table, by its place.
type verdict struct {
	tables  []string
	is      []belonging
	because []string // why it is not known
}

type belonging int

const (
	no belonging = iota
	yes
	unknown
)

func (v *verdict) known() bool {
	first := slices.Index(v.is, yes)
	return !slices.Contains(v.is, unknown) && (first < 0 || !slices.Contains(v.is[first+1:], yes))
}

func (v *verdict) table() string {
	if i := slices.Index(v.is, yes); i >= 0 {
		return v.tables[i]
	}
	return ""
}

func (v *verdict) set(i int, is belonging, because string) { v.is[i], v.because[i] = is, because }

// only is yes for one table and no for all others; -1: no for all.
func (v *verdict) only(i int) {
	clear(v.is)
	clear(v.because)
	if i >= 0 {
		v.is[i] = yes
	}
}

// judge weighs the evidence. a.mu is held.
func (a *Assigner) judge(e *proof, row FirstRow) *verdict {
	v := &verdict{tables: a.tables, is: make([]belonging, len(a.tables)),
		because: make([]string, len(a.tables))}
	named := slices.Index(a.tables, row.Relation.String())
	if named >= 0 && (a.oids[a.tables[named]].oid == row.Relation.OID ||
		!a.isTable(row.Relation.OID)) {
		v.only(named)
		return v
	}
	if i, link := a.goesOn(e, row); link {
		v.only(i)
		return v
	}
	for i := range a.tables {
		is, because := a.belongs(e, row, i)
		if is == yes && e.nearest(a.oids[a.tables[i]].oid, row.Relation) {
			v.only(i)
			break
		}
		v.set(i, is, because)
	}
	if named >= 0 { // it had the name then, and has that of another outbox table now
		v.set(named, yes, "")
	}
	return v
}

// goesOn finds where a relation was seen at the same place as now, before the row.
func (a *Assigner) goesOn(e *proof, row FirstRow) (table int, ok bool) {
	if e.pending() {
		return 0, false
	}
	for _, s := range a.spans[row.Relation.OID] {
		if s.link == "" || row.LSN < s.from {
			continue
		}
		up := e.up(a.oids[s.table].oid)
		if up >= 0 && chainID(e.Links[:up+1]) == s.link {
			return slices.Index(a.tables, s.table), true
		}
	}
	return 0, false
}

// up is the index of the link to a table above the relation; -1: it is not above it.
func (e *proof) up(table uint32) int {
	return slices.IndexFunc(e.Links, func(l linkProof) bool { return l.Parent == table })
}

func (e *proof) pending() bool {
	return slices.ContainsFunc(e.Links, func(l linkProof) bool { return l.Pending })
}

func chainID(links []linkProof) string {
	var ids []string
	for _, l := range links {
		ids = append(ids, l.ID)
	}
	return strings.Join(ids, "/")
}

// belongs weighs the evidence of one table for a relation of another name.
func (a *Assigner) belongs(e *proof, row FirstRow, i int) (belonging, string) {
	// what had the name when it was last seen
	t := tableProof{OID: a.oids[a.tables[i]].oid, Kind: "p"}
	if at := slices.IndexFunc(e.Tables, func(t tableProof) bool { return t.N == i+1 }); at >= 0 {
		t = e.Tables[at]
	}
	switch {
	case t.OID == row.Relation.OID:
		return a.renamed(e, row, t, i)
	case e.neverPartition():
		return no, ""
	case e.viaRoot(t) && e.namedBefore(t.nameProof):
		return no, ""
	case e.below(t.OID):
		return a.descends(e, row, t, i)
	case e.rooted():
		return a.otherTree(e, t, i)
	case !e.namedBefore(t.nameProof) && !a.keptName(e, row, t, i):
		return unknown, fmt.Sprintf("%s was created, renamed or given to another owner, or its "+
			"schema was changed, since the slot's catalog_xmin", a.tables[i])
	case t.Kind != "p":
		return no, ""
	case e.differs(t, row.Relation):
		return no, ""
	}
	return unknown, e.since()
}

// keptName reports whether a table was seen under its name before the row, and only its schema was
// changed since the slot's catalog_xmin, as by GRANT.
func (a *Assigner) keptName(e *proof, row FirstRow, t tableProof, i int) bool {
	seen := a.oids[a.tables[i]]
	return seen.oid == t.OID && seen.from <= row.LSN && (e.old(t.Class.Age) || e.old(t.Type.Age))
}

// renamed is for the table itself under another name. A publication that names it is of that
// table, unless one of its other tables may have had the name then.
func (a *Assigner) renamed(e *proof, row FirstRow, t tableProof, i int) (belonging, string) {
	if p := e.Publication; p != nil && !p.AllTables && t.Member && !slices.ContainsFunc(e.Members,
		func(m nameProof) bool { return !e.named(m) }) {
		return yes, ""
	}
	// it was seen under its name before the row, and has it no more
	if t.N == 0 && a.oids[a.tables[i]].from <= row.LSN {
		return yes, ""
	}
	return unknown, fmt.Sprintf("it is %s now, and whether another table had that name then is "+
		"not known", a.tables[i])
}

// descends is for a partition that has its place below t since before the row.
func (a *Assigner) descends(e *proof, row FirstRow, t tableProof, i int) (belonging, string) {
	for _, l := range e.Links {
		if l.Parent != t.OID {
			if a.isTable(l.Parent) {
				return no, "" // the nearest one counts
			}
			continue
		}
		if e.named(l.nameProof) || e.namedLike(l.nameProof, row.Relation) ||
			a.oids[a.tables[i]].from <= row.LSN {
			return yes, ""
		}
		break
	}
	return unknown, fmt.Sprintf("%s was renamed or given to another owner, or its schema was "+
		"changed, since the slot's catalog_xmin", a.tables[i])
}

// otherTree is for a partition that has its place below another table since before the row.
func (a *Assigner) otherTree(e *proof, t tableProof, i int) (belonging, string) {
	if e.namedBefore(t.nameProof) {
		return no, ""
	}
	for _, l := range e.Links {
		if !e.named(l.nameProof) {
			return unknown, fmt.Sprintf("it is a partition of %s.%s, which may have been %s then",
				l.Namespace, l.Name, a.tables[i])
		}
	}
	return no, ""
}

// namedLike is named for a table whose schema was changed since, as by GRANT: the relation has
// been in it all the time, and the row has its name of that time.
func (e *proof) namedLike(n nameProof, rel *replication.Relation) bool {
	r := e.Relation
	return (e.steady(n.Class) || e.steady(n.Type)) && (e.steady(r.Class) || e.steady(r.Type)) &&
		r.NamespaceOID == n.NamespaceOID && r.Namespace == rel.Namespace
}

// differs reports whether a relation lacks a column that a partition of t had at the time, or has
// one that t never had: a partition has exactly its table's columns. The stream may lack one that
// the partition's entry in the publication leaves out.
func (e *proof) differs(t tableProof, rel *replication.Relation) bool {
	p := e.Publication
	complete := !e.columnLists || p != nil && p.AllTables && e.old(p.Age)
	unchanged := true
	for _, c := range t.Columns {
		if !e.old(c.Age) {
			unchanged = false
			continue
		}
		if c.Dropped {
			continue
		}
		i := slices.IndexFunc(rel.Columns, func(r replication.Column) bool { return r.Name == c.Name })
		switch {
		case i >= 0 && !c.is(rel.Columns[i]), i < 0 && complete && !c.Generated:
			return true
		}
	}
	return unchanged && slices.ContainsFunc(rel.Columns, func(r replication.Column) bool {
		return !slices.ContainsFunc(t.Columns, func(c columnProof) bool { return !c.Dropped && c.is(r) })
	})
}

func (c columnProof) is(r replication.Column) bool {
	return r.Name == c.Name && r.TypeOID == c.Type && r.TypeMod == c.Mod
}

// below reports whether the relation has been below a table all the time.
func (e *proof) below(table uint32) bool {
	up := e.up(table)
	return up >= 0 && e.linked(up+1)
}

// nearest reports whether the relation has been below a table all the time, with none between that
// may have had the name of another outbox table.
func (e *proof) nearest(table uint32, rel *replication.Relation) bool {
	return e.below(table) && !slices.ContainsFunc(e.Links[:e.up(table)], func(l linkProof) bool {
		return !e.named(l.nameProof) && !e.namedLike(l.nameProof, rel)
	})
}

// since is what has happened to a relation, where its place at the time is not known.
func (e *proof) since() string {
	switch {
	case e.Relation == nil:
		return "it was dropped since, and has the columns of the table"
	case e.pending():
		return "it is being detached"
	case e.Relation.Partition && e.linked(len(e.Links)):
		return "it is a partition of a table that was changed since the slot's catalog_xmin, as when " +
			"it is detached"
	case e.Relation.Partition:
		return "it was attached since the slot's catalog_xmin, and whether before or after the row " +
			"is not known"
	}
	return "it is no partition now, was changed since the slot's catalog_xmin, and has the " +
		"columns of the table"
}
