package slot

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"postrider/postgres"
	"postrider/replication"
)

// Relation describes a table from the catalogue, as the server would before its first row: so its columns can be judged
// before there is one. A column list of the publication is not taken into account.
func Relation(ctx context.Context, conn *pgx.Conn, table string) (*replication.Relation, error) {
	schema, name := SplitTable(table)
	rows, err := conn.Query(ctx, `
		SELECT c.oid, a.attname, a.atttypid, a.atttypmod,
			COALESCE(a.attnum = ANY (i.indkey), false) AS key
		FROM pg_catalog.pg_class c
		JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
		LEFT JOIN pg_catalog.pg_index i ON i.indrelid = c.oid AND i.indisprimary
		WHERE n.nspname = $1 AND c.relname = $2
		ORDER BY a.attnum`, schema, name)
	if err != nil {
		return nil, fmt.Errorf("describe table %s: %w", table, postgres.Error(err))
	}
	rel := &replication.Relation{Namespace: schema, Name: name}
	var column replication.Column
	_, err = pgx.ForEachRow(rows, []any{&rel.OID, &column.Name, &column.TypeOID, &column.TypeMod, &column.Key}, func() error {
		rel.Columns = append(rel.Columns, column)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("describe table %s: %w", table, postgres.Error(err))
	}
	if rel.OID == 0 {
		return nil, &PublicationError{Table: table, Problem: "the table does not exist", SQL: "postrider init --print-sql"}
	}
	return rel, nil
}
