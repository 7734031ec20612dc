package writeback

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/internal/prune"
	"github.com/postrider/postrider/slot"
)

// relation is a table, or a leaf partition of one, as the catalog has it.
type relation struct {
	OID       uint32   `json:"oid"`
	Schema    string   `json:"schema"`
	Table     string   `json:"name"`
	Kind      string   `json:"kind"`   // pg_class.relkind
	Depth     int      `json:"depth"`  // below the configured table; zero: itself
	Rows      int64    `json:"rows"`   // as the planner estimates them; -1: not known
	Select    bool     `json:"select"` // this role may read it
	Secured   bool     `json:"secured"`
	Sealed    bool     `json:"sealed"`    // by pruning, which removes it soon: no row can be updated
	Triggers  []string `json:"triggers"`  // of UPDATE
	Rules     []string `json:"rules"`     // of UPDATE
	Functions []string `json:"functions"` // of others, that an UPDATE calls
	Routed    []string `json:"routed"`    // columns of the partition keys above it
	Identity  []string `json:"identity"`  // columns of the replica identity
	Columns   []column `json:"columns"`
	Key       []string `json:"key"` // of the primary key
}

type column struct {
	Name       string   `json:"name"`
	Type       string   `json:"type"`   // as format_type writes it, without modifier
	Length     int      `json:"length"` // of varchar and char, in characters; zero: no limit
	NotNull    bool     `json:"not_null"`
	Generated  bool     `json:"generated"`
	Update     bool     `json:"update"`      // this role may update it
	Indexed    bool     `json:"indexed"`     // a valid index begins with it or has a predicate about it
	EnumLabels []string `json:"enum_labels"` // nil: no enum
}

// name is schema.name.
func (r *relation) name() string { return r.Schema + "." + r.Table }

// quoted is the relation in SQL.
func (r *relation) quoted() string { return pgx.Identifier{r.Schema, r.Table}.Sanitize() }

func (r *relation) column(name string) (c column, found bool) {
	i := slices.IndexFunc(r.Columns, func(c column) bool { return c.Name == name })
	if i < 0 {
		return column{}, false
	}
	return r.Columns[i], true
}

