package slot

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// StoredRow is a row of a table without its values.
type StoredRow struct {
	ID    string // values of the primary key, or the ctid of a table without one
	Bytes int64  // as stored, compressed
}

// TransactionRows are the rows that a table still has of one transaction.
type TransactionRows struct {
	Unreadable bool        // the role lacks SELECT: nothing else is known
	Count      int64       // of all of them
	First      []StoredRow // twenty at most, in no order
}

// rowsShown bounds TransactionRows.First.
const rowsShown = 20

// RowsOfTransaction reads the whole table. It does not find rows that were inserted under a
// savepoint: their xmin is another.
func RowsOfTransaction(ctx context.Context, conn *pgx.Conn, table string,
	xid uint32) (found TransactionRows, err error) {
	quoted := QuoteTable(table)
	var key, size string
	err = conn.QueryRow(ctx, `SELECT coalesce((SELECT pg_catalog.format('pg_catalog.concat_ws('', '', %s)', pg_catalog.string_agg(pg_catalog.quote_ident(k.attname::text), ', ' ORDER BY k.attnum))
			FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute k ON k.attrelid = i.indrelid AND k.attnum = ANY (i.indkey)
			WHERE i.indrelid = c.oid AND i.indisprimary HAVING pg_catalog.count(*) > 0), 'ctid::text'),
			(SELECT pg_catalog.string_agg(pg_catalog.format('coalesce(pg_catalog.pg_column_size(%I), 0)::bigint', a.attname), ' + ')
			FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)
		FROM pg_catalog.pg_class c WHERE c.oid = pg_catalog.to_regclass($1)::oid AND pg_catalog.has_table_privilege(c.oid, 'SELECT')`,
		quoted).Scan(&key, &size)
	if errors.Is(err, pgx.ErrNoRows) {
		return TransactionRows{Unreadable: true}, nil
	}
	if err != nil {
		return found, fmt.Errorf("look at the columns of %s: %w", table, err)
	}
	rows, _ := conn.Query(ctx, fmt.Sprintf("SELECT %s, %s, pg_catalog.count(*) OVER () "+
		"FROM %s WHERE xmin::text = $1 LIMIT %d", key, size, quoted, rowsShown),
		fmt.Sprint(xid)) // CollectRows returns the error
	found.First, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (r StoredRow, err error) {
		err = row.Scan(&r.ID, &r.Bytes, &found.Count)
		return r, err
	})
	if err != nil {
		return found, fmt.Errorf("look for the transaction's rows in %s: %w", table, err)
	}
	return found, nil
}
