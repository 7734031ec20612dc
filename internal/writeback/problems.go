package writeback

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/slot"
)

// Problem is why a relation is not written to, or will be slow to write to.
type Problem struct {
	Table   string // the relation
	Text    string // a predicate, as in `table x has no primary key`
	Fix     string // SQL, or what to change in the configuration
	Warning bool   // it is written to nevertheless
}

func (p Problem) Error() string { return "table " + p.Table + " " + p.Text }

// Advice is what the user needs besides the text.
func (p Problem) Advice() (wal, fix string) { return nothingWritten, p.Fix }

// nothingWritten is what it means that rows are not written back.
const nothingWritten = "rows are published as before, and stay pending in the table; the WAL is " +
	"not concerned"

const (
	timestamp   = "timestamp without time zone"
	timestamptz = "timestamp with time zone"
)

var (
	textTypes    = []string{"text", "character varying", "character"}
	integerTypes = []string{"smallint", "integer", "bigint"}
)

// manyRows is from when on it matters that no index finds pending rows.
const manyRows = 100_000

// judge collects the problems of one relation.
type judge struct {
	cfg  Config
	user string // this role
	*relation
	found []Problem
}

// problems are those of a relation. A partitioned table is judged by its columns alone.
func (r *relation) problems(cfg Config, user string) []Problem {
	j := &judge{cfg: cfg, user: user, relation: r}
	if r.Kind != "r" && r.Kind != "p" {
		j.add("is not a table, or is a foreign table", "leave it out of write_back.tables")
		return j.found
	}
	j.columns()
	if r.Kind == "r" {
		j.rights()
		j.code()
		j.index()
	}
	return j.found
}

func (j *judge) add(text, fix string) {
	j.found = append(j.found, Problem{Table: j.name(), Text: text, Fix: fix})
}

func (j *judge) columns() {
	if len(j.Key) == 0 {
		j.add("has no primary key", "ALTER TABLE "+j.quoted()+" ADD PRIMARY KEY (id); -- or its columns")
	}
	j.typed("published_at", j.cfg.PublishedAt, "timestamptz", timestamptz, timestamp)
	j.typed("attempts", j.cfg.Attempts, "integer NOT NULL DEFAULT 0", integerTypes...)
	j.typed("last_error", j.cfg.LastError, "text", textTypes[:2]...)
	if c, found := j.column(j.cfg.LastError); found && c.NotNull {
		j.add("has column "+postgres.QuoteName(c.Name)+" that cannot be NULL, which is the last_error "+
			"of a published row", "ALTER TABLE "+j.quoted()+" ALTER COLUMN "+
			postgres.QuoteName(c.Name)+" DROP NOT NULL;")
	}
	if c, found := j.column(j.cfg.Status); found && c.EnumLabels != nil {
		j.labels(c)
	} else {
		j.typed("status", j.cfg.Status, "text NOT NULL DEFAULT "+postgres.QuoteText(j.cfg.Pending),
			textTypes...)
		j.lengths(c)
	}
	for _, name := range j.cfg.columns() {
		c, _ := j.column(name)
		quoted := postgres.QuoteName(name)
		switch {
		case slices.Contains(j.Routed, name):
			j.add("is partitioned by column "+quoted+": an update would move the row, and it would be "+
				"published again", "name another column in [write_back]")
		case slices.Contains(j.Identity, name):
			j.add("has column "+quoted+" in its primary key or replica identity",
				"name another column in [write_back]")
		case c.Generated:
			j.add("has column "+quoted+", which is generated", "name another column in [write_back]")
		}
	}
}

// typed requires a column of one of some types. definition is one that fits.
func (j *judge) typed(key, name, definition string, types ...string) {
	if name == "" {
		return
	}
	c, found := j.column(name)
	quoted := postgres.QuoteName(name)
	switch {
	case !found:
		fix := fmt.Sprintf("ALTER TABLE %s ADD COLUMN %s %s; -- or correct write_back.%s", j.quoted(),
			quoted, definition, key)
		if j.Depth > 0 {
			fix = "correct write_back." + key
		}
		j.add("has no column "+quoted, fix)
	case !slices.Contains(types, c.Type):
		j.add(fmt.Sprintf("has column %s of type %s, which write_back.%s cannot be", quoted, c.Type,
			key),
			fmt.Sprintf("name a column of one of these types in write_back.%s: %s", key,
				strings.Join(types, ", ")))
	}
}

