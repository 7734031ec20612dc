package slot

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
)

// lasting is the age from which a transaction is worth ending: most younger ones end by
// themselves. Create waits as long for each older transaction.
const lasting = 2 * time.Second

// blockersShown bounds how many transactions a message names.
const blockersShown = 10

// blocker is a transaction that has an xid and is running for others: a row of selectBlockers.
type blocker struct {
	XID      string
	PID      *int32  // nil: a prepared transaction
	GID      *string // of a prepared transaction
	Database string  // of a prepared transaction, else empty
	Text     string
	Lasting  bool // seen to be older than lasting: it may not end by itself
}

// selectBlockers has the parameter lasting. It works for any role; only the beginning of another
// session's transaction needs pg_read_all_stats.
const selectBlockers = `
SELECT l.transactionid::text, l.pid, p.gid, coalesce(p.database::text, ''), CASE
    WHEN l.pid IS NULL THEN pg_catalog.concat('prepared transaction ',
    pg_catalog.quote_literal(coalesce(p.gid, '?')))
    ELSE pg_catalog.concat('pid ', l.pid::text, ' (user ', coalesce(a.usename::text, '?'),
    ', application ',
      coalesce(nullif(a.application_name, ''), '?'), ')') END,
  coalesce(pg_catalog.clock_timestamp() - coalesce(a.xact_start, p.prepared) >
  $1::pg_catalog.interval, false)
FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
LEFT JOIN pg_catalog.pg_prepared_xacts p ON l.pid IS NULL AND p.transaction = l.transactionid
WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted
  AND l.pid IS DISTINCT FROM pg_catalog.pg_backend_pid()`

// findBlockers returns the transactions for which more conditions hold too. Subtransactions have
// xids of their own, and so rows.
func findBlockers(ctx context.Context, conn *pgx.Conn, more string) ([]blocker, error) {
	found, err := postgres.Collect(ctx, conn, pgx.RowToStructByPos[blocker],
		selectBlockers+more, lasting)
	for i := range found {
		found[i].Text = Printable(found[i].Text)
	}
	return found, err
}

// namesOf names each once, whatever subtransactions it has.
func namesOf(blockers []blocker) (names []string) {
	for _, b := range blockers {
		if !slices.Contains(names, b.Text) {
			names = append(names, b.Text)
		}
	}
	return names
}

// transactionsOf returns the first of them, at most blockersShown, without subtransactions:
// blockers are in the order in which they began.
func transactionsOf(blockers []blocker) (found []blocker) {
	for _, b := range blockers {
		known := slices.ContainsFunc(found, func(f blocker) bool { return f.Text == b.Text })
		if !known && len(found) < blockersShown {
			found = append(found, b)
		}
	}
	return found
}

// endSessions is what to type to end the transactions of sessions that are lasting, one line for
// each. Empty: there is none.
func endSessions(transactions []blocker) (text string) {
	for _, t := range transactions {
		if t.PID != nil && t.Lasting {
			text += "\n" + EndTransaction(*t.PID, t.XID) + " -- takes back what it has written"
		}
	}
	return text
}

// endPrepared is what to type to end those that are prepared and lasting: no session that ends
// takes them with it. Empty: there is none.
func endPrepared(blockers []blocker) string {
	var b strings.Builder
	for _, p := range blockers {
		if p.GID == nil || !p.Lasting {
			continue
		}
		if b.Len() == 0 {
			b.WriteString("\nSELECT gid, prepared, owner, database FROM pg_prepared_xacts ORDER BY " +
				"prepared; -- they stay until they are committed or rolled back")
		}
		b.WriteString("\n" + EndPrepared(*p.GID, p.Database))
	}
	return b.String()
}

// EndPrepared says how to end a prepared transaction, on one line. It is a comment: to roll back
// what other databases have committed already would lose data. database may be empty.
func EndPrepared(gid, database string) string {
	where := ""
	if database != "" {
		where = "in database " + Printable(database) + "; "
	}
	return fmt.Sprintf("-- %sits transaction manager knows which: COMMIT PREPARED %s, or ROLLBACK "+
		"PREPARED", where, PrintableLiteral(gid))
}

// EndTransaction is SQL that ends the transaction of a session, with the session. Once it is over
// the SQL ends nothing: a pooled session may be in another one that nobody has complained of.
// Every role sees pg_locks.
func EndTransaction(pid int32, xid string) string {
	return fmt.Sprintf("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE pid = %d AND "+
		"transactionid = '%s' AND granted;", pid, xid)
}

// PrintableLiteral is a string in SQL, on one line whatever a client has put into it.
func PrintableLiteral(s string) string {
	if Printable(s) == s && !strings.Contains(s, `\`) {
		return postgres.QuoteText(s)
	}
	var b strings.Builder
	b.WriteString("E'")
	for _, r := range strings.NewReplacer("'", "''", `\`, `\\`).Replace(s) {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		fmt.Fprintf(&b, `\U%08X`, r)
	}
	return b.String() + "'"
}

// Printable keeps what a client has named itself, or its transaction, from moving the cursor of
// the reader.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}
