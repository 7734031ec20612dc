package backfill

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/slot"
)

// Selection says which rows a Recovery looks for in the topics. Its zero value: all that the slot
// cannot have delivered, as far as the slot still tells, else all.
type Selection struct {
	// FromXmin leaves out rows that were written by older transactions: with the catalog_xmin of a
	// slot that was lost, none of those that it did not deliver.
	FromXmin   uint32
	Since      time.Time // of TimeColumn, inclusive
	Until      time.Time // of TimeColumn, exclusive
	TimeColumn string    // for Since and Until; empty: found
	IDs        []string  // in text form
	// Partial takes no account of records that the topics have lost: what is not in them is
	// published.
	Partial bool
	// SkipRefused leaves out rows that the router refuses.
	SkipRefused bool
}

// closing reports whether all rows of the gap are selected, so that the slot can be recreated.
func (s Selection) closing() bool { return len(s.IDs) == 0 && s.Until.IsZero() }

// Select is the table with only the rows of a Selection, which names the time column. c stays as
// it is.
func (c *TableReader) Select(s Selection) *TableReader {
	var conditions []string
	if c.filter != "" {
		conditions = append(conditions, "("+c.filter+")")
	}
	if s.FromXmin != 0 {
		conditions = append(conditions, slot.FromXminSQL(s.FromXmin))
	}
	if !s.Since.IsZero() {
		conditions = append(conditions, postgres.QuoteName(s.TimeColumn)+" >= "+quoteTime(s.Since))
	}
	if !s.Until.IsZero() {
		conditions = append(conditions, postgres.QuoteName(s.TimeColumn)+" < "+quoteTime(s.Until))
	}
	if len(s.IDs) > 0 {
		ids := make([]string, len(s.IDs))
		for i, id := range s.IDs {
			ids[i] = postgres.QuoteText(id)
		}
		conditions = append(conditions, "("+c.unique[0].sql+")::text IN ("+strings.Join(ids, ", ")+")")
	}
	selected := *c
	selected.filter = strings.Join(conditions, " AND ")
	return &selected
}

func quoteTime(t time.Time) string {
	return "'" + t.UTC().Format("2006-01-02 15:04:05.999999Z07:00") + "'::pg_catalog.timestamptz"
}

// InWrittenOrder is the table in the order of the transactions that wrote the rows last, and of
// the rows within one, if there is no better order. That is no order of commits: transactions that
// write the same key at the same time can change places, and so can rows of one statement. It is
// of no use for Rows after a Position.
func (c *TableReader) InWrittenOrder() *TableReader {
	if !c.Order.Random {
		return c
	}
	ordered := *c
	ordered.Order = Order{Written: true}
	ordered.order = &key{sql: "ROW(-pg_catalog.age(xmin), ctid)"}
	return &ordered
}

// TimeColumn finds the column that says when a row was inserted: the one that is wanted, or the
// one that rows are ordered by, or created_at, or the only one with a moment. Empty: none of the
// table's. An error is about the one that is wanted.
func (c *TableReader) TimeColumn(wanted string) (string, error) {
	var moments []string
	for _, column := range c.Relation.Columns {
		if slot.HoldsTime(column) {
			moments = append(moments, column.Name)
		}
	}
	if wanted != "" {
		if !slices.Contains(moments, wanted) {
			exists := slices.ContainsFunc(c.Relation.Columns,
				func(column replication.Column) bool { return column.Name == wanted })
			if !exists {
				return "", fmt.Errorf("table %s publishes no column %q", c.Name, wanted)
			}
			return "", fmt.Errorf("column %q of table %s is of no type with a time: timestamptz, "+
				"timestamp or date", wanted, c.Name)
		}
		return wanted, nil
	}
	for _, name := range []string{c.Order.Column, "created_at"} {
		if slices.Contains(moments, name) {
			return name, nil
		}
	}
	if len(moments) == 1 {
		return moments[0], nil
	}
	return "", nil
}
