package slot

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
)

// evidence is what decides whether inserted rows are in the stream, as one snapshot of the
// catalog. The xmin of a row of the catalog reveals a change that was put back. That of pg_class
// does not: GRANT, VACUUM FULL and new partitions write it too.
type evidence struct {
	Publication *publicationRow `json:"publication"` // nil: does not exist
	Tables      []tableRow      `json:"tables"`      // that exist
	Entries     []entry         `json:"entries"`
	Unsendable  []leaf          `json:"unsendable"`

	storage map[uint32]storage // of the tables and their partitions
	// end of the WAL, read after the snapshot was taken: every change in the snapshot is before it.
	// Zero: not known
	end  pglogrepl.LSN
	xmin uint64 // every transaction before it has ended
	xmax uint64 // no transaction from it on had begun
}

type publicationRow struct {
	OID       uint32 `json:"oid"`
	Xmin      uint32 `json:"xmin"`
	AllTables bool   `json:"all"`  // FOR ALL TABLES
	ViaRoot   bool   `json:"root"` // rows of a partition come under the name of the partitioned table
	Insert    bool   `json:"insert"`
	Update    bool   `json:"update"`
	Delete    bool   `json:"delete"`
	Truncate  bool   `json:"truncate"`
}

type tableRow struct {
	N               int    `json:"n"` // which of the tables, from 1 on
	OID             uint32 `json:"oid"`
	Kind            string `json:"kind"`
	Persistence     string `json:"persistence"`
	ReplicaIdentity string `json:"identity"`
	Root            string `json:"root"`
	// TypeXmin is the xmin of the table's row type in pg_type. RENAME, SET SCHEMA, OWNER TO and GRANT
	// ON TYPE write that row.
	TypeXmin     uint32 `json:"named"`
	OwnerChanged bool   `json:"given"` // the transaction TypeXmin changed the owner
	Owner        uint32 `json:"owner"`
	// TypeACL is typacl of the row type. It distinguishes GRANT ON TYPE from RENAME.
	TypeACL string      `json:"acl"`
	Schema  schemaRow   `json:"schema"`
	Columns []columnRow `json:"columns"` // all there ever were
}

// schemaRow is the schema of a table. RENAME writes it, as GRANT, REVOKE and a change of the owner
// do.
type schemaRow struct {
	OID   uint32 `json:"oid"`
	Xmin  uint32 `json:"xmin"`
	Owner uint32 `json:"owner"`
	ACL   string `json:"acl"`
}

// columnRow is what of a column a table cannot change without writing its rows again.
type columnRow struct {
	Number    int16  `json:"n"`
	Type      uint32 `json:"t"`
	Modifier  int32  `json:"m"`
	Collation uint32 `json:"c"`
	Generated string `json:"g"`
	Dropped   bool   `json:"d"`
}

// entry is a row of pg_publication_rel or pg_publication_namespace that publishes a table: that of
// the table, of its schema, or of a partitioned ancestor or the ancestor's schema.
type entry struct {
	N int `json:"n"`
	// Level: 0 is the table, 1 its parent, 2 the parent of that; -1 is a partition of the table that
	// has a row filter or column list of its own
	Level    int    `json:"level"`
	Schema   string `json:"schema"` // the published one; empty for a row of pg_publication_rel
	Relation uint32 `json:"relation"`
	OID      uint32 `json:"oid"`
	Xmin     uint32 `json:"xmin"`
	Moved    uint32 `json:"moved"`    // the transaction that moved Relation into Schema; zero without
	Filtered bool   `json:"filtered"` // has a row filter or a column list
}

// leaf is a partition whose rows never reach the WAL.
type leaf struct {
	N       int    `json:"n"`
	Schema  string `json:"schema"`
	Name    string `json:"name"`
	Parent  string `json:"parent"` // quoted, for SQL
	Foreign bool   `json:"foreign"`
}

// storage is where the rows of a table are. ALTER TABLE that rewrites it, and so SET UNLOGGED and
// SET LOGGED, gives it another TOAST table; VACUUM FULL, CLUSTER and TRUNCATE only other files.
type storage struct {
	n           int // the table's number
	toast, file uint32
}

// selectEvidence is one statement, and reads tables of the catalog only: views and functions see
// what was committed after the snapshot, and some lock the tables. Parameters: publication,
// schemas, tables.
func selectEvidence(major int) string {
	filtered, schemas := "pr.prqual IS NOT NULL OR pr.prattrs IS NOT NULL", `
  UNION ALL
  SELECT r.n, r.level, ns.nspname::text, r.oid, pn.oid, pn.xmin, coalesce(d.xmin::text, '0'), false
  FROM publication p JOIN pg_catalog.pg_publication_namespace pn ON pn.pnpubid = p.oid
  JOIN pg_catalog.pg_namespace ns ON ns.oid = pn.pnnspid
  JOIN pg_catalog.pg_class c ON c.relnamespace = pn.pnnspid JOIN above r ON r.oid = c.oid
  LEFT JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass::pg_catalog.oid AND d.objid = r.oid AND d.objsubid = 0
    AND d.refclassid = 'pg_catalog.pg_namespace'::pg_catalog.regclass::pg_catalog.oid`
	if major < 15 {
		filtered, schemas = "false", ""
	}
	return strings.NewReplacer("{filtered}", filtered, "{schemas}", schemas).Replace(evidenceSQL)
}

