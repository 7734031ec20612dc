package auditor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/audit"
	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/slot"
)

// auditTables reads outbox tables in one snapshot. It is the audit's Written.
type auditTables struct {
	conn        *pgx.Conn
	tables      []auditTable
	since       time.Time // of the records of judged rows; zero: any
	deadLetters *deadLetters
	// changed: by the server's statistics, rows were updated and have the transaction of the
	// update.
	changed bool
}

// auditTable is a table with the columns that its rules name.
type auditTable struct {
	name   string
	id     string // column
	query  string // id, key, transaction, whether it is judged; in order
	from   string
	column string    // that orders rows, as --order-by says; empty: none does
	since  time.Time // of the records of judged rows; zero: any
}

// openAuditTables connects, and returns an error for a table that does not exist. It runs before
// the topics are opened, which are missing too in that case.
func openAuditTables(ctx context.Context, o Options, plan Plan,
	cfg config.Config) (*auditTables, error) {
	conn, err := postgres.ConnectRows(ctx, cfg.Postgres)
	if err != nil {
		return nil, err
	}
	t := &auditTables{conn: conn, since: plan.Since}
	if err := postgres.SetTimeout(ctx, conn, "lock_timeout", slot.LockTimeout); err != nil {
		t.close()
		return nil, err
	}
	for _, name := range cfg.Replication.Tables {
		rel, err := slot.Relation(ctx, conn, name)
		var table auditTable
		if err == nil {
			table, err = describeAudited(rel, name, o, plan, cfg)
		}
		if err != nil {
			t.close()
			return nil, err
		}
		// A topic can have rows of several tables: which, only the rows tell.
		if table.since.Before(t.since) {
			t.since = table.since
		}
	}
	return t, nil
}

// begin takes the snapshot, which lasts until close. slot.ErrRewritten: rows may be missing in it.
func (t *auditTables) begin(ctx context.Context, o Options, plan Plan,
	cfg config.Config) (err error) {
	if t.deadLetters, err = findDeadLetters(ctx, t.conn); err != nil {
		return err
	}
	if _, err := t.conn.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"); err != nil {
		return postgres.Error(err)
	}
	for _, name := range cfg.Replication.Tables {
		rel, err := slot.Relation(ctx, t.conn, name)
		if err != nil {
			return err
		}
		table, err := describeAudited(rel, name, o, plan, cfg)
		if err != nil {
			return err
		}
		if err := slot.HoldTable(ctx, t.conn, table.from, rel.OID); err != nil {
			return exit.Unreadable(err, table.from, t.conn.Config().User)
		}
		t.tables = append(t.tables, table)
		if len(o.Tables) > 0 { // one that is named may be an archive, or have had another name
			continue
		}
		if err := t.deadLetters.add(ctx, t.conn, slot.Table{Name: name, OID: rel.OID}); err != nil {
			return err
		}
	}
	if o.Transaction != RowTransaction {
		return nil
	}
	oids, err := slot.OIDs(ctx, t.conn, t.Names())
	if err != nil {
		return err
	}
	err = t.conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_catalog.pg_stat_all_tables "+
		"WHERE relid = ANY($1::oid[]) AND n_tup_upd > 0)",
		slices.Collect(maps.Keys(oids))).Scan(&t.changed)
	return postgres.Error(err)
}

// theTime is what --since and --until compare.
const theTime = "the time of a row, of type timestamptz or timestamp"

// RowTransaction is the column that has the transaction that wrote a row last.
const RowTransaction = "xmin"

