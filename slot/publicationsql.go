package slot

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
)

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
	for _, t := range tables {
		schema, name := SplitTable(t)
		schemas, names = append(schemas, schema), append(names, name)
	}
	return schemas, names
}

// CheckNumbers returns an error unless each number is one of a table, from 1 to tables. A server
// that returns another one is not a PostgreSQL, or its answer was damaged on the way.
func CheckNumbers(tables int, numbers ...int) error {
	for _, n := range numbers {
		if n < 1 || n > tables {
			return fmt.Errorf("the server returned a row for table number %d of %d", n, tables)
		}
	}
	return nil
}

// QuoteTable is the name for SQL.
func QuoteTable(table string) string {
	schema, name := SplitTable(table)
	return pgx.Identifier{schema, name}.Sanitize()
}

// QuoteTables is QuoteTable for several, with commas.
func QuoteTables(tables []string) string {
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
		of = " FOR TABLE " + QuoteTables(tables)
	}
	return "CREATE PUBLICATION " + postgres.QuoteName(name) + of +
		" WITH (publish = 'insert', publish_via_partition_root = true);"
}

// EnsurePublicationSQL is CreatePublicationSQL where there is none of this name; otherwise it adds
// the tables that AddTables would add.
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

// lacksTableSQL reads the catalog and the view: the former has a partitioned table whose
// partitions the latter lists, the latter a table that is published with its schema.
const lacksTableSQL = `IF EXISTS (SELECT FROM pg_catalog.pg_publication p, (SELECT %[2]s::pg_catalog.regclass::pg_catalog.oid) AS t(oid)
    WHERE p.pubname = %[1]s AND NOT p.puballtables
      AND NOT EXISTS (SELECT FROM pg_catalog.pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = t.oid)
      AND NOT EXISTS (SELECT FROM pg_catalog.pg_publication_tables v JOIN pg_catalog.pg_namespace n ON n.nspname = v.schemaname
        JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = v.tablename
        WHERE v.pubname = p.pubname AND c.oid = t.oid)) THEN
`

// foreignSQL is the condition of Publication.verifyOwner.
const foreignSQL = `    SELECT o.rolname INTO owner FROM pg_catalog.pg_publication p JOIN pg_catalog.pg_roles o ON o.oid = p.pubowner
    JOIN pg_catalog.pg_class c ON c.oid = %[2]s::pg_catalog.regclass::pg_catalog.oid JOIN pg_catalog.pg_roles me ON me.rolname = current_user
    WHERE p.pubname = %[1]s AND me.rolsuper AND NOT o.rolsuper AND o.oid <> c.relowner;
    IF FOUND THEN
        RAISE EXCEPTION USING
            MESSAGE = pg_catalog.format('table %%s was not added to publication %%I, which belongs to role %%I: that role can remove the table at any time', %[2]s, %[1]s, owner),
            HINT = pg_catalog.format('Once it is clear who made it, give it to a superuser: ALTER PUBLICATION %%I OWNER TO %%I; '
                'or choose another name with replication.publication.', %[1]s, current_user);
    END IF;
`

// addTableSQL adds a table to a publication that is not one of all tables.
func addTableSQL(publication, table string) string {
	return "ALTER PUBLICATION " + postgres.QuoteName(publication) + " ADD TABLE " +
		QuoteTable(table) + ";"
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
	case p.Foreign(t):
		return " " + p.TakeSQL(addTableSQL(p.Name, t.Name))
	}
	return " " + addTableSQL(p.Name, t.Name)
}

// EnsurePublication creates the publication if there is none of this name, and reports whether it
// did. One that exists stays as it is; VerifyPublication reports whether it fits.
func EnsurePublication(ctx context.Context, conn *pgx.Conn, name string,
	tables []string) (created bool, err error) {
	p, err := Inspect(ctx, conn, name, tables)
	if err != nil || p.Exists {
		return false, err
	}
	sql := CreatePublicationSQL(name, tables)
	_, err = conn.Exec(ctx, sql)
	err = withoutRight(postgres.Wrap(err, "create publication %q", name),
		"as the owner of the tables, with CREATE on the database:\n"+sql)
	return err == nil, err
}