const evidenceSQL = `
WITH RECURSIVE publication AS (
  SELECT p.oid, p.xmin AS written, p.puballtables, p.pubviaroot, p.pubinsert, p.pubupdate,
    p.pubdelete, p.pubtruncate
  FROM pg_catalog.pg_publication p WHERE p.pubname = $1::text),
wanted(n, oid, kind, persistence, toast, file) AS (
  SELECT w.n, c.oid, c.relkind, c.relpersistence, c.reltoastrelid, c.relfilenode
  FROM ROWS FROM (pg_catalog.unnest($2::text[]), pg_catalog.unnest($3::text[]))
    WITH ORDINALITY AS w(nspname, relname, n)
  JOIN pg_catalog.pg_namespace ns ON ns.nspname = w.nspname
  JOIN pg_catalog.pg_class c ON c.relnamespace = ns.oid AND c.relname = w.relname),
tree(n, oid, kind, persistence, toast, file, parent) AS (
  SELECT w.*, 0::pg_catalog.oid FROM wanted w
  UNION ALL
  SELECT t.n, c.oid, c.relkind, c.relpersistence, c.reltoastrelid, c.relfilenode, t.oid
  FROM tree t JOIN pg_catalog.pg_inherits i ON i.inhparent = t.oid
  JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid AND c.relispartition
  WHERE t.kind = 'p'::"char"),
above(n, oid, level) AS (
  SELECT n, oid, 0 FROM wanted
  UNION ALL
  SELECT a.n, i.inhparent, a.level + 1
  FROM above a JOIN pg_catalog.pg_class c ON c.oid = a.oid AND c.relispartition
  JOIN pg_catalog.pg_inherits i ON i.inhrelid = a.oid),
entries(n, level, schema, relation, oid, xmin, moved, filtered) AS (
  SELECT r.n, r.level, '', r.oid, pr.oid, pr.xmin, '0', {filtered}
  FROM publication p JOIN pg_catalog.pg_publication_rel pr ON pr.prpubid = p.oid
  JOIN above r ON r.oid = pr.prrelid
  UNION ALL
  SELECT t.n, -1, '', t.oid, pr.oid, pr.xmin, '0', true
  FROM publication p JOIN pg_catalog.pg_publication_rel pr ON pr.prpubid = p.oid
  JOIN tree t ON t.oid = pr.prrelid
  WHERE NOT p.pubviaroot AND t.parent <> 0::pg_catalog.oid AND ({filtered}){schemas})
SELECT pg_catalog.jsonb_build_object(
  'publication', (SELECT pg_catalog.jsonb_build_object('oid', p.oid::text::bigint,
    'xmin', p.written::text::bigint, 'all', p.puballtables, 'root', p.pubviaroot,
    'insert', p.pubinsert,
    'update', p.pubupdate, 'delete', p.pubdelete, 'truncate', p.pubtruncate) FROM publication p),
  'tables', (SELECT pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object('n', w.n,
    'oid', w.oid::text::bigint, 'kind', c.relkind::text, 'persistence', c.relpersistence::text,
    'identity', c.relreplident::text, 'named', y.xmin::text::bigint,
    'given', EXISTS (SELECT FROM pg_catalog.pg_shdepend o
        JOIN pg_catalog.pg_database d ON d.oid = o.dbid
        WHERE d.datname = pg_catalog.current_database()
          AND o.classid = 'pg_catalog.pg_class'::pg_catalog.regclass::pg_catalog.oid
          AND o.objid = c.oid AND o.deptype = 'o'::"char" AND o.xmin = y.xmin)
      OR EXISTS (SELECT FROM pg_catalog.pg_class toast
        WHERE toast.oid = c.reltoastrelid AND toast.xmin = y.xmin),
    'owner', c.relowner::text::bigint, 'acl', y.typacl::text,
    'schema', (SELECT pg_catalog.jsonb_build_object('oid', ns.oid::text::bigint,
        'xmin', ns.xmin::text::bigint, 'owner', ns.nspowner::text::bigint, 'acl', ns.nspacl::text)
      FROM pg_catalog.pg_namespace ns WHERE ns.oid = c.relnamespace),
    'columns', (SELECT pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object('n', a.attnum,
        't', a.atttypid::text::bigint, 'm', a.atttypmod, 'c', a.attcollation::text::bigint,
        'g', a.attgenerated::text, 'd', a.attisdropped) ORDER BY a.attnum)
      FROM pg_catalog.pg_attribute a WHERE a.attrelid = w.oid AND a.attnum > 0),
    'root', (SELECT rn.nspname::text || '.' || r.relname::text
      FROM above a JOIN pg_catalog.pg_class r ON r.oid = a.oid
      JOIN pg_catalog.pg_namespace rn ON rn.oid = r.relnamespace
      WHERE a.n = w.n AND a.level > 0 ORDER BY a.level DESC LIMIT 1)) ORDER BY w.n)
    FROM wanted w JOIN pg_catalog.pg_class c ON c.oid = w.oid
    LEFT JOIN pg_catalog.pg_type y ON y.oid = c.reltype),
  'entries', (SELECT pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object('n', e.n, 'level', e.level,
      'schema', e.schema, 'relation', e.relation::text::bigint, 'oid', e.oid::text::bigint,
      'xmin', e.xmin::text::bigint, 'moved', e.moved::bigint, 'filtered', e.filtered)
      ORDER BY e.n, e.level, e.oid) FROM entries e),
  'unsendable', (SELECT pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object('n', t.n,
      'schema', ns.nspname::text, 'name', c.relname::text, 'foreign', c.relkind = 'f'::"char",
      'parent', (SELECT pg_catalog.format('%I.%I', pn.nspname::text, p.relname::text)
        FROM pg_catalog.pg_class p JOIN pg_catalog.pg_namespace pn ON pn.oid = p.relnamespace
        WHERE p.oid = t.parent)) ORDER BY t.n, c.oid)
    FROM tree t JOIN pg_catalog.pg_class c ON c.oid = t.oid
    JOIN pg_catalog.pg_namespace ns ON ns.oid = c.relnamespace
    WHERE t.parent <> 0::pg_catalog.oid AND t.kind <> 'p'::"char"
      AND (t.kind <> 'r'::"char" OR t.persistence <> 'p'::"char"))),
  m.numbers, m.oids, m.toasts, m.files,
  (CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()
    ELSE pg_catalog.pg_current_wal_insert_lsn() END)::text,
  pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())::text::bigint,
  pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text::bigint
FROM (SELECT pg_catalog.array_agg(t.n) AS numbers, pg_catalog.array_agg(t.oid) AS oids,
  pg_catalog.array_agg(t.toast) AS toasts, pg_catalog.array_agg(t.file) AS files FROM tree t) m`

