package slot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"postrider/postgres"
)

// Publication is what the server says about a publication, and about the tables that are to be in it.
type Publication struct {
	Name      string
	OID       uint32 // zero: does not exist
	Exists    bool
	AllTables bool // FOR ALL TABLES
	ViaRoot   bool // rows of a partition come under the name of the partitioned table
	Insert    bool
	Update    bool
	Delete    bool
	Truncate  bool
	Tables    []Table  // as asked for, in that order
	Others    []string // schema-qualified tables that are in it and were not asked for, by name; at most othersLimit
	More      int      // others beyond that limit
}

const othersLimit = 20

// Table is a table that is to be in a publication.
type Table struct {
	Name        string   // as asked for: schema.name
	OID         uint32   // zero: does not exist
	Kind        string   // pg_class.relkind: r ordinary, p partitioned, anything else cannot be published
	Unlogged    bool     //
	Temporary   bool     //
	Root        string   // schema-qualified table of which it is a partition; empty: none
	Membership  uint32   // OID of its entry in the publication by name, under whatever name its rows come; zero: none
	Published   bool     // its rows come, under its own name or those of its partitions
	Partitions  bool     // they come under the names of its partitions
	RowFilter   string   // rows that don't match are not sent; empty: none
	ColumnNames []string // sent with its rows, in the table's order; nil: not published
	AllColumns  bool     // no column list leaves any out
}

// SplitTable cuts a configured name at its first dot. Names are written as they stand in the catalogue, without quotes.
func SplitTable(table string) (schema, name string) {
	schema, name, found := strings.Cut(table, ".")
	if !found {
		return "public", schema
	}
	return schema, name
}

func splitTables(tables []string) (schemas, names []string) {
	schemas, names = make([]string, len(tables)), make([]string, len(tables))
	for i, t := range tables {
		schemas[i], names[i] = SplitTable(t)
	}
	return schemas, names
}

// quoteTable is the name for SQL.
func quoteTable(table string) string {
	schema, name := SplitTable(table)
	return pgx.Identifier{schema, name}.Sanitize()
}

func quoteTables(tables []string) string {
	quoted := make([]string, len(tables))
	for i, t := range tables {
		quoted[i] = quoteTable(t)
	}
	return strings.Join(quoted, ", ")
}

func quoteName(name string) string { return pgx.Identifier{name}.Sanitize() }

// CreatePublicationSQL makes a publication that sends nothing but inserted rows of these tables.
func CreatePublicationSQL(name string, tables []string) string {
	of := ""
	if len(tables) > 0 {
		of = " FOR TABLE " + quoteTables(tables)
	}
	return "CREATE PUBLICATION " + quoteName(name) + of + " WITH (publish = 'insert', publish_via_partition_root = true);"
}

// EnsurePublicationSQL is CreatePublicationSQL where there is none of this name, for psql and for whatever else runs SQL.
func EnsurePublicationSQL(name string, tables []string) string {
	return "DO $postrider$ BEGIN\nIF NOT EXISTS (SELECT FROM pg_catalog.pg_publication WHERE pubname = " + literal(name) + ") THEN\n    " +
		CreatePublicationSQL(name, tables) + "\nEND IF;\nEND $postrider$;"
}

func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

const selectPublication = `
SELECT oid, puballtables, pubviaroot, pubinsert, pubupdate, pubdelete, pubtruncate
FROM pg_catalog.pg_publication WHERE pubname = $1`

// The view resolves schemas, FOR ALL TABLES, and what publish_via_partition_root does to partitions. Its columns beyond the
// names came with 15.
const selectPublished = `
SELECT pg_catalog.to_jsonb(t) || pg_catalog.jsonb_build_object('parents', ARRAY(
  SELECT an.nspname || '.' || a.relname FROM pg_catalog.pg_partition_ancestors(c.oid) p
  JOIN pg_catalog.pg_class a ON a.oid = p.relid JOIN pg_catalog.pg_namespace an ON an.oid = a.relnamespace WHERE a.oid <> c.oid))
FROM pg_catalog.pg_publication_tables t
JOIN pg_catalog.pg_namespace n ON n.nspname = t.schemaname
JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename
WHERE t.pubname = $1 ORDER BY t.schemaname, t.tablename`

