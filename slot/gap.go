package slot

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
)

// gapTimeout bounds the counting of one table's rows, which the message waits for.
const gapTimeout = 5 * time.Second

// Gap is what a lost slot has not delivered, as far as the server shows.
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

// MeasureGap reads the size of the gap from the server. What cannot be read is left out, or has
// its reason. It blocks for seconds at most. consented is as for MayRead.
func MeasureGap(ctx context.Context, conn *pgx.Conn, lost *LostError, tables []string,
	consented bool) *Gap {
	g := &Gap{From: lost.ConfirmedFlushLSN, FromXmin: lost.CatalogXmin}
	current, _ := postgres.One[*string](ctx, conn, "SELECT ("+CurrentLSNSQL+")::text")
	if current != nil {
		g.To, _ = pglogrepl.ParseLSN(*current) // zero if it cannot be read
	}
	for _, table := range tables {
		rows, whyNot, err := g.count(ctx, conn, table, consented)
		if postgres.SQLState(err) == "57014" { // query_canceled
			whyNot = fmt.Sprintf("that took longer than %s", gapTimeout)
		} else if err != nil {
			whyNot = err.Error()
		}
		g.Tables = append(g.Tables, TableGap{table, rows, whyNot})
	}
	return g
}

func (g *Gap) count(ctx context.Context, conn *pgx.Conn, table string,
	consented bool) (rows int64, whyNot string, err error) {
	if g.FromXmin == 0 {
		return 0, "the transaction to count from is not known", nil
	}
	if err := postgres.SetTimeout(ctx, conn, "statement_timeout", gapTimeout); err != nil {
		return 0, "", err
	}
	schema, name := SplitTable(table)
	oid, err := postgres.One[uint32](ctx, conn, // zero: there is none
		`SELECT coalesce((SELECT c.oid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid
		= c.relnamespace
		WHERE n.nspname = $1 AND c.relname = $2), 0::oid)`, schema, name)
	if err == nil {
		whyNot, err = MayRead(ctx, conn, oid, consented)
	}
	if err != nil || whyNot != "" {
		return 0, whyNot, err
	}
	// The snapshot is fixed before age() is, which the planner evaluates already.
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead},
		func(pgx.Tx) (err error) {
			rows, err = postgres.One[int64](ctx, conn, "SELECT pg_catalog.count(*) FROM "+
				QuoteTable(table)+" WHERE "+FromXminSQL(g.FromXmin), pgx.QueryExecModeSimpleProtocol)
			return err
		})
	return rows, "", err
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

// Size is a number of bytes for people: "256 MiB", "1.2 MiB".
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

// FromXminSQL is the condition for rows written by a transaction or a later one. It compares ages,
// since xids wrap around. A row that was frozen more than 2^31 transactions ago has a negative
// age; after 2^32 it cannot be distinguished from a new one. The transaction must be REPEATABLE
// READ: in another one, rows that are newer than its first call of age() have negative ages too.
func FromXminSQL(xid uint32) string {
	return fmt.Sprintf("pg_catalog.age(xmin) BETWEEN 0 AND pg_catalog.age('%d'::pg_catalog.xid)",
		xid)
}
