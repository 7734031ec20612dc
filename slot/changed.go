package slot

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
)

// RestartAfter is what to know before a publication is changed: a change that has kept rows out of
// the stream for a moment looks the same afterwards.
const RestartAfter = "a relay that runs stops at the change, start it again"

// renamedBack is the change that leaves no row in the table: see PublicationError.Elsewhere.
const renamedBack = "the table was renamed, and renamed back"

// ChangedSince is a *PublicationError if a change since an earlier read may have kept inserted
// rows of a table out of the stream; nil: they came all the time.
func (p *Publication) ChangedSince(ctx context.Context, conn *pgx.Conn,
	before *Publication) error {
	for i, t := range p.Tables {
		if what := p.evidence.changedSince(before.evidence, i+1); what != "" {
			problem := &PublicationError{
				Publication: p.Name, Table: t.Name, Problem: what, To: p.evidence.end,
				Elsewhere: what == renamedBack,
			}
			if p.filters(i + 1) {
				problem.SQL = ResetSQL(p, t)
			}
			return problem
		}
	}
	found, err := p.evidence.rewrittenSince(ctx, conn, before.evidence)
	if err != nil || len(found) == 0 {
		return err
	}
	return &PublicationError{
		Publication: p.Name, Table: p.Tables[found[0].n-1].Name, To: p.evidence.end,
		Problem: "the storage of " + listed(found) +
			" was replaced, and no column was changed, as by SET UNLOGGED and SET LOGGED, " +
			"or by pg_repack, which loses nothing",
	}
}

// filters reports whether a table is published with a row filter or a column list.
func (p *Publication) filters(n int) bool {
	return slices.ContainsFunc(p.evidence.of(n),
		func(e entry) bool { return e.Level == 0 && e.Filtered })
}

func listed(found []rewritten) string {
	names := make([]string, len(found))
	for i, r := range found {
		names[i] = r.name
	}
	if len(names) > othersLimit {
		names = append(names[:othersLimit], fmt.Sprintf("%d more", len(found)-othersLimit))
	}
	return strings.Join(names, ", ")
}

// Alteration is a change of a table that ChangedSince takes for harmless.
type Alteration struct{ Table, Text string }

// AlteredSince returns the changes that lose no row as a rule. Some of them look the same in the
// catalog as a short change that does lose rows.
func (p *Publication) AlteredSince(before *Publication) []Alteration {
	var found []Alteration
	add := func(n int, text string) { found = append(found, Alteration{p.Tables[n-1].Name, text}) }
	now, was := p.evidence, before.evidence
	for _, is := range now.Tables {
		if old := was.table(is.N); old.OID == is.OID && old.ReplicaIdentity != is.ReplicaIdentity {
			add(is.N, "replica identity changed: inserted rows come as before")
		}
		if now.schemaAltered(was, is.N) {
			add(is.N, "schema of the table was altered, with the same owner and privileges: if it was "+
				"renamed for a moment, rows inserted meanwhile into another table of this name are not "+
				"published")
		}
	}
	for oid, is := range now.storage {
		was, known := was.storage[oid]
		if !known || was.file == is.file {
			continue
		}
		if is.toast == 0 || was.toast != is.toast && now.reshaped(before.evidence, is.n) {
			add(is.n, "files of the table replaced, as by VACUUM FULL, CLUSTER or TRUNCATE, or by a "+
				"change of its columns: if it was unlogged for a moment, rows inserted then are not sent")
		}
	}
	return found
}

// changedSince returns what has changed that decides whether inserted rows of a table are sent;
// empty: they came all the time.
func (e *evidence) changedSince(before *evidence, n int) string {
	was, is := before.Publication, e.Publication
	switch {
	case was.OID != is.OID:
		return "the publication was dropped and recreated"
	case *was != *is:
		return "the publication was altered"
	// one of all tables holds a new table from its first row on
	case before.table(n).OID != e.table(n).OID && !is.AllTables:
		return "the table was dropped and recreated"
	}
	old, now := before.of(n), e.of(n)
	if e.renamed(before, n) {
		return renamedBack
	}
	differs := slices.Concat(without(old, now), without(now, old))
	has := func(entries []entry, is func(entry) bool) bool { return slices.ContainsFunc(entries, is) }
	switch {
	case len(differs) == 0:
		return ""
	case has(differs, func(d entry) bool { return d.Level < 0 }):
		return "the row filter or column list of a partition was changed"
	case has(old, func(o entry) bool {
		return o.Level == 0 && !o.Filtered && slices.Contains(now, o)
	}):
		return "" // one entry is enough
	case has(differs, func(d entry) bool { return d.Filtered }):
		return "its row filter or column list was changed"
	case has(differs, func(d entry) bool { return d.Schema == "" }):
		return "the table was taken out of the publication and added again"
	case has(old, func(o entry) bool {
		return has(now, func(d entry) bool { return d.OID == o.OID && d.Moved != o.Moved })
	}):
		return "the table was moved to another schema and back"
	}
	return "schema " + differs[0].Schema + " was taken out of the publication and added again"
}