const selectTables = `
SELECT coalesce(c.oid, 0), coalesce(c.relkind::text, ''), coalesce(c.relpersistence::text, ''),
  coalesce((SELECT rn.nspname || '.' || r.relname FROM pg_catalog.pg_class r JOIN pg_catalog.pg_namespace rn ON rn.oid = r.relnamespace
            WHERE r.oid = pg_catalog.pg_partition_root(c.oid) AND r.oid <> c.oid), ''),
  ARRAY(SELECT a.attname::text FROM pg_catalog.pg_attribute a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum),
  coalesce((SELECT r.oid FROM pg_catalog.pg_publication_rel r JOIN pg_catalog.pg_publication p ON p.oid = r.prpubid
            WHERE r.prrelid = c.oid AND p.pubname = $3), 0)
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS wanted(nspname, relname, n)
LEFT JOIN pg_catalog.pg_namespace ns ON ns.nspname = wanted.nspname
LEFT JOIN pg_catalog.pg_class c ON c.relnamespace = ns.oid AND c.relname = wanted.relname
ORDER BY wanted.n`

type publishedRow struct {
	Schema    string   `json:"schemaname"`
	Name      string   `json:"tablename"`
	Columns   []string `json:"attnames"`
	RowFilter string   `json:"rowfilter"`
	Parents   []string `json:"parents"` // partitioned tables above it
}

// Inspect reads a publication and the tables. A missing one is no error, see Publication.Problems.
func Inspect(ctx context.Context, conn *pgx.Conn, name string, tables []string) (*Publication, error) {
	p := &Publication{Name: name}
	if err := p.read(ctx, conn, tables); err != nil {
		return nil, fmt.Errorf("read publication %q: %w", name, postgres.Error(err))
	}
	return p, nil
}

func (p *Publication) read(ctx context.Context, conn *pgx.Conn, tables []string) error {
	err := conn.QueryRow(ctx, selectPublication, p.Name).
		Scan(&p.OID, &p.AllTables, &p.ViaRoot, &p.Insert, &p.Update, &p.Delete, &p.Truncate)
	switch {
	case err == nil:
		p.Exists = true
	case !errors.Is(err, pgx.ErrNoRows):
		return err
	}
	published, err := p.readPublished(ctx, conn)
	if err != nil {
		return err
	}
	if err := p.readTables(ctx, conn, tables, published); err != nil {
		return err
	}
	for name, row := range published {
		if !slices.Contains(tables, name) && !p.bringsPartition(row) {
			p.Others = append(p.Others, name)
		}
	}
	slices.Sort(p.Others)
	if len(p.Others) > othersLimit {
		p.More = len(p.Others) - othersLimit
		p.Others = p.Others[:othersLimit]
	}
	return nil
}

// bringsPartition tells whether a published table is a partition of one that was asked for.
func (p *Publication) bringsPartition(row publishedRow) bool {
	return slices.ContainsFunc(p.Tables, func(t Table) bool { return t.Partitions && slices.Contains(row.Parents, t.Name) })
}

func (p *Publication) readPublished(ctx context.Context, conn *pgx.Conn) (map[string]publishedRow, error) {
	rows, err := conn.Query(ctx, selectPublished, p.Name)
	if err != nil {
		return nil, err
	}
	documents, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	if err != nil {
		return nil, err
	}
	published := make(map[string]publishedRow, len(documents))
	for _, d := range documents {
		var r publishedRow
		if err := json.Unmarshal(d, &r); err != nil {
			return nil, err
		}
		published[r.Schema+"."+r.Name] = r
	}
	return published, nil
}

func (p *Publication) readTables(ctx context.Context, conn *pgx.Conn, tables []string, published map[string]publishedRow) error {
	schemas, names := splitTables(tables)
	rows, err := conn.Query(ctx, selectTables, schemas, names, p.Name)
	if err != nil {
		return err
	}
	defer rows.Close()
	for i := 0; rows.Next(); i++ {
		t := Table{Name: tables[i]}
		var persistence string
		var columns []string
		if err := rows.Scan(&t.OID, &t.Kind, &persistence, &t.Root, &columns, &t.Membership); err != nil {
			return err
		}
		t.Unlogged, t.Temporary = persistence == "u", persistence == "t"
		if row, ok := published[schemas[i]+"."+names[i]]; ok {
			t.Published, t.RowFilter, t.ColumnNames = true, row.RowFilter, row.Columns
			if row.Columns == nil {
				t.ColumnNames = columns
			}
			t.AllColumns = len(t.ColumnNames) >= len(columns)
		} else if t.Kind == "p" && !p.ViaRoot && (p.AllTables || t.Membership != 0) {
			// Every partition is in it, those to come too.
			t.Published, t.Partitions, t.ColumnNames, t.AllColumns = true, true, columns, true
		}
		p.Tables = append(p.Tables, t)
	}
	return rows.Err()
}

