package writeback

import (
	"fmt"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/internal/prune"
	"github.com/postrider/postrider/slot"
)

// statements are those that write to one relation. All take rows that no other session has locked,
// so many that a batch is full, and lock them before they are updated.
type statements struct {
	cfg Config
	*relation
	src prune.Source
}

// pendingColumn is the column that shows which rows are pending.
func (c Config) pendingColumn() string {
	if c.Status != "" {
		return c.Status
	}
	return c.PublishedAt
}

// pending is the condition of rows that are neither published nor failed. A status decides alone.
func (s statements) pending() string {
	if s.cfg.Status == "" {
		return "t." + postgres.QuoteName(s.cfg.PublishedAt) + " IS NULL"
	}
	return s.status() + " = " + postgres.QuoteText(s.cfg.Pending)
}

func (s statements) status() string { return "t." + postgres.QuoteName(s.cfg.Status) }

// ids are the columns that a dead letter may name a row by, as text: that of the router, and the
// replica identity, whose first short column names a row that has no other id.
func (s statements) ids() []string {
	return s.texts(slices.Concat([]string{s.src.ID}, s.Key, s.Identity))
}

// texts are those of these columns that there are.
func (s statements) texts(names []string) (ids []string) {
	for i, name := range names {
		if _, found := s.column(name); found && !slices.Contains(names[:i], name) {
			ids = append(ids, slot.WrittenSQL("t."+postgres.QuoteName(name)))
		}
	}
	return ids
}

// exact are those of ids that one row has: of a primary key of several columns, one is not enough.
func (s statements) exact() []string {
	if len(s.Key) > 1 {
		return s.texts([]string{s.src.ID})
	}
	return s.texts(append([]string{s.src.ID}, s.Key...))
}

// deliveredSQL is the condition of pending rows that were delivered. Its only parameter, $1, has
// the ids of rows with dead letters, which were not.
func (s statements) deliveredSQL(c *prune.Coverage) string {
	conditions := []string{s.pending(), "(" + c.Delivered() + ")", "$1::text[] IS NOT NULL"}
	if above := c.Above(); above != "" {
		conditions = append(conditions, "("+above+")")
	}
	for _, id := range s.ids() {
		conditions = append(conditions, "COALESCE("+id+" <> ALL ($1::text[]), true)")
	}
	return strings.Join(conditions, " AND ")
}

// publishSQL marks rows that were delivered as published.
func (s statements) publishSQL(c *prune.Coverage) string {
	return s.update("", s.deliveredSQL(c), "", s.published())
}

// leftSQL reports whether such rows are left.
func (s statements) leftSQL(c *prune.Coverage) string {
	return fmt.Sprintf("SELECT EXISTS (SELECT FROM ONLY %s AS t WHERE %s)", s.quoted(),
		s.deliveredSQL(c))
}

// letters are dead letters as rows: $1 has the ids, $2 the errors.
const letters = `ROWS FROM (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::text[])) AS l(id, error)`

// failSQL marks the rows of dead letters that are open or discarded as failed. Without a status
// and an error there is nothing to set: it is empty.
func (s statements) failSQL() string {
	if condition := s.failing(); condition != "" {
		return s.update(", l.error", condition, " JOIN "+letters+" ON "+s.named(), s.failed())
	}
	return ""
}

// failing is the condition of rows to which failSQL writes.
func (s statements) failing() string {
	if len(s.exact()) == 0 || s.cfg.Status == "" && s.cfg.LastError == "" {
		return ""
	}
	differs := s.pending()
	if s.cfg.LastError != "" {
		lastError := "t." + postgres.QuoteName(s.cfg.LastError) + "::text IS DISTINCT FROM " +
			s.errorSQL("l")
		if s.cfg.Status == "" {
			return s.pending() + " AND " + lastError
		}
		differs = fmt.Sprintf("(%s OR %s = %s AND %s)", differs, s.status(),
			postgres.QuoteText(s.cfg.Failed), lastError)
	}
	return differs
}

