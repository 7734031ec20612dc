package partition

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/slot"
)

// proof is what the catalogs have about the outbox tables and one relation, in one snapshot. Ages
// count transactions. A catalog row that is older than Horizon is as it was at the commit of every
// transaction that the slot still sends; one with Born is as its table was created with. Both are
// steady.
type proof struct {
	Horizon   *int32           `json:"horizon"`   // age of the slot's catalog_xmin; nil: no slot
	Confirmed postgres.TextLSN `json:"confirmed"` // zero: no slot
	// nothing before it comes again, even if the slot rewinds; zero: not known
	Kept        postgres.TextLSN  `json:"kept"`
	Behind      postgres.TextLSN  `json:"behind"`   // what commits behind it was not seen
	Snapshot    string            `json:"snapshot"` // that all is of
	Publication *publicationProof `json:"publication"`
	Tables      []tableProof      `json:"tables"`   // by n; one that does not exist is left out
	Relation    *relationProof    `json:"relation"` // nil: does not exist any more
	Links       []linkProof       `json:"links"`    // from the relation up to the root
	// Members are the other tables that the publication names, if the relation is an outbox table.
	Members []nameProof `json:"members"`

	confirmed, kept, behind pglogrepl.LSN
	snapshot                *slot.Snapshot

	columnLists bool // the server has them
}

type rowAge struct {
	Age  int32 `json:"age"`
	Born bool  `json:"born"`
}

type publicationProof struct {
	Age       int32 `json:"age"`
	ViaRoot   bool  `json:"via_root"`
	AllTables bool  `json:"all_tables"`
}

// nameProof holds the catalog rows that a rename or a change of schema writes. Either of the first
// two is enough: others write the one, but not the other.
type nameProof struct {
	Class        rowAge `json:"class"`
	Type         rowAge `json:"type"`
	Namespace    string `json:"namespace"`
	Name         string `json:"name"`
	NamespaceOID uint32 `json:"namespace_oid"`
	NamespaceAge int32  `json:"namespace_age"`
}

type tableProof struct {
	nameProof

	N      int    `json:"n"` // from 1
	OID    uint32 `json:"oid"`
	Kind   string `json:"kind"`
	Member bool   `json:"member"` // the publication names it
	// of its entry in the publication, or of that of its schema; nil: none
	MembershipAge *int32        `json:"membership_age"`
	Columns       []columnProof `json:"columns"`
}

type columnProof struct {
	Name      string `json:"name"`
	Type      uint32 `json:"type"`
	Mod       int32  `json:"mod"`
	Dropped   bool   `json:"dropped"`
	Generated bool   `json:"generated"`
	Age       int32  `json:"age"`
}

type relationProof struct {
	nameProof

	Partition bool     `json:"partition"`
	Columns   []rowAge `json:"columns"` // that are not dropped
}

type linkProof struct {
	nameProof

	Parent  uint32   `json:"parent"`
	Link    rowAge   `json:"link"`
	ID      string   `json:"id"` // xmin of the pg_inherits row
	Pending bool     `json:"pending"`
	Columns []rowAge `json:"columns"` // of the parent
}

// born is SQL for whether a catalog row is of the transaction that created a table: the table's
// system columns are written once.
func born(xmin, table string) string {
	return `coalesce(` + xmin + ` = (SELECT b.xmin FROM pg_catalog.pg_attribute b
    WHERE b.attrelid = ` + table + ` AND b.attnum = -1), false)`
}

// nameColumns is SQL for a nameProof of the pg_class row c.
var nameColumns = `
  'class', pg_catalog.json_build_object('age', pg_catalog.age(c.xmin),
    'born', ` + born("c.xmin", "c.oid") + `),
  'type', (SELECT pg_catalog.json_build_object('age', pg_catalog.age(y.xmin),
    'born', ` + born("y.xmin", "c.oid") + `)
    FROM pg_catalog.pg_type y WHERE y.oid = c.reltype),
  'name', c.relname, 'namespace_oid', c.relnamespace::pg_catalog.int8,
  'namespace', (SELECT s.nspname FROM pg_catalog.pg_namespace s WHERE s.oid = c.relnamespace),
  'namespace_age', (SELECT pg_catalog.age(s.xmin) FROM pg_catalog.pg_namespace s
    WHERE s.oid = c.relnamespace)`