func readEvidence(ctx context.Context, conn *pgx.Conn, publication string,
	tables []string) (*evidence, error) {
	schemas, names := SplitTables(tables)
	e := &evidence{}
	var numbers []int
	var oids, toasts, files []uint32
	var end *string
	err := conn.QueryRow(ctx, selectEvidence(postgres.Major(conn)), publication, schemas, names).
		Scan(e, &numbers, &oids, &toasts, &files, &end, &e.xmin, &e.xmax)
	if err == nil && end != nil {
		e.end, err = postgres.ParseLSN(*end)
	}
	if err != nil {
		return nil, postgres.Error(err)
	}
	if len(numbers) != len(oids) || len(toasts) != len(oids) || len(files) != len(oids) {
		return nil, fmt.Errorf("the server returned %d numbers, %d TOAST tables and %d files of "+
			"%d tables", len(numbers), len(toasts), len(files), len(oids))
	}
	e.storage = make(map[uint32]storage, len(oids))
	for i, oid := range oids {
		e.storage[oid] = storage{numbers[i], toasts[i], files[i]}
	}
	return e, CheckNumbers(len(tables), append(e.numbers(), numbers...)...)
}

// numbers are those of the tables in all rows.
func (e *evidence) numbers() []int {
	var numbers []int
	for _, t := range e.Tables {
		numbers = append(numbers, t.N)
	}
	for _, entry := range e.Entries {
		numbers = append(numbers, entry.N)
	}
	for _, l := range e.Unsendable {
		numbers = append(numbers, l.N)
	}
	return numbers
}

// of returns the entries of a table.
func (e *evidence) of(n int) []entry {
	return slices.DeleteFunc(slices.Clone(e.Entries), func(entry entry) bool { return entry.N != n })
}

// table is what is known of a table; zero: it does not exist.
func (e *evidence) table(n int) tableRow {
	if i := slices.IndexFunc(e.Tables, func(row tableRow) bool { return row.N == n }); i >= 0 {
		return e.Tables[i]
	}
	return tableRow{}
}

// problem is that of the table with this partition.
func (l leaf) problem(publication, table string) *PublicationError {
	quoted := pgx.Identifier{l.Schema, l.Name}.Sanitize()
	what, sql := "is unlogged", "ALTER TABLE "+quoted+" SET LOGGED;"
	if l.Foreign {
		what, sql = "is a foreign table", "ALTER TABLE "+l.Parent+" DETACH PARTITION "+quoted+";"
	}
	return &PublicationError{
		Publication: publication, Table: table, InTable: true, SQL: sql,
		Problem: "has a partition whose rows never reach the WAL: " + l.Schema + "." + l.Name +
			" " + what,
	}
}