// redriveSQL marks failed rows of dead letters as published that were redriven. Without a status
// it is empty: such a row is pending, and publishSQL marks it.
func (s statements) redriveSQL() string {
	if condition := s.redriving(); condition != "" {
		return s.update("", condition, " JOIN "+letters+" ON "+s.named(), s.published())
	}
	return ""
}

func (s statements) redriving() string {
	if len(s.exact()) == 0 || s.cfg.Status == "" {
		return ""
	}
	return s.status() + " = " + postgres.QuoteText(s.cfg.Failed)
}

// lettersLeftSQL reports whether rows are left to which failSQL or redriveSQL writes.
func (s statements) lettersLeftSQL(condition string) string {
	return fmt.Sprintf("SELECT EXISTS (SELECT FROM ONLY %s AS t JOIN %s ON %s WHERE %s)", s.quoted(),
		letters, s.named(), condition)
}

// named is the condition by which a row has a dead letter.
func (s statements) named() string { return "l.id IN (" + strings.Join(s.exact(), ", ") + ")" }

// update is the statement that sets columns of a batch of rows.
func (s statements) update(also, condition, join string, set []string) string {
	var key, same []string
	for _, name := range s.Key {
		quoted := postgres.QuoteName(name)
		key = append(key, "t."+quoted)
		same = append(same, "t."+quoted+" = b."+quoted)
	}
	return fmt.Sprintf(`WITH b AS (SELECT %[2]s%[3]s FROM ONLY %[1]s AS t%[4]s WHERE %[5]s
	LIMIT %[6]d FOR NO KEY UPDATE OF t SKIP LOCKED)
	UPDATE ONLY %[1]s AS t SET %[7]s FROM b WHERE %[8]s`, s.quoted(), strings.Join(key, ", "), also,
		join, condition, s.cfg.BatchRows, strings.Join(set, ", "), strings.Join(same, " AND "))
}

// published are the assignments of a row that was delivered.
func (s statements) published() []string {
	var set []string
	if name := s.cfg.PublishedAt; name != "" {
		now := "pg_catalog.clock_timestamp()"
		if c, _ := s.column(name); c.Type == timestamp {
			now = "pg_catalog.timezone('UTC', " + now + ")"
		}
		set = append(set, postgres.QuoteName(name)+" = "+now)
	}
	if name := s.cfg.LastError; name != "" {
		set = append(set, postgres.QuoteName(name)+" = NULL")
	}
	return append(set, s.always(s.cfg.Published)...)
}

// failed are the assignments of a row that is a dead letter.
func (s statements) failed() []string {
	set := s.always(s.cfg.Failed)
	if name := s.cfg.LastError; name != "" {
		set = append(set, postgres.QuoteName(name)+" = "+s.errorSQL("b"))
	}
	return set
}

// errorSQL is the error of a dead letter, as far as the column has room for it.
func (s statements) errorSQL(from string) string {
	if c, _ := s.column(s.cfg.LastError); c.Length > 0 {
		return fmt.Sprintf("pg_catalog.left(%s.error, %d)", from, c.Length)
	}
	return from + ".error"
}

// greatest are the limits of the integer types: one row at a limit must not fail a batch.
var greatest = map[string]string{
	"smallint": "32767", "integer": "2147483647", "bigint": "9223372036854775807",
}

// always are the assignments of every row that is written.
func (s statements) always(status string) (set []string) {
	if name := s.cfg.Status; name != "" {
		set = append(set, postgres.QuoteName(name)+" = "+postgres.QuoteText(status))
	}
	if name := s.cfg.Attempts; name != "" {
		quoted := "t." + postgres.QuoteName(name)
		c, _ := s.column(name)
		set = append(set, fmt.Sprintf("%s = CASE WHEN %s < %s THEN %s + 1 ELSE COALESCE(%s, 1) END",
			postgres.QuoteName(name), quoted, greatest[c.Type], quoted, quoted))
	}
	return set
}