// describeAudited finds the columns of a table.
func describeAudited(rel *replication.Relation, name string, o Options, plan Plan,
	cfg config.Config) (t auditTable, err error) {
	rule, _ := cfg.Rule(name)
	find := func(names ...string) (replication.Column, bool) {
		for _, n := range names {
			if i := slices.IndexFunc(rel.Columns,
				func(c replication.Column) bool { return c.Name == n }); n != "" && i >= 0 {
				return rel.Columns[i], true
			}
		}
		return replication.Column{}, false
	}
	// A column that the user names must exist; one of the rules or a default need not.
	column := func(what, flag, named string, names ...string) replication.Column {
		if named != "" {
			names = []string{named}
		}
		c, ok := find(names...)
		if err == nil && (!ok || what == theTime && !slot.HoldsInstant(c)) {
			err = &exit.Error{Code: exit.Config,
				Err:  fmt.Errorf("table %s: no column for %s", name, what),
				Next: "postrider audit " + flag + " COLUMN"}
		}
		return c
	}
	id := column("the id", "--id-column", o.IDColumn, rule.FieldID)
	key := column("the key", "--key-column", o.KeyColumn, rule.FieldKey, "aggregate_id",
		"aggregateid")
	t = auditTable{name: name, from: slot.QuoteTable(name), id: id.Name}
	sorted, judged := "", "true"
	if o.OrderBy != "" {
		t.column = column("the order", "--order-by", o.OrderBy).Name
		// Qualified: the bare name is that of the selected text, which sorts 10 before 9.
		sorted = "t." + pgx.Identifier{t.column}.Sanitize() + ", "
	}
	if !plan.Since.IsZero() || !plan.Until.IsZero() {
		at := column(theTime, "--time-column", o.TimeColumn, rule.FieldTimestamp, "created_at")
		t.since = slot.RecordsSince(plan.Since, at, rule.FieldTimestamp)
		judged = within(pgx.Identifier{at.Name}.Sanitize(), plan.Since, plan.Until, t.since.IsZero())
	}
	if err != nil {
		return t, err
	}
	transaction, ok := find(o.Transaction)
	if !ok { // a column of the system, xmin
		transaction.Name = o.Transaction
	}
	t.query = fmt.Sprintf("SELECT %s, %s, %s, %s FROM %s AS t ORDER BY %st.tableoid, t.ctid",
		slot.TextSQL(id), slot.TextSQL(key), slot.TextSQL(transaction), judged, t.from, sorted)
	return t, nil
}

// within is an SQL condition that is never NULL. timeless: a row without a time is judged, since
// all records are read.
func within(column string, since, until time.Time, timeless bool) string {
	var conditions []string
	if !since.IsZero() {
		conditions = append(conditions, column+" >= '"+since.UTC().Format(time.RFC3339Nano)+"'")
	}
	if !until.IsZero() {
		conditions = append(conditions, column+" < '"+until.UTC().Format(time.RFC3339Nano)+"'")
	}
	return fmt.Sprintf("coalesce(%s, %t)", strings.Join(conditions, " AND "), timeless)
}

// Names are the tables.
func (t *auditTables) Names() []string {
	var names []string
	for i := range t.tables {
		names = append(names, t.tables[i].name)
	}
	return names
}

// Order names the column of --order-by. No other column has the order of commits: writers fill it
// before they commit.
func (t *auditTables) Order() string {
	if len(t.tables) == 0 {
		return ""
	}
	return t.tables[0].column
}

// Count is that of audit.Written.
func (t *auditTables) Count(ctx context.Context) (int64, error) {
	var all int64
	for i := range t.tables {
		var n int64
		if err := t.conn.QueryRow(ctx,
			"SELECT pg_catalog.count(*) FROM "+t.tables[i].from).Scan(&n); err != nil {
			return 0, t.unreadable(&t.tables[i], err)
		}
		all += n
	}
	return all, nil
}

// Rows is that of audit.Written. It reads in text format, and keeps none of the rows.
func (t *auditTables) Rows(ctx context.Context, each func(*audit.Row) error) error {
	for i := range t.tables {
		results := t.conn.PgConn().Exec(ctx, t.tables[i].query)
		for results.NextResult() {
			for rows := results.ResultReader(); rows.NextRow(); {
				if err := eachRow(rows.Values(), each); err != nil {
					_ = t.conn.PgConn().Conn().Close() // or Close would read the rest of the rows
					_ = results.Close()
					return err
				}
			}
		}
		if err := results.Close(); err != nil {
			return t.unreadable(&t.tables[i], err)
		}
	}
	return nil
}

func eachRow(values [][]byte, each func(*audit.Row) error) error {
	transaction, err := strconv.ParseUint(string(values[2]), 10, 64)
	if err != nil && values[2] != nil {
		return exit.Usagef("--transaction-column: %q is no integer", values[2])
	}
	if values[0] == nil {
		return errors.New("a row has no id: NULL")
	}
	return each(&audit.Row{ID: values[0], Key: values[1], Transaction: transaction,
		Judged: string(values[3]) == "t"})
}

func (t *auditTables) unreadable(table *auditTable, err error) error {
	err = fmt.Errorf("read table %s: %w", table.name, postgres.Error(err))
	return exit.Unreadable(err, table.from, t.conn.Config().User)
}

func (t *auditTables) close() { postgres.Close(t.conn) }
