package slot

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
)

// othersLimit bounds how many relations a message names.
const othersLimit = 20

// selectOthers has the tables under whose names a publication ($1) sends rows, without those of $3
// and the partitions of $4, and counts them. $2 is publish_via_partition_root. It locks no table,
// unlike pg_publication_tables.
func selectOthers(major int) string {
	schemas := `
  UNION
  SELECT c.oid FROM pg_catalog.pg_publication_namespace pn
  JOIN pg_catalog.pg_class c ON c.relnamespace = pn.pnnspid
  WHERE pn.pnpubid = $1::oid AND c.relkind IN ('r'::"char", 'p'::"char")
    AND c.relpersistence = 'p'::"char"`
	if major < 15 {
		schemas = ""
	}
	return strings.Replace(othersSQL, "{schemas}", schemas, 1)
}

const othersSQL = `
WITH RECURSIVE given(oid) AS (
  SELECT pr.prrelid FROM pg_catalog.pg_publication_rel pr WHERE pr.prpubid = $1::oid{schemas}),
below(oid) AS (
  SELECT i.inhrelid FROM given g JOIN pg_catalog.pg_inherits i ON i.inhparent = g.oid
  JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid AND c.relispartition
  UNION
  SELECT i.inhrelid FROM below b JOIN pg_catalog.pg_inherits i ON i.inhparent = b.oid),
brought(oid) AS (
  SELECT pg_catalog.unnest($4::oid[])
  UNION
  SELECT i.inhrelid FROM brought b JOIN pg_catalog.pg_inherits i ON i.inhparent = b.oid),
others(oid) AS (
  SELECT oid FROM given
  UNION
  SELECT oid FROM below WHERE NOT $2::boolean
  EXCEPT
  SELECT oid FROM below WHERE $2::boolean
  EXCEPT
  SELECT pg_catalog.unnest($3::oid[])
  EXCEPT
  SELECT oid FROM brought)
SELECT n.nspname::text || '.' || c.relname::text, pg_catalog.count(*) OVER ()
FROM others o JOIN pg_catalog.pg_class c ON c.oid = o.oid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE $2::boolean OR c.relkind <> 'p'::"char"
ORDER BY 1 LIMIT $5::integer`

// Others names tables that are in the publication and were not requested, by name, and returns how
// many there are beyond these. Of FOR ALL TABLES it says so.
func (p *Publication) Others(ctx context.Context, conn *pgx.Conn) (names []string, more int,
	err error) {
	if p.AllTables {
		return []string{"all tables"}, 0, nil
	}
	var requested, partitioned []uint32
	for _, t := range p.Tables {
		requested = append(requested, t.OID)
		if t.Partitions {
			partitioned = append(partitioned, t.OID)
		}
	}
	var found int
	names, err = postgres.Collect(ctx, conn, func(row pgx.CollectableRow) (name string, err error) {
		err = row.Scan(&name, &found)
		return name, err
	}, selectOthers(postgres.Major(conn)), p.OID, p.ViaRoot, requested,
		partitioned, othersLimit)
	more = found - len(names)
	return names, more, postgres.Wrap(err, "read the tables of publication %q", p.Name)
}
