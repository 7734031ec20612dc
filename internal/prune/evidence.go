package prune

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
)

// evidenceSQL describes all catalog rows that decide whether inserts into a relation reach the
// stream, with their xmin, which also reveals a change that was put back. An unlogged table sends
// nothing; SET UNLOGGED and SET LOGGED give it another TOAST table, or, without one, other files.
const evidenceSQL = `
WITH RECURSIVE publication AS (
  SELECT p.oid, p.xmin AS written FROM pg_catalog.pg_publication p WHERE p.pubname = $1::text),
above(oid, link) AS (
  SELECT $2::pg_catalog.oid, '0'
  UNION ALL
  SELECT i.inhparent, i.xmin::text FROM above a
  JOIN pg_catalog.pg_class c ON c.oid = a.oid AND c.relispartition
  JOIN pg_catalog.pg_inherits i ON i.inhrelid = a.oid)
SELECT pg_catalog.jsonb_build_object(
  'publication', (SELECT pg_catalog.jsonb_build_array(p.oid::text, p.written::text)
    FROM publication p),
  'relation', (SELECT pg_catalog.jsonb_build_array(c.relpersistence::text,
      CASE WHEN c.reltoastrelid = 0::pg_catalog.oid THEN c.relfilenode ELSE c.reltoastrelid END::text)
    FROM pg_catalog.pg_class c WHERE c.oid = $2::pg_catalog.oid),
  'above', (SELECT pg_catalog.jsonb_agg(pg_catalog.jsonb_build_array(a.oid::text, a.link)
    ORDER BY a.oid) FROM above a),
  'entries', (SELECT pg_catalog.jsonb_agg(pg_catalog.jsonb_build_array(pr.oid::text, pr.xmin::text)
      ORDER BY pr.oid)
    FROM publication p JOIN pg_catalog.pg_publication_rel pr ON pr.prpubid = p.oid
    JOIN above a ON a.oid = pr.prrelid){schemas})::text`

const schemaEvidenceSQL = `,
  'schemas', (SELECT pg_catalog.jsonb_agg(pg_catalog.jsonb_build_array(pn.oid::text,
      pn.xmin::text, a.oid::text, COALESCE(d.xmin::text, '0')) ORDER BY pn.oid, a.oid)
    FROM publication p JOIN pg_catalog.pg_publication_namespace pn ON pn.pnpubid = p.oid
    JOIN pg_catalog.pg_class c ON c.relnamespace = pn.pnnspid JOIN above a ON a.oid = c.oid
    LEFT JOIN pg_catalog.pg_depend d ON d.objid = a.oid AND d.objsubid = 0
      AND d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass::pg_catalog.oid
      AND d.refclassid = 'pg_catalog.pg_namespace'::pg_catalog.regclass::pg_catalog.oid)`

// selectEvidence is evidenceSQL for a version. FOR TABLES IN SCHEMA came with 15.
func selectEvidence(major int) string {
	schemas := schemaEvidenceSQL
	if major < 15 {
		schemas = ""
	}
	return strings.Replace(evidenceSQL, "{schemas}", schemas, 1)
}

// readEvidence returns text that stays the same as long as inserts into a relation are published
// without interruption. It may change without one. Call it in the transaction of the look.
func readEvidence(ctx context.Context, conn *pgx.Conn, publication string,
	relation uint32) (string, error) {
	text, err := postgres.One[string](ctx, conn, selectEvidence(postgres.Major(conn)), publication,
		relation)
	return text, postgres.Wrap(err, "read how relation %d is published", relation)
}
