package slot

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
)

// Publication is what the server says about a publication, and about the tables that are to be in
// it.
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
	Tables    []Table // as asked for, in that order
	// schema-qualified tables that are in it and were not asked for, by name; at most othersLimit
	Others []string
	More   int // others beyond that limit

	evidence *evidence
	owner    *owner // nil: a superuser, or no table has to be added to it
}

const othersLimit = 20

// Table is a table that is to be in a publication.
type Table struct {
	Name string // as asked for: schema.name
	OID  uint32 // zero: does not exist
	// pg_class.relkind: r ordinary, p partitioned, anything else cannot be published
	Kind      string
	Unlogged  bool   //
	Temporary bool   //
	Root      string // schema-qualified table of which it is a partition; empty: none
	// OID of its entry in the publication by name, under whatever name its rows come; zero: none
	Membership  uint32
	Published   bool     // its rows come, under its own name or those of its partitions
	Partitions  bool     // they come under the names of its partitions
	RowFilter   string   // rows that don't match are not sent; empty: none
	unsendable  []leaf   // partitions whose rows never reach the WAL
	owner       uint32   //
	ColumnNames []string // sent with its rows, in the table's order; nil: not published
	AllColumns  bool     // no column list leaves any out
}

// SplitTable cuts a configured name at its first dot. Names are written as they stand in the
// catalog, without quotes.
func SplitTable(table string) (schema, name string) {
	schema, name, found := strings.Cut(table, ".")
	if !found {
		return "public", schema
	}
	return schema, name
}

// SplitTables is SplitTable for several.
func SplitTables(tables []string) (schemas, names []string) {
	schemas, names = make([]string, len(tables)), make([]string, len(tables))
	for i, t := range tables {
		schemas[i], names[i] = SplitTable(t)
	}
	return schemas, names
}

// QuoteTable is the name for SQL.
func QuoteTable(table string) string {
	schema, name := SplitTable(table)
	return pgx.Identifier{schema, name}.Sanitize()
}

func quoteTables(tables []string) string {
	quoted := make([]string, len(tables))
	for i, t := range tables {
		quoted[i] = QuoteTable(t)
	}
	return strings.Join(quoted, ", ")
}

// CreatePublicationSQL makes a publication that sends nothing but inserted rows of these tables.
func CreatePublicationSQL(name string, tables []string) string {
	of := ""
	if len(tables) > 0 {
		of = " FOR TABLE " + quoteTables(tables)
	}
	return "CREATE PUBLICATION " + postgres.QuoteName(name) + of +
		" WITH (publish = 'insert', publish_via_partition_root = true);"
}

// EnsurePublicationSQL is CreatePublicationSQL where there is none of this name, and adds to one
// that exists the tables that it lacks, where AddTables would; for psql and for whatever else runs
// SQL.
func EnsurePublicationSQL(name string, tables []string) string {
	var b strings.Builder
	b.WriteString("DO $postrider$ DECLARE owner name; BEGIN\nIF NOT EXISTS (SELECT FROM " +
		"pg_catalog.pg_publication WHERE pubname = " + postgres.QuoteText(name) +
		") THEN\n    " + CreatePublicationSQL(name, tables) + "\nEND IF;\n")
	for _, t := range tables {
		fmt.Fprintf(&b, lacksTableSQL+foreignSQL+"    %[3]s\nEND IF;\n", postgres.QuoteText(name),
			postgres.QuoteText(QuoteTable(t)), addTableSQL(name, t))
	}
	return b.String() + "END $postrider$;"
}

// lacksTableSQL asks by the catalog and by the view: the former has a partitioned table whose
// partitions the latter lists, the latter a table that is published with its schema.
const lacksTableSQL = `IF EXISTS (SELECT FROM pg_catalog.pg_publication p, (SELECT %[2]s::pg_catalog.regclass::pg_catalog.oid) AS t(oid)
    WHERE p.pubname = %[1]s AND NOT p.puballtables
      AND NOT EXISTS (SELECT FROM pg_catalog.pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = t.oid)
      AND NOT EXISTS (SELECT FROM pg_catalog.pg_publication_tables v JOIN pg_catalog.pg_namespace n ON n.nspname = v.schemaname
        JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = v.tablename
        WHERE v.pubname = p.pubname AND c.oid = t.oid)) THEN
`