// withoutRight adds the advice to the error of a statement that the role may not run.
func withoutRight(err error, fix string) error {
	if postgres.SQLState(err) == "42501" {
		return &Error{Err: err, Fix: fix}
	}
	return err
}

// AddTables adds those of the tables that a publication lacks, and returns them. Without the right
// to, the error has the SQL for a role with it. VerifyPublication reports what else is wrong.
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
		if err := p.verifyOwner(t); err != nil {
			return added, err
		}
		sql := addTableSQL(name, t.Name)
		if _, err := conn.Exec(ctx, sql); err != nil {
			return added, withoutRight(
				postgres.Wrap(err, "add table %s to publication %q", t.Name, name),
				sql+" -- as the owner of the publication and of the table")
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

// owner is a role that owns a publication and is no superuser. It can leave a table out again at
// any time, or have no inserts published.
type owner struct {
	oid   uint32
	name  string
	super string // the role of the session, if that is a superuser
}

const selectOwner = `
SELECT o.oid, o.rolname::text, CASE WHEN me.rolsuper THEN me.rolname::text ELSE '' END
FROM pg_catalog.pg_publication p JOIN pg_catalog.pg_roles o ON o.oid = p.pubowner JOIN
  pg_catalog.pg_roles me ON me.rolname = current_user
WHERE p.oid = $1::pg_catalog.oid AND NOT o.rolsuper`

func readOwner(ctx context.Context, conn *pgx.Conn, publication uint32) (*owner, error) {
	var o owner
	err := conn.QueryRow(ctx, selectOwner, publication).Scan(&o.oid, &o.name, &o.super)
	switch {
	// pg_roles may be closed to all but superusers: the problem is found without it
	case errors.Is(err, pgx.ErrNoRows), postgres.SQLState(err) == "42501":
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read its owner: %w", postgres.Error(err))
	}
	return &o, nil
}

// Foreign reports whether a table that it lacks belongs to another role than the publication. Only
// a superuser, or a role that both trust, may add it then.
func (p *Publication) Foreign(t Table) bool {
	return p.owner != nil && t.OID != 0 && p.owner.oid != t.owner
}

// verifyOwner returns an error if the session is a superuser and another role, no superuser, owns
// the publication. PostgreSQL lets a superuser change every publication, so its permission check
// does not stop the superuser from using one that another role has prepared.
func (p *Publication) verifyOwner(t Table) error {
	if !p.Foreign(t) || p.owner.super == "" {
		return nil
	}
	return &Error{
		Err: diagnosed(fmt.Sprintf("table %s was not added to publication %q%s: that role can remove "+
			"the table at any time", t.Name, p.Name, p.belonging(t)), ErrForeign),
		WAL: "nothing was changed",
		Fix: "once it is clear who made it, give it to a superuser; or choose another name with " +
			"replication.publication:\n" + p.ownSQL(),
	}
}

// ownSQL makes the superuser who runs it the owner of the publication, and not the owner of the
// table: with tables of several owners, each would need another owner. p.owner is not nil.
func (p *Publication) ownSQL() string {
	to := "CURRENT_USER"
	if p.owner.super != "" {
		to = postgres.QuoteName(p.owner.super)
	}
	return "ALTER PUBLICATION " + postgres.QuoteName(p.Name) + " OWNER TO " + to + ";"
}

// belonging follows the name of the publication.
func (p *Publication) belonging(t Table) string {
	if !p.Foreign(t) {
		return ""
	}
	return fmt.Sprintf(", which belongs to role %q", p.owner.name)
}

// TakeSQL returns statement after ownSQL, with a remark on the present owner. If a superuser owns
// the publication, or the owner is not known, it returns the statement alone.
func (p *Publication) TakeSQL(statement string) string {
	if p.owner == nil {
		return statement
	}
	return fmt.Sprintf("%s %s -- once it is clear who role %q is, who could take the table out "+
		"again; or name another in replication.publication", p.ownSQL(), statement, p.owner.name)
}