// labels requires the values of status in its enum.
func (j *judge) labels(c column) {
	for _, value := range []string{j.cfg.Pending, j.cfg.Published, j.cfg.Failed} {
		if !slices.Contains(c.EnumLabels, value) {
			j.add(fmt.Sprintf("has column %s, an enum without the value %s",
				postgres.QuoteName(c.Name), postgres.QuoteText(value)), fmt.Sprintf(
				"ALTER TYPE %s ADD VALUE %s; -- or name one of its values in [write_back]: %s", c.Type,
				postgres.QuoteText(value), strings.Join(c.EnumLabels, ", ")))
		}
	}
}

func (j *judge) lengths(c column) {
	for _, value := range []string{j.cfg.Pending, j.cfg.Published, j.cfg.Failed} {
		if c.Length > 0 && utf8.RuneCountInString(value) > c.Length {
			j.add(fmt.Sprintf("has column %s of %d characters, in which %s has no room",
				postgres.QuoteName(c.Name), c.Length, postgres.QuoteText(value)),
				"ALTER TABLE "+j.quoted()+" ALTER COLUMN "+postgres.QuoteName(c.Name)+" TYPE text;")
		}
	}
}

func (j *judge) rights() {
	var columns []string
	missing := !j.Select
	for _, name := range j.cfg.columns() {
		if c, found := j.column(name); found {
			columns = append(columns, postgres.QuoteName(name))
			missing = missing || !c.Update
		}
	}
	if missing {
		update := "UPDATE (" + strings.Join(columns, ", ") + ")"
		j.add("takes SELECT and "+update+", which role "+j.user+" lacks", "as the owner of the table: "+
			"GRANT SELECT, "+update+" ON "+j.quoted()+" TO "+postgres.QuoteName(j.user)+";")
	}
}

// code refuses what an update would run with the rights of the relay.
func (j *judge) code() {
	switch {
	case j.Secured:
		j.add("has row security, which hides rows from this role, or runs its owner's code",
			"ALTER ROLE "+postgres.QuoteName(j.user)+" BYPASSRLS; -- as a superuser")
	case len(j.Triggers) > 0:
		j.add("has a trigger that an update fires, which would run with the rights of the relay: "+
			strings.Join(j.Triggers, ", "), "ALTER TABLE "+j.quoted()+" DISABLE TRIGGER "+
			postgres.QuoteName(j.Triggers[0])+"; -- or have it fire for UPDATE no more")
	case len(j.Rules) > 0:
		j.add("has a rule for updates: "+strings.Join(j.Rules, ", "), "DROP RULE "+
			postgres.QuoteName(j.Rules[0])+" ON "+j.quoted()+";")
	case len(j.Functions) > 0:
		j.add("has a constraint, index, generated column or statistics that call functions of another "+
			"role, which would run with the rights of the relay: "+strings.Join(j.Functions, ", "),
			"have a superuser own the function (ALTER FUNCTION ... OWNER TO), or drop what calls it")
	}
}

// index warns where every sweep would read a large table.
func (j *judge) index() {
	name, condition := j.cfg.pendingColumn(), "IS NULL"
	if j.cfg.Status != "" {
		condition = "= " + postgres.QuoteText(j.cfg.Pending)
	}
	c, found := j.column(name)
	if !found || c.Indexed || j.Rows < manyRows || len(j.Key) == 0 {
		return
	}
	var key []string
	for _, name := range j.Key {
		key = append(key, postgres.QuoteName(name))
	}
	j.found = append(j.found, Problem{Table: j.name(), Warning: true,
		Text: fmt.Sprintf("has about %d rows and no index that finds the pending ones: each sweep "+
			"reads all of it", j.Rows),
		Fix: fmt.Sprintf("CREATE INDEX CONCURRENTLY ON %s (%s) WHERE %s %s;", j.quoted(),
			strings.Join(key, ", "), postgres.QuoteName(name), condition)})
}

// unproven are the reasons for which the stream does not show what was delivered of the tables, or
// would show what is written back.
func unproven(p *slot.Publication) (problems []Problem) {
	for _, t := range p.Tables {
		set := "ALTER PUBLICATION " + postgres.QuoteName(p.Name)
		switch {
		case !t.Published:
			problems = append(problems, Problem{Table: t.Name, Text: "is not in publication " + p.Name,
				Fix: "postrider check"})
		case t.RowFilter != "":
			problems = append(problems, Problem{Table: t.Name, Text: "has a row filter in the " +
				"publication, so that some rows are never sent: " + t.RowFilter,
				Fix: set + " SET TABLE " + slot.QuoteTable(t.Name) + "; -- and its other tables"})
		case p.Update:
			problems = append(problems, Problem{Table: t.Name, Text: "has its updates published, so the " +
				"relay would read what is written back, as router.table.op.invalid.behavior says",
				Fix: set + " SET (publish = 'insert'); -- " + slot.RestartAfter})
		}
	}
	return problems
}