// Problems are the reasons for which rows would be missing, worst first; none: all is well.
func (p *Publication) Problems() []*PublicationError {
	if !p.Exists {
		return []*PublicationError{{Publication: p.Name, Problem: "does not exist", SQL: CreatePublicationSQL(p.Name, p.names())}}
	}
	var problems []*PublicationError
	add := func(table, problem, sql string) {
		problems = append(problems, &PublicationError{Publication: p.Name, Table: table, Problem: problem, SQL: sql})
	}
	if !p.Insert {
		add("", "does not publish inserts", "ALTER PUBLICATION "+quoteName(p.Name)+" SET (publish = 'insert');")
	}
	for _, t := range p.Tables {
		switch {
		case t.OID == 0:
			add(t.Name, "the table does not exist", "create it (postrider init --table "+t.Name+"), or correct replication.tables")
		case t.Kind != "r" && t.Kind != "p":
			add(t.Name, "it is no table, and only tables can be published", "correct replication.tables")
		case t.Unlogged || t.Temporary:
			add(t.Name, "the table is unlogged or temporary: its rows never reach the WAL", "ALTER TABLE "+quoteTable(t.Name)+" SET LOGGED;")
		case t.Published:
		case t.Kind == "p" && !p.ViaRoot:
			add(t.Name, "the table is partitioned, and not it but at most some of its partitions are in the publication",
				"ALTER PUBLICATION "+quoteName(p.Name)+" SET (publish_via_partition_root = true);"+p.addSQL(t))
		case t.Root != "" && p.ViaRoot:
			add(t.Name, "it is a partition, and its rows come under the name of "+t.Root, `set replication.tables to "`+t.Root+`"`)
		default:
			add(t.Name, "the publication does not contain the table", strings.TrimSpace(p.addSQL(t)))
		}
	}
	return problems
}

// addSQL is empty for a publication of all tables, to which none can be added, and for a table that is in it already.
func (p *Publication) addSQL(t Table) string {
	if p.AllTables || t.Membership != 0 {
		return ""
	}
	return " ALTER PUBLICATION " + quoteName(p.Name) + " ADD TABLE " + quoteTable(t.Name) + ";"
}

func (p *Publication) names() []string {
	names := make([]string, len(p.Tables))
	for i, t := range p.Tables {
		names[i] = t.Name
	}
	return names
}

// VerifyPublication reads a publication and returns it, with the first of its problems, a *PublicationError, if it has any.
func VerifyPublication(ctx context.Context, conn *pgx.Conn, name string, tables []string) (*Publication, error) {
	p, err := Inspect(ctx, conn, name, tables)
	if err != nil {
		return nil, err
	}
	if problems := p.Problems(); len(problems) > 0 {
		return p, problems[0]
	}
	return p, nil
}

// EnsurePublication creates the publication if there is none of this name, and says whether it did. One that exists is left
// as it is: whether it fits is for VerifyPublication to say.
func EnsurePublication(ctx context.Context, conn *pgx.Conn, name string, tables []string) (created bool, err error) {
	p, err := Inspect(ctx, conn, name, tables)
	if err != nil || p.Exists {
		return false, err
	}
	sql := CreatePublicationSQL(name, tables)
	if _, err := conn.Exec(ctx, sql); err != nil {
		if sqlState(err) == "42501" {
			return false, &Error{
				Err: fmt.Errorf("create publication %q: %w", name, postgres.Error(err)),
				Fix: "as the owner of the tables, with CREATE on the database:\n" + sql,
			}
		}
		return false, fmt.Errorf("create publication %q: %w", name, postgres.Error(err))
	}
	return true, nil
}
