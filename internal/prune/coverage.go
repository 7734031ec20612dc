package prune

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/postgres"
)

// maxRanges bounds the saved ranges of a relation. The oldest is dropped first, and its rows are
// kept.
const maxRanges = 100

// maxMarks bounds the saved marks of a relation.
const maxMarks = 128

// Range is a time for which the slot existed without interruption and the relation was published.
type Range struct {
	// From is the xmax of a snapshot that was taken when the slot existed: a transaction from it on
	// committed when the slot had begun, so the slot sends it.
	From uint64 `json:"from"`
	// To is the horizon: the xmin of a snapshot of which every visible row was confirmed. Every
	// transaction below it had ended then. To >= From is not an invariant: while a transaction is
	// open that is older than the range, the range holds no row.
	To uint64 `json:"to"`
	// Bound is the greatest value of the column in all rows that were visible when the range began,
	// as PostgreSQL writes it. A row with a greater value was inserted later; an update of an older
	// one gives it an xmin of the range. nil: there was no row, or all of them count as delivered.
	Bound *string `json:"bound,omitempty"`
	// Unbounded: there were rows, and no column orders them, or it was NULL in some. No row of the
	// range counts as delivered.
	Unbounded bool      `json:"unbounded,omitempty"`
	Began     time.Time `json:"began"`  // by the server's clock
	Proven    time.Time `json:"proven"` // when To was read
}

// Mark is a horizon with its time: every row below XID was committed before At.
type Mark struct {
	XID uint64    `json:"xid"`
	At  time.Time `json:"at"` // by the server's clock
}

// Coverage is which rows of a relation, a table or a leaf partition, the slot has delivered.
type Coverage struct {
	Column     string  `json:"column,omitempty"` // of the bounds; empty: none
	ColumnType string  `json:"column_type,omitempty"`
	Ranges     []Range `json:"ranges"` // by time; the last is open
	Marks      []Mark  `json:"marks,omitempty"`
}

// Began is when the coverage that lasts began.
func (c *Coverage) Began() time.Time {
	if len(c.Ranges) == 0 {
		return time.Time{}
	}
	return c.Ranges[len(c.Ranges)-1].Began
}

// Unordered reports whether the coverage that lasts shows no row as delivered, since there were
// rows when it began, and no column orders them.
func (c *Coverage) Unordered() bool {
	return len(c.Ranges) > 0 && c.Ranges[len(c.Ranges)-1].Unbounded
}

// clone returns a copy that shares nothing with c.
func (c *Coverage) clone() Coverage {
	own := *c
	own.Ranges, own.Marks = slices.Clone(c.Ranges), slices.Clone(c.Marks)
	return own
}

// setColumn sets the column of the bounds, and drops the ranges with bounds of another one. It
// reports whether the open range is still there.
func (c *Coverage) setColumn(column, columnType string) bool {
	n := len(c.Ranges)
	if n == 0 {
		c.Column, c.ColumnType = column, columnType
		return false
	}
	open := c.Ranges[n-1]
	if c.Column != column || c.ColumnType != columnType {
		bounded := func(r Range) bool { return r.Bound != nil || r.Unbounded }
		c.Ranges = slices.DeleteFunc(c.Ranges, bounded)
		c.Column, c.ColumnType = column, columnType
		return !bounded(open)
	}
	return true
}

// begin opens a range. The one before ends at its horizon.
func (c *Coverage) begin(r Range) {
	c.Ranges = append(c.Ranges, r)
	c.Ranges = c.Ranges[max(0, len(c.Ranges)-maxRanges):]
}

// extend moves the horizon of the open range, which never goes back. keep is for how long marks
// are needed.
func (c *Coverage) extend(horizon uint64, at time.Time, keep time.Duration) {
	open := &c.Ranges[len(c.Ranges)-1]
	open.To, open.Proven = max(open.To, horizon), at
	if n := len(c.Marks); n > 0 && (open.To == c.Marks[n-1].XID ||
		at.Sub(c.Marks[n-1].At) < keep/(maxMarks/2)) {
		return
	}
	c.Marks = append(c.Marks, Mark{open.To, at})
	// the newest of those that are old enough has the greatest horizon
	old := c.oldest(at.Add(-keep))
	c.Marks = c.Marks[max(0, old, len(c.Marks)-maxMarks):]
}

// oldest returns the index of the newest mark from before a time, or -1.
func (c *Coverage) oldest(before time.Time) int {
	n := slices.IndexFunc(c.Marks, func(m Mark) bool { return m.At.After(before) })
	if n < 0 {
		n = len(c.Marks)
	}
	return n - 1
}

// accept makes every row below the horizon count as delivered.
func (c *Coverage) accept(horizon uint64, at time.Time) {
	c.Ranges = []Range{{From: 0, To: horizon, Began: at, Proven: at}}
}

// bound is SQL for the value of a bound.
func (c *Coverage) bound(value string) string {
	return postgres.QuoteText(value) + "::" + c.ColumnType
}

// xidSQL is the transaction that wrote a row, with its epoch. A visible row is from below the xmax
// of the snapshot of the statement. A row that was frozen more than 2^32 transactions ago appears
// as a newer one; it was there when the range began, and the bound excludes it.
const xidSQL = `(CASE WHEN xmin::text::bigint < 3 THEN xmin::text::bigint
	ELSE xmin::text::bigint + ((` + nextXIDSQL + ` - 1 - xmin::text::bigint) >> 32 << 32) END)`

const nextXIDSQL = `(SELECT
	pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text::bigint)`

// What Delivered and CommittedBefore return if no row fulfils them.
const (
	neverDelivered = "COALESCE(" + xidSQL + " BETWEEN 1 AND 0, false)"
	neverCommitted = xidSQL + " < 0"
)

// Delivered is a condition for the rows of the relation that the slot has delivered. It has no
// parameters, is never NULL, and names xmin and the column without their table. It holds for every
// later snapshot too. A caller keeps rows with open dead letters besides.
func (c *Coverage) Delivered() string {
	var ranges []string
	for _, r := range c.Ranges {
		if r.Unbounded || r.To <= r.From {
			continue
		}
		condition := fmt.Sprintf("%s BETWEEN %d AND %d", xidSQL, r.From, r.To-1)
		if r.Bound != nil {
			condition += " AND " + postgres.QuoteName(c.Column) + " > " + c.bound(*r.Bound)
		}
		ranges = append(ranges, condition)
	}
	if len(ranges) == 0 {
		return neverDelivered
	}
	return "COALESCE(" + strings.Join(ranges, " OR ") + ", false)"
}

// Above is a condition that every delivered row fulfils, and that an index of the column can
// answer; empty: there is none.
func (c *Coverage) Above() string {
	var bounds []string
	for _, r := range c.Ranges {
		switch {
		case r.Unbounded || r.To <= r.From:
		case r.Bound == nil:
			return ""
		default:
			bounds = append(bounds, c.bound(*r.Bound))
		}
	}
	if len(bounds) == 0 {
		return ""
	}
	return postgres.QuoteName(c.Column) + " > LEAST(" + strings.Join(bounds, ", ") + ")"
}

// CommittedBefore is a condition for rows of transactions that had committed at a time, as far as
// the marks show. It is never NULL, and has no parameters. An update makes a row younger.
func (c *Coverage) CommittedBefore(at time.Time) string {
	i := c.oldest(at)
	if i < 0 {
		return neverCommitted
	}
	return fmt.Sprintf("%s < %d", xidSQL, c.Marks[i].XID)
}
