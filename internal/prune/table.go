package prune

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/slot"
)

// table is an outbox table as the catalog has it.
type table struct {
	Relation
	kind    string   // pg_class.relkind
	ids     []string // columns that a dead letter may name a row by
	indexed bool     // an index begins with Column
	holds   bool     // Column is of a type of time
}

// described is the answer of describeSQL.
type described struct {
	OID       uint32   `json:"oid"`
	Kind      string   `json:"kind"`
	Select    bool     `json:"select"`
	Delete    bool     `json:"delete"`
	Lock      bool     `json:"lock"` // UPDATE of a column, which FOR UPDATE requires
	Secured   bool     `json:"secured"`
	Foreign   []string `json:"foreign"`  // tables with a foreign key to it
	Unlink    []string `json:"unlink"`   // statements that drop these keys
	Triggers  []string `json:"triggers"` // of DELETE
	Rules     []string `json:"rules"`    // of DELETE
	Deletes   []string `json:"deletes"`  // other publications that publish them
	Columns   []column `json:"columns"`
	KeyColumn []string `json:"key"` // of the primary key and the replica identity
}

type column struct {
	Name    string `json:"name"`
	Type    string `json:"type"`
	Indexed bool   `json:"indexed"`
}

// describeSQL has under key also the keys of partitions: their rows may be published under their
// own name, and a partition may have a key that the table does not have.
const describeSQL = `SELECT pg_catalog.jsonb_build_object(
	'oid', c.oid::text::bigint, 'kind', c.relkind::text,
	'select', pg_catalog.has_table_privilege(c.oid, 'SELECT'),
	'delete', pg_catalog.has_table_privilege(c.oid, 'DELETE'),
	'lock', pg_catalog.has_any_column_privilege(c.oid, 'UPDATE'),
	'secured', pg_catalog.row_security_active(c.oid),
	'foreign', (SELECT pg_catalog.jsonb_agg(pg_catalog.format('%I.%I', n.nspname, r.relname))
		FROM pg_catalog.pg_constraint k JOIN pg_catalog.pg_class r ON r.oid = k.conrelid
		JOIN pg_catalog.pg_namespace n ON n.oid = r.relnamespace
		WHERE k.confrelid = c.oid AND k.contype = 'f'::"char"),
	'unlink', (SELECT pg_catalog.jsonb_agg(pg_catalog.format('ALTER TABLE %I.%I DROP CONSTRAINT %I;',
			n.nspname, r.relname, k.conname) ORDER BY k.oid)
		FROM pg_catalog.pg_constraint k JOIN pg_catalog.pg_class r ON r.oid = k.conrelid
		JOIN pg_catalog.pg_namespace n ON n.oid = r.relnamespace
		WHERE k.confrelid = c.oid AND k.contype = 'f'::"char" AND k.conparentid = 0::pg_catalog.oid),
	'triggers', (SELECT pg_catalog.jsonb_agg(t.tgname::text) FROM pg_catalog.pg_trigger t
		WHERE t.tgrelid = c.oid AND NOT t.tgisinternal AND t.tgenabled <> 'D'::"char"
			AND t.tgtype::integer & 8 <> 0),
	'rules', (SELECT pg_catalog.jsonb_agg(w.rulename::text) FROM pg_catalog.pg_rewrite w
		WHERE w.ev_class = c.oid AND w.ev_type = '4'::"char"),
	'deletes', (SELECT pg_catalog.jsonb_agg(p.pubname::text) FROM pg_catalog.pg_publication p
		WHERE p.pubname <> $3::text AND p.pubdelete AND (p.puballtables OR EXISTS (
			SELECT FROM pg_catalog.pg_publication_rel e
			WHERE e.prpubid = p.oid AND e.prrelid = c.oid))),
	'key', (SELECT pg_catalog.jsonb_agg(DISTINCT a.attname::text) FROM pg_catalog.pg_index i
		JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
		WHERE (i.indisprimary OR i.indisreplident) AND (i.indrelid = c.oid OR EXISTS (
			SELECT FROM pg_catalog.pg_inherits h JOIN pg_catalog.pg_class l ON l.oid = h.inhrelid
			WHERE h.inhparent = c.oid AND l.relispartition AND l.oid = i.indrelid))),
	'columns', (SELECT pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object('name', a.attname::text,
		'type', pg_catalog.format_type(a.atttypid, NULL),
		'indexed', EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid
			AND i.indisvalid AND i.indpred IS NULL AND i.indkey[0] = a.attnum)))
		FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0
			AND NOT a.attisdropped))
	FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
	WHERE n.nspname = $1::text AND c.relname = $2::text`

