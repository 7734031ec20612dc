package debezium

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
)

// ReadTables returns the tables of a database, as schema.table, and the columns of each.
func ReadTables(ctx context.Context, conn *pgx.Conn) ([]string, map[string][]string, error) {
	rows, err := conn.Query(ctx, `SELECT pg_catalog.format('%s.%s', n.nspname, c.relname), a.attname
		FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
		WHERE c.relkind IN ('r', 'p') AND n.nspname <> 'information_schema' AND n.nspname::text NOT LIKE 'pg\_%'
		ORDER BY 1, a.attnum`)
	if err != nil {
		return nil, nil, fmt.Errorf("look for tables: %w", postgres.Error(err))
	}
	tables, columns := []string{}, map[string][]string{} // not nil: there may be none
	var table string
	var column *string
	_, err = pgx.ForEachRow(rows, []any{&table, &column}, func() error {
		if _, known := columns[table]; !known {
			tables = append(tables, table)
			columns[table] = []string{}
		}
		if column != nil {
			columns[table] = append(columns[table], *column)
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("look for tables: %w", postgres.Error(err))
	}
	return tables, columns, nil
}
