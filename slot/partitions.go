package slot

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"postrider/postgres"
	"postrider/replication"
)

// pg_partition_tree would lock every partition. Nearest last: a partition that is configured itself belongs to its own name.
const selectTree = `
WITH RECURSIVE tree(n, oid, depth) AS (
  SELECT wanted.n, c.oid, 0
  FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS wanted(nspname, relname, n)
  JOIN pg_catalog.pg_namespace ns ON ns.nspname = wanted.nspname
  JOIN pg_catalog.pg_class c ON c.relnamespace = ns.oid AND c.relname = wanted.relname
  UNION ALL
  SELECT tree.n, i.inhrelid, tree.depth + 1
  FROM tree JOIN pg_catalog.pg_inherits i ON i.inhparent = tree.oid JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid AND c.relispartition)
SELECT n, oid FROM tree ORDER BY depth DESC`

// OIDs gives the tables, and the partitions that they have now, by OID: rows that are in the WAL already may come under another name
// than the table's. One written before a table was renamed has the old name; one of a partition has the partition's, for as long
// as publish_via_partition_root is off, and after it was turned on until the slot is beyond that moment.
func OIDs(ctx context.Context, conn *pgx.Conn, tables []string) (map[uint32]string, error) {
	schemas, names := splitTables(tables)
	oids := map[uint32]string{}
	rows, err := conn.Query(ctx, selectTree, schemas, names)
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
  SELECT i.inhrelid FROM tree JOIN pg_catalog.pg_inherits i ON i.inhparent = tree.oid JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid AND c.relispartition)
SELECT n.nspname || '.' || c.relname FROM tree JOIN pg_catalog.pg_class c ON c.oid = tree.oid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
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

const selectParents = `
SELECT EXISTS (SELECT FROM pg_catalog.pg_class WHERE oid = $1),
  ARRAY(SELECT n.nspname || '.' || c.relname FROM pg_catalog.pg_partition_ancestors($1) WITH ORDINALITY p(relid, depth)
        JOIN pg_catalog.pg_class c ON c.oid = p.relid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace ORDER BY p.depth)`

// Partitioned tells whether the table has partitions, under whatever name their rows come now.
func (t Table) Partitioned() bool { return t.Kind == "p" }

// Home finds the table, one of tables, whose rows come under the name of rel: a partition that OIDs did not see, since it is new. One
// that was dropped meanwhile is no partition any more; it is known by its columns, which are those of the table. Empty: none,
// rel is another table.
func Home(ctx context.Context, conn *pgx.Conn, tables []Table, rel *replication.Relation) (string, error) {
	var exists bool
	var parents []string
	if err := conn.QueryRow(ctx, selectParents, rel.OID).Scan(&exists, &parents); err != nil {
		return "", fmt.Errorf("read what %s is a partition of: %w", rel, postgres.Error(err))
	}
	for _, parent := range parents {
		for _, t := range tables {
			if t.Name == parent {
				return t.Name, nil
			}
		}
	}
	if exists {
		return "", nil
	}
	for _, t := range tables {
		if !t.Partitioned() {
			continue
		}
		root, err := Relation(ctx, conn, t.Name)
		if err != nil {
			return "", err
		}
		if sameColumns(root, rel) {
			return t.Name, nil
		}
	}
	return "", nil
}

// sameColumns leaves the order aside: a partition has its own.
func sameColumns(a, b *replication.Relation) bool {
	types := map[string]uint32{}
	for _, c := range a.Columns {
		types[c.Name] = c.TypeOID
	}
	for _, c := range b.Columns {
		if oid, ok := types[c.Name]; !ok || oid != c.TypeOID {
			return false
		}
	}
	return len(a.Columns) == len(b.Columns)
}