// The types of a column that orders rows, as format_type writes them. They are compared by
// operators of pg_catalog.
var (
	timeTypes    = []string{"date", "timestamp without time zone", "timestamp with time zone"}
	integerTypes = []string{"smallint", "integer", "bigint"}
)

// Source is an outbox table with the columns that its router uses.
type Source struct {
	Table string // schema.name
	// ID is the column with the id of the event; Timestamp that with its time, or empty.
	ID, Timestamp string
}

// describe reads a table. The error is a *slot.Error if it must not be pruned. warnings are for
// people.
func describe(ctx context.Context, conn *pgx.Conn, src Source, wanted,
	publication string) (t *table, warnings []string, err error) {
	schema, name := slot.SplitTable(src.Table)
	d := &described{}
	err = conn.QueryRow(ctx, describeSQL, schema, name, publication).Scan(d)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil, refuse(src.Table, "does not exist", "correct replication.tables")
	}
	if err != nil {
		return nil, nil, fmt.Errorf("describe table %s: %w", src.Table, postgres.Error(err))
	}
	if err := d.refusal(src.Table, conn.Config().User); err != nil {
		return nil, nil, err
	}
	t = &table{Relation: Relation{OID: d.OID, Name: src.Table}, kind: d.Kind, ids: d.KeyColumn}
	for _, c := range d.Columns {
		if c.Name == src.ID && !slices.Contains(t.ids, c.Name) {
			t.ids = append(t.ids, c.Name)
		}
	}
	if err := t.choose(d.Columns, src, wanted); err != nil {
		return nil, nil, err
	}
	if t.Column != "" && !t.indexed {
		warnings = append(warnings, fmt.Sprintf("no index begins with column %s, so each run reads the "+
			"whole table: CREATE INDEX CONCURRENTLY ON %s (%s);", postgres.QuoteName(t.Column),
			slot.QuoteTable(src.Table), postgres.QuoteName(t.Column)))
	}
	if len(d.Deletes) > 0 {
		warnings = append(warnings, "its deletes are published to others by publication "+
			strings.Join(d.Deletes, ", "))
	}
	return t, warnings, nil
}

// choose sets the column: the wanted one, or the first that is there and of a fitting type.
func (t *table) choose(columns []column, src Source, wanted string) error {
	candidates := []string{src.Timestamp, "created_at"}
	if wanted != "" {
		candidates = []string{wanted}
	}
	for _, name := range candidates {
		for _, c := range columns {
			holds := slices.Contains(timeTypes, c.Type)
			if c.Name == name && (holds || slices.Contains(integerTypes, c.Type)) {
				t.Column, t.ColumnType, t.indexed, t.holds = c.Name, c.Type, c.Indexed, holds
				return nil
			}
		}
	}
	if wanted == "" {
		return nil
	}
	return refuse(src.Table, fmt.Sprintf("has no column %q of a type of time or an integer",
		wanted), "correct prune.column: a column that no update changes, as created_at or a "+
		"generated id")
}

// refusal is why a table must not be pruned, or nil.
func (d *described) refusal(name, user string) error {
	quoted, role := slot.QuoteTable(name), postgres.QuoteName(user)
	switch {
	case d.Kind != "r" && d.Kind != "p":
		return refuse(name, "is not a table", "correct replication.tables")
	case !d.Select || !d.Delete || !d.Lock:
		any := postgres.QuoteName(d.Columns[0].Name)
		return refuse(name, "takes SELECT, DELETE, and UPDATE of one column to lock its rows, which "+
			"this role lacks", "as the owner of the table: GRANT SELECT, DELETE, UPDATE ("+any+
			") ON "+quoted+" TO "+role+";")
	case d.Secured:
		return refuse(name, "has row security, which hides rows from this role",
			"ALTER ROLE "+role+" BYPASSRLS; -- as a superuser")
	case len(d.Foreign) > 0:
		return refuse(name, "is referenced by a foreign key of "+strings.Join(d.Foreign, ", ")+
			": a delete would fail there, or delete there too", strings.Join(d.Unlink, "\n"))
	case len(d.Triggers) > 0:
		return refuse(name, "has a trigger that a delete fires: "+strings.Join(d.Triggers, ", "),
			"ALTER TABLE "+quoted+" DISABLE TRIGGER "+postgres.QuoteName(d.Triggers[0])+
				"; -- or drop it")
	case len(d.Rules) > 0:
		return refuse(name, "has a rule for deletes: "+strings.Join(d.Rules, ", "),
			"DROP RULE "+postgres.QuoteName(d.Rules[0])+" ON "+quoted+";")
	}
	return nil
}

// refuse is the error of a table that must not be pruned.
func refuse(table, problem, fix string) error {
	return &slot.Error{Err: fmt.Errorf("%w: table %s %s", ErrRefused, table, problem),
		WAL: nothingRemoved, Fix: fix}
}