// foreignSQL is the condition of Publication.trusted.
const foreignSQL = `    SELECT o.rolname INTO owner FROM pg_catalog.pg_publication p JOIN pg_catalog.pg_roles o ON o.oid = p.pubowner
    JOIN pg_catalog.pg_class c ON c.oid = %[2]s::pg_catalog.regclass::pg_catalog.oid JOIN pg_catalog.pg_roles me ON me.rolname = current_user
    WHERE p.pubname = %[1]s AND me.rolsuper AND NOT o.rolsuper AND o.oid <> c.relowner;
    IF FOUND THEN
        RAISE EXCEPTION USING
            MESSAGE = pg_catalog.format('publication %%I belongs to role %%I, who could take table %%s out of it at any time', %[1]s, owner, %[2]s),
            HINT = pg_catalog.format('Once it is clear who made it, give it to a superuser: ALTER PUBLICATION %%I OWNER TO %%I; '
                'or choose another name with replication.publication.', %[1]s, current_user);
    END IF;
`

// addTableSQL adds a table to a publication that is not one of all tables.
func addTableSQL(publication, table string) string {
	return "ALTER PUBLICATION " + postgres.QuoteName(publication) + " ADD TABLE " +
		QuoteTable(table) + ";"
}

// The view resolves schemas, FOR ALL TABLES, and what publish_via_partition_root does to
// partitions. Its columns beyond the names came with 15.
const selectPublished = `
SELECT pg_catalog.to_jsonb(t) || pg_catalog.jsonb_build_object('parents', ARRAY(
  SELECT pg_catalog.format('%s.%s', an.nspname, a.relname) FROM
  pg_catalog.pg_partition_ancestors(c.oid) p
  JOIN pg_catalog.pg_class a ON a.oid = p.relid::oid JOIN pg_catalog.pg_namespace an ON an.oid =
  a.relnamespace WHERE a.oid <> c.oid))
FROM pg_catalog.pg_publication_tables t
JOIN pg_catalog.pg_namespace n ON n.nspname = t.schemaname
JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename
WHERE t.pubname = $1 ORDER BY t.schemaname, t.tablename`

const selectColumnNames = `
SELECT a.attrelid, pg_catalog.array_agg(a.attname::text ORDER BY a.attnum)
FROM pg_catalog.pg_attribute a WHERE a.attrelid = ANY ($1::oid[]) AND a.attnum > 0 AND NOT
  a.attisdropped AND a.attgenerated = ''::"char"
GROUP BY a.attrelid`

type publishedRow struct {
	Schema    string   `json:"schemaname"`
	Name      string   `json:"tablename"`
	Columns   []string `json:"attnames"`
	RowFilter string   `json:"rowfilter"`
	Parents   []string `json:"parents"` // partitioned tables above it
}

// Inspect reads a publication and the tables. A missing one is no error, see Publication.Problems.
func Inspect(ctx context.Context, conn *pgx.Conn, name string,
	tables []string) (*Publication, error) {
	p, err := read(ctx, conn, name, tables)
	if err == nil {
		err = p.describe(ctx, conn, tables)
	}
	if err != nil {
		return nil, fmt.Errorf("read publication %q: %w", name, postgres.Error(err))
	}
	return p, nil
}

// ReadPublication reads all that Problems needs, in one statement; the owner for the advice alone.
func ReadPublication(ctx context.Context, conn *pgx.Conn, name string,
	tables []string) (*Publication, error) {
	p, err := read(ctx, conn, name, tables)
	if err != nil {
		return nil, fmt.Errorf("read publication %q: %w", name, postgres.Error(err))
	}
	return p, nil
}

// ReadLSN is the end of the WAL when the publication was read: what was seen was written before
// it.
func (p *Publication) ReadLSN() pglogrepl.LSN { return p.evidence.end }

// Transactions says of which transactions the read saw what they did: all before xmin had ended,
// and none from xmax on had begun.
func (p *Publication) Transactions() (xmin, xmax uint64) {
	return p.evidence.xmin,
		p.evidence.xmax
}

