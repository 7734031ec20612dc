package slot

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
)

// gapTimeout bounds how long the rows of one table are counted: whoever waits for the message
// wants it now.
const gapTimeout = 5 * time.Second

// Gap is what a lost slot has not delivered, as far as the server still tells.
type Gap struct {
	// confirmed position of the slot, and end of the server's WAL when this was looked at; zero: not
	// known
	From, To pglogrepl.LSN
	FromXmin uint32 // no transaction in the gap is older; zero: not known
	Tables   []TableGap
}

// TableGap is how many rows of a table cannot have been delivered. Some of them can have been: it
// counts from the oldest transaction in question.
type TableGap struct {
	Table  string
	Rows   int64
	Reason string // why they were not counted; empty: they were
}

// MeasureGap asks the server how large the gap is. What it does not tell is left out, or has its
// reason; it blocks for seconds at most. consented is as for MayRead.
func MeasureGap(ctx context.Context, conn *pgx.Conn, lost *LostError, tables []string,
	consented bool) *Gap {
	g := &Gap{From: lost.ConfirmedFlushLSN, FromXmin: lost.CatalogXmin}
	var current string
	if err := conn.QueryRow(ctx, "SELECT ("+CurrentLSNSQL+")::text").Scan(&current); err == nil {
		g.To, _ = pglogrepl.ParseLSN(current) // zero if it cannot be read
	}
	for _, table := range tables {
		g.Tables = append(g.Tables, g.count(ctx, conn, table, consented))
	}
	return g
}

func (g *Gap) count(ctx context.Context, conn *pgx.Conn, table string, consented bool) TableGap {
	t := TableGap{Table: table}
	if g.FromXmin == 0 {
		t.Reason = "nothing tells from which transaction on"
		return t
	}
	if err := postgres.SetTimeout(ctx, conn, "statement_timeout", gapTimeout); err != nil {
		t.Reason = err.Error()
		return t
	}
	schema, name := SplitTable(table)
	var oid uint32 // zero: there is none
	err := conn.QueryRow(ctx, `
		SELECT coalesce((SELECT c.oid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid
		= c.relnamespace
		WHERE n.nspname = $1 AND c.relname = $2), 0::oid)`, schema, name).Scan(&oid)
	if err == nil {
		t.Reason, err = MayRead(ctx, conn, oid, consented)
	}
	if err != nil {
		t.Reason = err.Error()
	}
	if t.Reason != "" {
		return t
	}
	err = conn.QueryRow(ctx, "SELECT pg_catalog.count(*) FROM "+QuoteTable(table)+" WHERE "+
		FromXminSQL(g.FromXmin), pgx.QueryExecModeSimpleProtocol).Scan(&t.Rows)
	switch postgres.SQLState(err) {
	case "57014": // query_canceled
		t.Reason = fmt.Sprintf("that took longer than %s", gapTimeout)
	default:
		if err != nil {
			t.Reason = err.Error()
		}
	}
	return t
}

// Empty: no row of the tables is in the gap.
func (g *Gap) Empty() bool {
	for _, t := range g.Tables {
		if t.Reason != "" || t.Rows > 0 {
			return false
		}
	}
	return len(g.Tables) > 0
}

// String is what follows the error.
func (g *Gap) String() string {
	var parts []string
	if g.From != 0 && g.To >= g.From {
		parts = append(parts, fmt.Sprintf("the gap is from %s to %s, %s of WAL of the whole server",
			g.From, g.To, Size(float64(g.To-g.From))))
	}
	for _, t := range g.Tables {
		if t.Reason != "" {
			parts = append(parts, fmt.Sprintf("rows of %s in it were not counted: %s", t.Table, t.Reason))
			continue
		}
		parts = append(parts, fmt.Sprintf("at most %d rows of %s are in it", t.Rows, t.Table))
	}
	return strings.Join(parts, "; ")
}

// Size writes bytes for people: "256 MiB", "1.2 MiB".
func Size(bytes float64) string {
	unit := -1
	for ; bytes >= 1023.95 && unit < 4; unit++ {
		bytes /= 1024
	}
	if unit < 0 {
		return fmt.Sprintf("%.0f B", bytes)
	}
	return fmt.Sprintf("%s %ciB", strings.TrimSuffix(fmt.Sprintf("%.1f", bytes), ".0"), "KMGTP"[unit])
}

// FromXminSQL is the condition for rows written by a transaction or a later one. By age, since
// numbers of transactions wrap around.
func FromXminSQL(xid uint32) string {
	return "pg_catalog.age(xmin) <= pg_catalog.age('" + strconv.FormatUint(uint64(xid), 10) +
		"'::pg_catalog.xid)"
}
