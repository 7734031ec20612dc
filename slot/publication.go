package slot

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
)

// Publication is a publication and the tables that are to be in it, as the server has them.
type Publication struct {
	Name           string
	Exists         bool
	publicationRow         // zero: does not exist
	Tables         []Table // as requested, in that order

	evidence *evidence
	owner    *owner // nil: a superuser, or no table has to be added to it
}

// Table is a table that is to be in a publication.
type Table struct {
	Name string // as requested: schema.name
	OID  uint32 // zero: does not exist
	// pg_class.relkind: r ordinary, p partitioned, anything else cannot be published
	Kind                string
	Unlogged, Temporary bool
	Root                string // schema-qualified table of which it is a partition; empty: none
	Membership          uint32 // OID of its row in pg_publication_rel (FOR TABLE); zero: none
	// Published: its rows are published, under its own name or those of its partitions
	Published   bool
	Partitions  bool     // they are published under the names of its partitions
	RowFilter   string   // rows that don't match are not sent; empty: none
	ColumnNames []string // sent with its rows, in the table's order; nil: not published
	AllColumns  bool     // no column list leaves any out

	unsendable []leaf // partitions whose rows never reach the WAL
	owner      uint32
}

// The view pg_publication_tables has columns and row filters too, but locks every table that it
// lists: one that is not of the outbox must not keep the relay waiting. 18 can publish generated
// columns.
const selectColumnNames = `
SELECT a.attrelid, pg_catalog.array_agg(a.attname::text ORDER BY a.attnum)
FROM pg_catalog.pg_attribute a WHERE a.attrelid = ANY ($1::oid[]) AND a.attnum > 0 AND NOT
  a.attisdropped AND (a.attgenerated = ''::"char" OR a.attgenerated::text = (
    SELECT pg_catalog.to_jsonb(p) ->> 'pubgencols'::text
    FROM pg_catalog.pg_publication p WHERE p.oid = $2::oid))
GROUP BY a.attrelid`

// selectRestrictions has the columns of column lists, or NULL, and row filters. They came with 15.
// pg_get_expr locks the table.
const selectRestrictions = `
SELECT pr.prrelid, coalesce(pg_catalog.pg_get_expr(pr.prqual, pr.prrelid), ''),
  (SELECT pg_catalog.array_agg(a.attname::text ORDER BY a.attnum) FROM pg_catalog.pg_attribute a
  WHERE a.attrelid = pr.prrelid AND a.attnum = ANY (pr.prattrs))
FROM pg_catalog.pg_publication_rel pr WHERE pr.oid = ANY ($1::oid[])`

// Inspect reads a publication and the tables. A missing one is no error, see Publication.Problems.
func Inspect(ctx context.Context, conn *pgx.Conn, name string,
	tables []string) (*Publication, error) {
	p, err := read(ctx, conn, name, tables)
	if err == nil {
		err = p.describe(ctx, conn)
	}
	return p, postgres.Wrap(err, "read publication %q", name)
}

// ReadPublication reads all that Problems needs, in one statement; the owner for the advice alone.
func ReadPublication(ctx context.Context, conn *pgx.Conn, name string,
	tables []string) (*Publication, error) {
	p, err := read(ctx, conn, name, tables)
	return p, postgres.Wrap(err, "read publication %q", name)
}

// ReadLSN is the end of the WAL when the publication was read: what was seen was written before
// it.
func (p *Publication) ReadLSN() pglogrepl.LSN { return p.evidence.end }

// Transactions bound what the read saw: all before xmin had ended, none from xmax on had begun.
func (p *Publication) Transactions() (xmin, xmax uint64) {
	return p.evidence.xmin, p.evidence.xmax
}