func read(ctx context.Context, conn *pgx.Conn, name string,
	tables []string) (*Publication, error) {
	e, err := readEvidence(ctx, conn, name, tables)
	if err != nil {
		return nil, err
	}
	p := &Publication{Name: name, evidence: e}
	if row := e.Publication; row != nil {
		p.Exists, p.OID, p.AllTables, p.ViaRoot = true, row.OID, row.AllTables, row.ViaRoot
		p.Insert, p.Update, p.Delete, p.Truncate = row.Insert, row.Update, row.Delete, row.Truncate
	}
	for _, name := range tables {
		p.Tables = append(p.Tables, Table{Name: name})
	}
	for _, row := range e.Tables {
		t := &p.Tables[row.N-1]
		t.OID, t.Kind, t.Root, t.owner = row.OID, row.Kind, row.Root, row.Owner
		// before 18 a partitioned table can be called unlogged, and means nothing by it
		t.Unlogged, t.Temporary = row.Persistence == "u" && row.Kind != "p", row.Persistence == "t"
	}
	for _, l := range e.Unsendable {
		t := &p.Tables[l.N-1]
		t.unsendable = append(t.unsendable, l)
	}
	for i := range p.Tables {
		p.judge(&p.Tables[i], e.of(i+1))
	}
	if p.Exists && slices.ContainsFunc(p.Tables, func(t Table) bool { return !t.Published }) {
		if p.owner, err = readOwner(ctx, conn, p.OID); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// judge sets whether and how the rows of a table come. entries are its own.
func (p *Publication) judge(t *Table, entries []entry) {
	own, above := p.AllTables, p.AllTables && t.Root != ""
	for _, e := range entries {
		switch {
		case e.Level == 0 && e.Schema == "":
			t.Membership = e.OID
			fallthrough
		case e.Level == 0:
			own = true
		case e.Level > 0:
			above = true
		}
	}
	switch {
	case t.OID == 0 || t.Kind != "r" && t.Kind != "p":
	case p.ViaRoot:
		t.Published = own && !above
	case t.Kind == "r":
		t.Published = own || above
	default: // every partition is in it, those to come too
		t.Published = p.AllTables || t.Membership != 0
		t.Partitions = t.Published
	}
}

// describe reads what is good to know beyond that.
func (p *Publication) describe(ctx context.Context, conn *pgx.Conn, tables []string) error {
	published, err := p.readPublished(ctx, conn)
	if err != nil {
		return err
	}
	columns, err := p.readColumns(ctx, conn)
	if err != nil {
		return err
	}
	for i := range p.Tables {
		t := &p.Tables[i]
		if !t.Published {
			continue
		}
		schema, name := SplitTable(t.Name)
		row := published[schema+"."+name]
		t.RowFilter, t.ColumnNames = row.RowFilter, row.Columns
		if row.Columns == nil {
			t.ColumnNames = columns[t.OID]
		}
		t.AllColumns = len(t.ColumnNames) >= len(columns[t.OID])
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

func (p *Publication) readColumns(ctx context.Context,
	conn *pgx.Conn) (map[uint32][]string, error) {
	var oids []uint32
	for _, t := range p.Tables {
		oids = append(oids, t.OID)
	}
	rows, err := conn.Query(ctx, selectColumnNames, oids)
	if err != nil {
		return nil, err
	}
	columns := map[uint32][]string{}
	var oid uint32
	var names []string
	_, err = pgx.ForEachRow(rows, []any{&oid, &names}, func() error {
		columns[oid], names = names, nil
		return nil
	})
	return columns, err
}

// bringsPartition reports whether a published table is a partition of one that was asked for.
func (p *Publication) bringsPartition(row publishedRow) bool {
	return slices.ContainsFunc(p.Tables,
		func(t Table) bool { return t.Partitions && slices.Contains(row.Parents, t.Name) })
}

func (p *Publication) readPublished(ctx context.Context,
	conn *pgx.Conn) (map[string]publishedRow, error) {
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

// Problems are the reasons for which rows would be missing, worst first; none: all is well.
func (p *Publication) Problems() []*PublicationError {
	var problems []*PublicationError
	if !p.Exists {
		for _, t := range p.Tables {
			if t.OID == 0 { // the first cause: no publication can be made of it
				problems = append(problems, missingTable(p.Name, t.Name))
			}
		}
		fix := CreatePublicationSQL(p.Name, p.names())
		if len(problems) > 0 {
			fix = "postrider init   # makes table, publication and slot, and leaves alone what exists"
		}
		return append(problems, &PublicationError{Publication: p.Name, Problem: "does not exist",
			SQL: fix})
	}
	add := func(table, problem, sql string) {
		problems = append(problems, &PublicationError{Publication: p.Name, Table: table,
			Problem: problem, SQL: sql})
	}
	if !p.Insert {
		add("", "does not publish inserts",
			"ALTER PUBLICATION "+postgres.QuoteName(p.Name)+" SET (publish = 'insert');")
	}
	for _, t := range p.Tables {
		switch {
		case t.OID == 0:
			problems = append(problems, missingTable(p.Name, t.Name))
		case t.Kind != "r" && t.Kind != "p":
			add(t.Name, "is no table, and only tables can be published", "correct replication.tables")
		case t.Unlogged || t.Temporary:
			add(t.Name, "is unlogged or temporary: its rows never reach the WAL",
				"ALTER TABLE "+QuoteTable(t.Name)+" SET LOGGED;")
			problems[len(problems)-1].InTable = true
		case t.Published && len(t.unsendable) > 0:
			problems = append(problems, t.unsendable[0].problem(p.Name, t.Name))
		case t.Published:
		case t.Kind == "p" && !p.ViaRoot:
			add(t.Name, "is partitioned, and not it but at most some of its partitions are in publication "+
				strconv.Quote(p.Name)+p.belonging(t),
				"ALTER PUBLICATION "+postgres.QuoteName(p.Name)+" SET (publish_via_partition_root = true);"+
					p.addSQL(t))
		case t.Root != "" && p.ViaRoot:
			add(t.Name, "is a partition, and its rows come under the name of "+t.Root,
				`set replication.tables to "`+t.Root+`"`)
		default:
			add(t.Name, "is not in publication "+strconv.Quote(p.Name)+p.belonging(t),
				strings.TrimSpace(p.addSQL(t)))
		}
	}
	return problems
}

// lacks reports that a table is in the publication in no way, and can be added to it as it is.
func (p *Publication) lacks(t Table) bool {
	switch {
	case t.OID == 0 || t.Kind != "r" && t.Kind != "p" || t.Unlogged || t.Temporary || t.Published:
		return false
	case t.Kind == "p" && !p.ViaRoot, t.Root != "" && p.ViaRoot:
		return false // which takes more than adding it
	}
	return p.addSQL(t) != ""
}

// addSQL is empty for a publication of all tables, to which none can be added, and for a table
// that is in it already.
func (p *Publication) addSQL(t Table) string {
	switch {
	case p.AllTables || t.Membership != 0:
		return ""
	case p.foreign(t):
		return " " + p.takeSQL() + " " + addTableSQL(p.Name, t.Name) + p.caution()
	}
	return " " + addTableSQL(p.Name, t.Name)
}

func (p *Publication) names() []string {
	names := make([]string, len(p.Tables))
	for i, t := range p.Tables {
		names[i] = t.Name
	}
	return names
}

// VerifyPublication reads a publication and returns it, with the first of its problems, a
// *PublicationError, if it has any.
func VerifyPublication(ctx context.Context, conn *pgx.Conn, name string,
	tables []string) (*Publication, error) {
	p, err := Inspect(ctx, conn, name, tables)
	if err != nil {
		return nil, err
	}
	return p, p.Problem()
}

// Problem is the first of Problems, or nil.
func (p *Publication) Problem() error {
	if problems := p.Problems(); len(problems) > 0 {
		return problems[0]
	}
	return nil
}

// EnsurePublication creates the publication if there is none of this name, and says whether it
// did. One that exists is left as it is: whether it fits is for VerifyPublication to say.
func EnsurePublication(ctx context.Context, conn *pgx.Conn, name string,
	tables []string) (created bool, err error) {
	p, err := Inspect(ctx, conn, name, tables)
	if err != nil || p.Exists {
		return false, err
	}
	sql := CreatePublicationSQL(name, tables)
	if _, err := conn.Exec(ctx, sql); err != nil {
		if postgres.SQLState(err) == "42501" {
			return false, &Error{
				Err: fmt.Errorf("create publication %q: %w", name, postgres.Error(err)),
				Fix: "as the owner of the tables, with CREATE on the database:\n" + sql,
			}
		}
		return false, fmt.Errorf("create publication %q: %w", name, postgres.Error(err))
	}
	return true, nil
}

// AddTables adds those of the tables that a publication lacks, and returns them. Without the right
// to, the error has the SQL for who has it. What else is wrong with the publication is for
// VerifyPublication to say.
func AddTables(ctx context.Context, conn *pgx.Conn, name string,
	tables []string) (added []string, err error) {
	p, err := Inspect(ctx, conn, name, tables)
	if err != nil {
		return nil, err
	}
	for _, t := range p.Tables {
		if !p.lacks(t) {
			continue
		}
		if err := p.trusted(t); err != nil {
			return added, err
		}
		sql := addTableSQL(name, t.Name)
		if _, err := conn.Exec(ctx, sql); err != nil {
			err = fmt.Errorf("add table %s to publication %q: %w", t.Name, name, postgres.Error(err))
			if postgres.SQLState(err) == "42501" {
				err = &Error{Err: err, Fix: sql + " -- as the owner of the publication and of the table"}
			}
			return added, err
		}
		added = append(added, t.Name)
	}
	return added, nil
}

// ResetSQL takes filter and column list of a table away, in one transaction, so that no row is
// inserted without the table in the publication. SET TABLE would remove the other tables.
func ResetSQL(p *Publication, t Table) string {
	alter := "ALTER PUBLICATION " + postgres.QuoteName(p.Name)
	return "BEGIN; " + alter + " DROP TABLE " + QuoteTable(t.Name) + "; " + alter + " ADD TABLE " +
		QuoteTable(t.Name) + "; COMMIT;"
}