// columnAges is SQL for the ages of the columns of the pg_class row c.
var columnAges = `(SELECT pg_catalog.json_agg(pg_catalog.json_build_object(
    'age', pg_catalog.age(a.xmin), 'born', ` + born("a.xmin", "c.oid") + `))
    FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0
      AND NOT a.attisdropped)`

// linkColumns are those of up, of the pg_inherits row i.
var linkColumns = `i.inhrelid, i.inhparent, ` + born("i.xmin", "i.inhrelid") + `,
    pg_catalog.age(i.xmin), i.xmin::text, i.inhdetachpending`

// membership is SQL for a value of the entry m of table c in the publication.
func membership(value string) string {
	return `(SELECT ` + value + ` FROM pg_catalog.pg_publication_rel m
      JOIN pg_catalog.pg_publication p ON p.oid = m.prpubid
      WHERE m.prrelid = c.oid AND p.pubname = $2::pg_catalog.name)`
}

// Publications of schemas came with PostgreSQL 15.
const schemaMembership = `(SELECT pg_catalog.age(m.xmin) FROM pg_catalog.pg_publication_namespace m
      JOIN pg_catalog.pg_publication p ON p.oid = m.pnpubid
      WHERE m.pnnspid = c.relnamespace AND p.pubname = $2::pg_catalog.name)`

// selectProof has the parameters slot, publication, schemas and names of the outbox tables, OID of
// the relation.
var selectProof = `
WITH RECURSIVE up(depth, child, parent, born, age, id, pending) AS (
  SELECT 1, ` + linkColumns + `
  FROM pg_catalog.pg_inherits i
  JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid AND c.relispartition
  WHERE i.inhrelid = $5::pg_catalog.oid
  UNION ALL
  SELECT up.depth + 1, ` + linkColumns + `
  FROM up JOIN pg_catalog.pg_inherits i ON i.inhrelid = up.parent
  JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid AND c.relispartition),
slot AS (
  SELECT pg_catalog.age(r.catalog_xmin) AS horizon,
    r.confirmed_flush_lsn::pg_catalog.text AS confirmed, r.restart_lsn::pg_catalog.text AS kept
  FROM pg_catalog.pg_replication_slots r WHERE r.slot_name = $1::pg_catalog.name),
wanted AS (
  SELECT w.n, c.oid
  FROM ROWS FROM (pg_catalog.unnest($3::pg_catalog.name[]),
    pg_catalog.unnest($4::pg_catalog.name[])) WITH ORDINALITY AS w(nspname, relname, n)
  JOIN pg_catalog.pg_namespace ns ON ns.nspname = w.nspname
  JOIN pg_catalog.pg_class c ON c.relnamespace = ns.oid AND c.relname = w.relname)
SELECT pg_catalog.json_build_object(
  'behind', pg_catalog.pg_current_wal_insert_lsn()::pg_catalog.text,
  'snapshot', pg_catalog.pg_current_snapshot()::pg_catalog.text,
  'horizon', (SELECT horizon FROM slot), 'confirmed', (SELECT confirmed FROM slot),
  'kept', (SELECT kept FROM slot),
  'publication', (SELECT pg_catalog.json_build_object('age', pg_catalog.age(p.xmin),
      'via_root', p.pubviaroot, 'all_tables', p.puballtables)
    FROM pg_catalog.pg_publication p WHERE p.pubname = $2::pg_catalog.name),
  'tables', (SELECT coalesce(pg_catalog.json_agg(pg_catalog.json_build_object(
      'n', w.n, 'oid', c.oid::pg_catalog.int8, 'kind', c.relkind, ` + nameColumns + `,
      'member', EXISTS ` + membership("") + `,
      'membership_age', coalesce(` + membership("pg_catalog.age(m.xmin)") + `, SCHEMA_MEMBERSHIP),
      'columns', (SELECT pg_catalog.json_agg(pg_catalog.json_build_object('name', a.attname,
          'type', a.atttypid::pg_catalog.int8, 'mod', a.atttypmod, 'dropped', a.attisdropped,
          'generated', a.attgenerated <> '', 'age', pg_catalog.age(a.xmin)))
        FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0))), '[]')
    FROM wanted w JOIN pg_catalog.pg_class c ON c.oid = w.oid),
  'relation', (SELECT pg_catalog.json_build_object('partition', c.relispartition,
      ` + nameColumns + `, 'columns', ` + columnAges + `)
    FROM pg_catalog.pg_class c WHERE c.oid = $5::pg_catalog.oid),
  'links', (SELECT coalesce(pg_catalog.json_agg(pg_catalog.json_build_object(
      'parent', up.parent::pg_catalog.int8, 'columns', ` + columnAges + `,
      'link', pg_catalog.json_build_object('age', up.age, 'born', up.born), 'id', up.id,
      'pending', up.pending, ` + nameColumns + `) ORDER BY up.depth), '[]')
    FROM up JOIN pg_catalog.pg_class c ON c.oid = up.parent),
  'members',
    (SELECT coalesce(pg_catalog.json_agg(pg_catalog.json_build_object(` + nameColumns + `)), '[]')
    FROM pg_catalog.pg_publication_rel m JOIN pg_catalog.pg_publication p ON p.oid = m.prpubid
    JOIN pg_catalog.pg_class c ON c.oid = m.prrelid
    WHERE p.pubname = $2::pg_catalog.name AND c.oid <> $5::pg_catalog.oid
      AND EXISTS (SELECT FROM wanted w WHERE w.oid = $5::pg_catalog.oid))
)::pg_catalog.text`