func read(ctx context.Context, conn *pgx.Conn, name string,
	tables []string) (*Publication, error) {
	e, err := readEvidence(ctx, conn, name, tables)
	if err != nil {
		return nil, err
	}
	p := &Publication{Name: name, evidence: e}
	if row := e.Publication; row != nil {
		p.Exists, p.publicationRow = true, *row
	}
	for _, name := range tables {
		p.Tables = append(p.Tables, Table{Name: name})
	}
	for _, row := range e.Tables {
		t := &p.Tables[row.N-1]
		t.OID, t.Kind, t.Root, t.owner = row.OID, row.Kind, row.Root, row.Owner
		// before 18 a partitioned table can be marked UNLOGGED, without effect
		t.Unlogged, t.Temporary = row.Persistence == "u" && row.Kind != "p", row.Persistence == "t"
	}
	for _, l := range e.Unsendable {
		t := &p.Tables[l.N-1]
		t.unsendable = append(t.unsendable, l)
	}
	for i := range p.Tables {
		p.setPublished(&p.Tables[i], e.of(i+1))
	}
	if p.Exists && slices.ContainsFunc(p.Tables, func(t Table) bool { return !t.Published }) {
		if p.owner, err = readOwner(ctx, conn, p.OID); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// setPublished sets whether, and under which name, the rows of t are published. entries are those
// of t.
func (p *Publication) setPublished(t *Table, entries []entry) {
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

// describe reads columns and row filters.
func (p *Publication) describe(ctx context.Context, conn *pgx.Conn) error {
	columns, err := p.readColumns(ctx, conn)
	if err != nil {
		return err
	}
	restrictions, err := p.readRestrictions(ctx, conn)
	if err != nil {
		return err
	}
	for i := range p.Tables {
		t := &p.Tables[i]
		if !t.Published {
			continue
		}
		r := restrictions[t.OID]
		t.RowFilter, t.ColumnNames = r.RowFilter, columns[t.OID]
		if r.Columns != nil {
			t.ColumnNames = r.Columns
		}
		t.AllColumns = !slices.ContainsFunc(columns[t.OID],
			func(name string) bool { return !slices.Contains(t.ColumnNames, name) })
	}
	return nil
}

// readColumns reads the columns that are sent without a column list, by table.
func (p *Publication) readColumns(ctx context.Context,
	conn *pgx.Conn) (map[uint32][]string, error) {
	var oids []uint32
	for _, t := range p.Tables {
		oids = append(oids, t.OID)
	}
	type row struct {
		OID   uint32
		Names []string
	}
	found, err := postgres.Collect(ctx, conn, pgx.RowToStructByPos[row], selectColumnNames, oids,
		p.OID)
	columns := map[uint32][]string{}
	for _, r := range found {
		columns[r.OID] = r.Names
	}
	return columns, err
}

// restriction is what a publication sends of a table that it names.
type restriction struct {
	OID       uint32
	RowFilter string
	Columns   []string // of the column list; nil: none
}

// readRestrictions reads row filters and column lists, by table. The server ignores those of a
// table that all tables, or its schema, bring into the publication too.
func (p *Publication) readRestrictions(ctx context.Context,
	conn *pgx.Conn) (map[uint32]restriction, error) {
	var memberships []uint32
	for i, t := range p.Tables {
		if t.Published && p.filters(i+1) && p.evidence.onlyForTable(i+1) {
			memberships = append(memberships, t.Membership)
		}
	}
	if len(memberships) == 0 {
		return nil, nil
	}
	found, err := postgres.Collect(ctx, conn, pgx.RowToStructByPos[restriction], selectRestrictions,
		memberships)
	restrictions := map[uint32]restriction{}
	for _, r := range found {
		restrictions[r.OID] = r
	}
	return restrictions, err
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
		fix := CreatePublicationSQL(p.Name, p.Names())
		if len(problems) > 0 {
			fix = "postrider init   # makes table, publication and slot, and leaves alone what exists"
		}
		return append(problems,
			&PublicationError{Publication: p.Name, Problem: "does not exist", SQL: fix})
	}
	add := func(table, problem, sql string) {
		problems = append(problems,
			&PublicationError{Publication: p.Name, Table: table, Problem: problem, SQL: sql})
	}
	alter, quoted := "ALTER PUBLICATION "+postgres.QuoteName(p.Name), strconv.Quote(p.Name)
	if !p.Insert {
		add("", "does not publish inserts", alter+" SET (publish = 'insert');")
	}
	for _, t := range p.Tables {
		switch {
		case t.OID == 0:
			problems = append(problems, missingTable(p.Name, t.Name))
		case t.Kind != "r" && t.Kind != "p":
			add(t.Name, "is not a table, and only tables can be published", "correct replication.tables")
		case t.Unlogged || t.Temporary:
			add(t.Name, "is unlogged or temporary: its rows never reach the WAL",
				"ALTER TABLE "+QuoteTable(t.Name)+" SET LOGGED;")
			problems[len(problems)-1].InTable = true
		case t.Published && len(t.unsendable) > 0:
			problems = append(problems, t.unsendable[0].problem(p.Name, t.Name))
		case t.Published:
		case t.Kind == "p" && !p.ViaRoot:
			add(t.Name, "is partitioned, and not it but at most some of its partitions are in publication "+
				quoted+p.belonging(t), alter+" SET (publish_via_partition_root = true);"+p.addSQL(t))
		case t.Root != "" && p.ViaRoot:
			add(t.Name, "is a partition, and its rows come under the name of "+t.Root,
				`set replication.tables to "`+t.Root+`"`)
		default:
			add(t.Name, "is not in publication "+quoted+p.belonging(t), strings.TrimSpace(p.addSQL(t)))
		}
	}
	return problems
}

// Names are those of the tables, as requested.
func (p *Publication) Names() (names []string) {
	for _, t := range p.Tables {
		names = append(names, t.Name)
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