// renamed reports whether a table that is published by itself had another name or schema for a
// moment. That writes its row in pg_type. So does a new owner, which also writes the TOAST table,
// and pg_shdepend unless the owner is the first superuser.
func (e *evidence) renamed(before *evidence, n int) bool {
	was, is := before.table(n), e.table(n)
	owner := is.OwnerChanged || was.Owner != is.Owner && is.Owner == firstSuperuser
	return was.OID == is.OID && was.TypeXmin != is.TypeXmin && !owner &&
		was.TypeACL == is.TypeACL && e.onlyForTable(n)
}

// firstSuperuser is the role that initdb makes: BOOTSTRAP_SUPERUSERID.
const firstSuperuser = 10

// onlyForTable reports whether the publication has the table, or one that it is a partition of, by
// FOR TABLE alone, which means its OID: another table that has its name for a while is not
// published. FOR ALL TABLES, or the schema of the table, would publish that one too.
func (e *evidence) onlyForTable(n int) bool {
	return !e.Publication.AllTables && !slices.ContainsFunc(e.of(n),
		func(d entry) bool { return d.Level == 0 && d.Schema != "" })
}

// schemaAltered reports whether the pg_namespace row of the table's schema was written, with the
// same owner and ACL as before: the schema may have been renamed, and renamed back. GRANT followed
// by REVOKE looks the same.
func (e *evidence) schemaAltered(before *evidence, n int) bool {
	was, is := before.table(n).Schema, e.table(n).Schema
	return was.OID == is.OID && was.Xmin != is.Xmin && was.Owner == is.Owner && was.ACL == is.ACL &&
		e.onlyForTable(n)
}

func without(entries, others []entry) []entry {
	return slices.DeleteFunc(slices.Clone(entries),
		func(e entry) bool { return slices.Contains(others, e) })
}

// rewritten is a table or partition that got another TOAST table.
type rewritten struct {
	n    int
	name string
}

// rewrittenSince finds the tables and partitions that may have been unlogged for a while: rows
// inserted then are not in the WAL.
func (e *evidence) rewrittenSince(ctx context.Context, conn *pgx.Conn,
	before *evidence) ([]rewritten, error) {
	var known, fresh []uint32
	for oid, now := range e.storage {
		was, seen := before.storage[oid]
		switch {
		case now.toast == 0 || was.toast == now.toast || e.reshaped(before, now.n):
		case !seen:
			fresh = append(fresh, oid)
		case was.toast != 0:
			known = append(known, oid)
		}
	}
	return e.rewritten(ctx, conn, known, fresh, uint32(before.xmin))
}

// reshaped reports whether the columns of a table have changed in a way that makes PostgreSQL
// write its rows, and those of its partitions, again. A column that was dropped may have got
// another type before.
func (e *evidence) reshaped(before *evidence, n int) bool {
	was := before.table(n).Columns
	return slices.ContainsFunc(e.table(n).Columns, func(now columnRow) bool {
		at := slices.IndexFunc(was, func(was columnRow) bool { return was.Number == now.Number })
		return at < 0 || was[at] != now
	})
}

// CREATE TABLE and an ALTER TABLE that rewrites the table write the entry of its TOAST table in
// pg_depend. A change of a column writes the column in the same transaction. A partition that is
// rewritten before it is first attached has no rows of the outbox. $2 marks the tables that are
// known.
const selectRewritten = `
SELECT c.oid, ns.nspname::text || '.' || c.relname::text
FROM ROWS FROM (pg_catalog.unnest($1::oid[]), pg_catalog.unnest($2::boolean[])) AS w(oid, known)
JOIN pg_catalog.pg_class c ON c.oid = w.oid
JOIN pg_catalog.pg_namespace ns ON ns.oid = c.relnamespace
JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass::pg_catalog.oid AND d.objid = c.reltoastrelid AND d.objsubid = 0 AND d.refobjid = c.oid
LEFT JOIN pg_catalog.pg_inherits i ON i.inhrelid = c.oid
WHERE w.known OR pg_catalog.age(d.xmin) >= 0 AND pg_catalog.age(d.xmin) <=
  pg_catalog.age($3::text::pg_catalog.xid)
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.xmin =
  d.xmin)
  AND (i.inhrelid IS NULL OR pg_catalog.age(i.xmin) < 0 OR pg_catalog.age(i.xmin) >
  pg_catalog.age(d.xmin))
ORDER BY 2`