func (a *Assigner) queryProof(ctx context.Context, conn *pgx.Conn, oid uint32) (*proof, error) {
	inSchema := schemaMembership
	if postgres.Major(conn) < 15 {
		inSchema = "NULL::pg_catalog.int4"
	}
	sql := strings.Replace(selectProof, "SCHEMA_MEMBERSHIP", inSchema, 1)
	schemas, names := slot.SplitTables(a.tables)
	document, err := postgres.One[[]byte](ctx, conn, sql, a.slot, a.publication, schemas, names, oid)
	if err != nil {
		return nil, err
	}
	e := proof{columnLists: postgres.Major(conn) >= 15}
	if err := json.Unmarshal(document, &e); err != nil {
		return nil, fmt.Errorf("decode the catalog rows of relation %d: %w", oid, err)
	}
	for _, t := range e.Tables {
		if err := slot.CheckNumbers(len(a.tables), t.N); err != nil {
			return nil, err
		}
	}
	e.confirmed, e.kept, e.behind = pglogrepl.LSN(e.Confirmed), pglogrepl.LSN(e.Kept),
		pglogrepl.LSN(e.Behind)
	e.snapshot, err = slot.ParseSnapshot(e.Snapshot)
	return &e, err
}

// old reports whether a catalog row of this age was committed before all that the slot still
// sends. A negative age is that of a frozen row whose xid was used again since.
func (e *proof) old(age int32) bool {
	return e.Horizon != nil && (age < 0 || age > *e.Horizon)
}

func (e *proof) steady(r rowAge) bool { return r.Born || e.old(r.Age) }

// named reports whether a table had the name that it has now at the commit of every row that the
// slot still sends and that can be of it.
func (e *proof) named(n nameProof) bool {
	return (e.steady(n.Class) || e.steady(n.Type)) && e.old(n.NamespaceAge)
}

// namedBefore reports whether no other table can have had the name meanwhile either.
func (e *proof) namedBefore(n nameProof) bool {
	return (e.old(n.Class.Age) || e.old(n.Type.Age)) && e.old(n.NamespaceAge)
}

// neverPartition reports whether a relation that is no partition now has been none all the time:
// to cease to be one writes its pg_class row and those of all its columns.
func (e *proof) neverPartition() bool {
	r := e.Relation
	return r != nil && !r.Partition && e.eitherSteady(r.Class, r.Columns)
}

func (e *proof) eitherSteady(class rowAge, columns []rowAge) bool {
	return e.steady(class) || slices.ContainsFunc(columns, e.steady)
}

// rooted reports whether the relation has had its place below the table at the top all the time,
// and that table none below another.
func (e *proof) rooted() bool {
	if len(e.Links) == 0 || e.Relation == nil || !e.Relation.Partition {
		return false
	}
	top := e.Links[len(e.Links)-1]
	return e.linked(len(e.Links)) && e.eitherSteady(top.Class, top.Columns)
}

// linked reports whether all links up to depth are steady.
func (e *proof) linked(depth int) bool {
	return !slices.ContainsFunc(e.Links[:depth],
		func(l linkProof) bool { return l.Pending || !e.steady(l.Link) })
}

// viaRoot reports whether the server has sent no row under the name of a partition of t all the
// time.
func (e *proof) viaRoot(t tableProof) bool {
	p := e.Publication
	return p != nil && p.ViaRoot && e.old(p.Age) &&
		(p.AllTables || t.MembershipAge != nil && e.old(*t.MembershipAge))
}
