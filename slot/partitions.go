package slot

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
)

// pg_partition_tree would lock every partition. Nearest last: a partition that is configured
// itself belongs to its own name.
const selectPartitionOIDs = `
WITH RECURSIVE tree(n, oid, depth) AS (
  SELECT wanted.n, c.oid, 0
  FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS wanted(nspname, relname, n)
  JOIN pg_catalog.pg_namespace ns ON ns.nspname = wanted.nspname
  JOIN pg_catalog.pg_class c ON c.relnamespace = ns.oid AND c.relname = wanted.relname
  UNION ALL
  SELECT tree.n, i.inhrelid, tree.depth + 1
  FROM tree JOIN pg_catalog.pg_inherits i ON i.inhparent = tree.oid JOIN pg_catalog.pg_class c ON
  c.oid = i.inhrelid AND c.relispartition)
SELECT n, oid FROM tree ORDER BY depth DESC`

// OIDs gives the tables, and the partitions that they have now, by OID. It does not say what a row
// in the WAL belongs to, which may be older: see Assigner.
func OIDs(ctx context.Context, conn *pgx.Conn, tables []string) (map[uint32]string, error) {
	schemas, names := SplitTables(tables)
	oids := map[uint32]string{}
	rows, err := conn.Query(ctx, selectPartitionOIDs, schemas, names)
	if err == nil {
		var n int
		var oid uint32
		_, err = pgx.ForEachRow(rows, []any{&n, &oid}, func() error {
			oids[oid] = tables[n-1]
			return nil
		})
	}
	if err != nil {
		return nil, fmt.Errorf("read the partitions of the tables: %w", postgres.Error(err))
	}
	return oids, nil
}

const selectPartitions = `
WITH RECURSIVE tree(oid) AS (
  SELECT $1::oid
  UNION ALL
  SELECT i.inhrelid FROM tree JOIN pg_catalog.pg_inherits i ON i.inhparent = tree.oid JOIN
  pg_catalog.pg_class c ON c.oid = i.inhrelid AND c.relispartition)
SELECT pg_catalog.format('%s.%s', n.nspname, c.relname) FROM tree JOIN pg_catalog.pg_class c ON
  c.oid = tree.oid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE tree.oid <> $1`

// PartitionNames are the names under which rows of the table may come, beside its own.
func (t Table) PartitionNames(ctx context.Context, conn *pgx.Conn) ([]string, error) {
	rows, err := conn.Query(ctx, selectPartitions, t.OID)
	if err != nil {
		return nil, fmt.Errorf("read the partitions of table %s: %w", t.Name, postgres.Error(err))
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("read the partitions of table %s: %w", t.Name, postgres.Error(err))
	}
	return names, nil
}