// rewritten names the known tables, and those of the others that a transaction from xid on has
// rewritten without changing a column. It compares ages, since xids wrap around; a negative age is
// that of a row that was frozen long ago.
func (e *evidence) rewritten(ctx context.Context, conn *pgx.Conn, known, others []uint32,
	xid uint32) ([]rewritten, error) {
	oids := slices.Concat(known, others)
	if len(oids) == 0 {
		return nil, nil
	}
	is := slices.Concat(slices.Repeat([]bool{true}, len(known)), make([]bool, len(others)))
	found, err := postgres.Collect(ctx, conn, func(row pgx.CollectableRow) (r rewritten, err error) {
		var oid uint32
		if err = row.Scan(&oid, &r.name); err != nil {
			return r, err
		}
		s, asked := e.storage[oid]
		if !asked {
			return r, fmt.Errorf("the server returned table %d, which was not asked for", oid)
		}
		r.n = s.n
		return r, nil
	}, selectRewritten, oids, is, strconv.FormatUint(uint64(xid), 10))
	return found, postgres.Wrap(err, "look at what was rewritten")
}

// within reports whether xid is in [from, to). Xids wrap around.
func within(xid, from, to uint32) bool { return xid-from < to-from }

// Newer is what was created or altered after a slot's catalog horizon.
type Newer struct {
	What []string
	// Unused: nothing was decoded from the slot yet, and another slot has the same catalog_xmin or an
	// older one. A new slot takes over the oldest catalog_xmin and keeps it until it is streamed, so
	// the changes may be older than the slot.
	Unused bool
	xmin   uint32 // the horizon
}

// Find is the command that finds the rows.
func (n Newer) Find() string { return (&PublicationError{FromXmin: n.xmin}).find() }

// A slot that is made while another one lags begins with the horizon of that one.
const selectUnused = `
SELECT EXISTS (SELECT FROM pg_catalog.pg_stat_replication_slots d WHERE d.slot_name = $1::text AND
  d.total_txns = 0)
  AND EXISTS (SELECT FROM pg_catalog.pg_replication_slots s JOIN pg_catalog.pg_replication_slots o
  ON pg_catalog.age(o.catalog_xmin) >= pg_catalog.age(s.catalog_xmin)
    WHERE s.slot_name = $1::text AND o.slot_name <> s.slot_name)`

// NewerThan names what was created or altered after the slot's catalog horizon: the publication,
// what brings the tables into it, or their storage. Rows that were committed before such a change
// may not be sent, or end the stream with an error. Older things hold for every row that is still
// sent.
func (p *Publication) NewerThan(ctx context.Context, conn *pgx.Conn, s Slot) (Newer, error) {
	e, found := p.evidence, Newer{xmin: s.CatalogXmin}
	if !p.Exists || s.CatalogXmin == 0 {
		return found, nil
	}
	is := func(xid uint32) bool { return within(xid, s.CatalogXmin, uint32(e.xmax)) }
	if is(e.Publication.Xmin) {
		found.What = append(found.What, "publication "+p.Name)
	}
	for _, entry := range e.Entries {
		if is(entry.Xmin) || entry.Schema != "" && is(entry.Moved) {
			found.What = append(found.What, p.Tables[entry.N-1].Name)
		}
	}
	for _, t := range e.Tables {
		if !t.OwnerChanged && is(t.TypeXmin) && e.onlyForTable(t.N) {
			found.What = append(found.What, p.Tables[t.N-1].Name)
		}
	}
	var stored []uint32
	for oid, s := range e.storage {
		if s.toast != 0 {
			stored = append(stored, oid)
		}
	}
	written, err := e.rewritten(ctx, conn, nil, stored, s.CatalogXmin)
	for _, r := range written {
		found.What = append(found.What, r.name)
	}
	slices.Sort(found.What)
	if found.What = slices.Compact(found.What); err != nil || len(found.What) == 0 {
		return found, err
	}
	found.Unused, err = postgres.One[bool](ctx, conn, selectUnused, s.Name)
	return found, postgres.Wrap(err, "compare publication %q and slot %q", p.Name, s.Name)
}