const describeSQL = `
WITH RECURSIVE tree(oid, depth) AS (
	SELECT c.oid, 0 FROM pg_catalog.pg_class c
	JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
	WHERE n.nspname = $1::text AND c.relname = $2::text
	UNION ALL
	SELECT i.inhrelid, tree.depth + 1 FROM tree
	JOIN pg_catalog.pg_inherits i ON i.inhparent = tree.oid
	JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid AND c.relispartition),
above(oid, parent) AS (
	SELECT tree.oid, tree.oid FROM tree
	UNION ALL
	SELECT a.oid, i.inhparent FROM above a
	JOIN pg_catalog.pg_class c ON c.oid = a.parent AND c.relispartition
	JOIN pg_catalog.pg_inherits i ON i.inhrelid = a.parent)
SELECT pg_catalog.jsonb_build_object(
	'oid', c.oid::text::bigint, 'schema', n.nspname, 'name', c.relname, 'kind', c.relkind::text,
	'depth', tree.depth, 'rows', c.reltuples::bigint,
	'select', pg_catalog.has_table_privilege(c.oid, 'SELECT'),
	'secured', pg_catalog.row_security_active(c.oid),
	'sealed', EXISTS (SELECT FROM pg_catalog.pg_constraint k
		WHERE k.conrelid = c.oid AND k.conname = 'postrider_pruned'),
	'triggers', (SELECT pg_catalog.jsonb_agg(t.tgname::text ORDER BY t.tgname)
		FROM pg_catalog.pg_trigger t WHERE t.tgrelid = c.oid AND NOT t.tgisinternal
			AND t.tgenabled NOT IN ('D'::"char", 'R'::"char") AND t.tgtype::integer & 16 <> 0),
	'rules', (SELECT pg_catalog.jsonb_agg(w.rulename::text ORDER BY w.rulename)
		FROM pg_catalog.pg_rewrite w WHERE w.ev_class = c.oid AND w.ev_type = '2'::"char"
			AND w.ev_enabled NOT IN ('D'::"char", 'R'::"char")),
	'functions', (SELECT pg_catalog.jsonb_agg(DISTINCT COALESCE(f.proname, o.oprname)::text)
		FROM pg_catalog.pg_depend d
		LEFT JOIN pg_catalog.pg_proc f ON f.oid = d.refobjid
			AND d.refclassid = 'pg_catalog.pg_proc'::pg_catalog.regclass::pg_catalog.oid
		LEFT JOIN pg_catalog.pg_operator o ON o.oid = d.refobjid
			AND d.refclassid = 'pg_catalog.pg_operator'::pg_catalog.regclass::pg_catalog.oid
		JOIN pg_catalog.pg_roles u ON u.oid IN (f.proowner, o.oprowner)
		WHERE NOT u.rolsuper AND u.rolname <> current_user AND (
			d.classid = 'pg_catalog.pg_constraint'::pg_catalog.regclass::pg_catalog.oid AND d.objid IN (
				SELECT k.oid FROM pg_catalog.pg_constraint k WHERE k.conrelid = c.oid)
			OR d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass::pg_catalog.oid AND d.objid IN (
				SELECT i.indexrelid FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid)
			OR d.classid = 'pg_catalog.pg_attrdef'::pg_catalog.regclass::pg_catalog.oid AND d.objid IN (
				SELECT e.oid FROM pg_catalog.pg_attrdef e JOIN pg_catalog.pg_attribute a
				ON a.attrelid = e.adrelid AND a.attnum = e.adnum
				WHERE e.adrelid = c.oid AND a.attgenerated <> ''::"char")
			OR d.classid = 'pg_catalog.pg_statistic_ext'::pg_catalog.regclass::pg_catalog.oid
				AND d.objid IN (
				SELECT e.oid FROM pg_catalog.pg_statistic_ext e WHERE e.stxrelid = c.oid))),
	'routed', (SELECT pg_catalog.jsonb_agg(DISTINCT a.attname::text)
		FROM above JOIN pg_catalog.pg_partitioned_table p ON p.partrelid = above.parent
		JOIN pg_catalog.pg_attribute a ON a.attrelid = above.parent AND a.attnum = ANY (p.partattrs)
		WHERE above.oid = c.oid),
	'identity', (SELECT pg_catalog.jsonb_agg(DISTINCT a.attname::text)
		FROM pg_catalog.pg_index i
		JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY (i.indkey)
		WHERE i.indrelid = c.oid AND (i.indisprimary OR i.indisreplident)),
	'key', (SELECT pg_catalog.jsonb_agg(a.attname::text ORDER BY a.attnum)
		FROM pg_catalog.pg_index i
		JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY (i.indkey)
		WHERE i.indrelid = c.oid AND i.indisprimary AND i.indisvalid),
	'columns', (SELECT pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object('name', a.attname::text,
		'type', pg_catalog.format_type(a.atttypid, NULL),
		'length', CASE WHEN a.atttypid IN (1042::pg_catalog.oid, 1043::pg_catalog.oid)
			AND a.atttypmod > 4 THEN a.atttypmod - 4 ELSE 0 END,
		'not_null', a.attnotnull, 'generated', a.attgenerated <> ''::"char",
		'update', pg_catalog.has_column_privilege(c.oid, a.attnum, 'UPDATE'),
		'indexed', EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid
			AND i.indisvalid AND (i.indkey[0] = a.attnum OR i.indpred IS NOT NULL AND EXISTS (
				SELECT FROM pg_catalog.pg_depend d WHERE d.objid = i.indexrelid
				AND d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass::pg_catalog.oid
				AND d.refobjid = c.oid AND d.refobjsubid = a.attnum))),
		'enum_labels', (SELECT pg_catalog.jsonb_agg(e.enumlabel::text ORDER BY e.enumsortorder)
			FROM pg_catalog.pg_enum e WHERE e.enumtypid = a.atttypid)) ORDER BY a.attnum)
		FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0
			AND NOT a.attisdropped))
FROM tree JOIN pg_catalog.pg_class c ON c.oid = tree.oid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
ORDER BY tree.depth, n.nspname, c.relname`

// describe reads a table and its partitions, itself first; none: it does not exist.
func describe(ctx context.Context, conn *pgx.Conn, table string) ([]*relation, error) {
	schema, name := slot.SplitTable(table)
	found, err := postgres.Collect(ctx, conn, pgx.RowTo[*relation], describeSQL, schema, name)
	if err != nil {
		return nil, fmt.Errorf("describe table %s: %w", table, err)
	}
	return found, nil
}

// The types of a column that can bound a coverage. They are compared by operators of pg_catalog.
var boundTypes = []string{
	"date", timestamp, timestamptz, "smallint", "integer", "bigint",
}

// proven is the relation for the proof, with the first of some columns that is there, of a fitting
// type, and not written.
func (r *relation) proven(src prune.Source, cfg Config) prune.Relation {
	p := prune.Relation{OID: r.OID, Name: r.name()}
	for _, name := range append([]string{src.Timestamp, "created_at"}, r.Key...) {
		c, found := r.column(name)
		if found && slices.Contains(boundTypes, c.Type) && !slices.Contains(cfg.columns(), name) {
			p.Column, p.ColumnType = c.Name, c.Type
			break
		}
	}
	return p
}
