package prune

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/slot"
)

// evidenceSQL describes all catalog rows that decide whether inserts into a relation reach the
// stream, with their xmin, which also reveals a change that was put back. An unlogged table sends
// nothing; SET UNLOGGED and SET LOGGED give it another TOAST table, or, without one, other files.
const evidenceSQL = `
WITH RECURSIVE publication AS (
  SELECT p.oid, p.xmin AS written, p.pubinsert, p.puballtables FROM pg_catalog.pg_publication p
  WHERE p.pubname = $1::text),
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
    JOIN above a ON a.oid = pr.prrelid){schemas})::text,
(SELECT CASE
  WHEN NOT EXISTS (SELECT FROM publication) THEN 'is not published: the publication does not exist'
  WHEN c.relpersistence <> 'p'::"char" THEN 'is unlogged'
  WHEN NOT (SELECT p.pubinsert FROM publication p) THEN 'has its inserts not published'
  WHEN NOT ((SELECT p.puballtables FROM publication p)
    OR EXISTS (SELECT FROM publication p JOIN pg_catalog.pg_publication_rel pr ON pr.prpubid = p.oid
      JOIN above a ON a.oid = pr.prrelid){in_schema}) THEN 'is not in the publication'
  {filter}ELSE '' END
  FROM pg_catalog.pg_class c WHERE c.oid = $2::pg_catalog.oid)`

const schemaEvidenceSQL = `,
  'schemas', (SELECT pg_catalog.jsonb_agg(pg_catalog.jsonb_build_array(pn.oid::text,
      pn.xmin::text, a.oid::text, COALESCE(d.xmin::text, '0')) ORDER BY pn.oid, a.oid)
    FROM publication p JOIN pg_catalog.pg_publication_namespace pn ON pn.pnpubid = p.oid
    JOIN pg_catalog.pg_class c ON c.relnamespace = pn.pnnspid JOIN above a ON a.oid = c.oid
    LEFT JOIN pg_catalog.pg_depend d ON d.objid = a.oid AND d.objsubid = 0
      AND d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass::pg_catalog.oid
      AND d.refclassid = 'pg_catalog.pg_namespace'::pg_catalog.regclass::pg_catalog.oid)`

const inSchema = `
    OR EXISTS (SELECT FROM publication p
      JOIN pg_catalog.pg_publication_namespace pn ON pn.pnpubid = p.oid
      JOIN pg_catalog.pg_class s ON s.relnamespace = pn.pnnspid JOIN above a ON a.oid = s.oid)`

const filtered = `WHEN EXISTS (SELECT FROM publication p
      JOIN pg_catalog.pg_publication_rel pr ON pr.prpubid = p.oid JOIN above a ON a.oid = pr.prrelid
      WHERE pr.prqual IS NOT NULL)
    THEN 'has a row filter in the publication, so that some rows are never sent'
  `

// selectEvidence is evidenceSQL for a version. FOR TABLES IN SCHEMA and row filters came with 15.
func selectEvidence(major int) string {
	schemas, in, filter := schemaEvidenceSQL, inSchema, filtered
	if major < 15 {
		schemas, in, filter = "", "", ""
	}
	return strings.NewReplacer("{schemas}", schemas, "{in_schema}", in, "{filter}", filter).
		Replace(evidenceSQL)
}

// readEvidence returns text that stays the same as long as inserts into a relation are published
// without interruption. It may change without one. The error is ErrUnsent if some inserts are not
// published at all. Call it in the transaction of the look.
func readEvidence(ctx context.Context, conn *pgx.Conn, publication string,
	r Relation) (text string, err error) {
	var problem *string // nil: the relation does not exist
	err = conn.QueryRow(ctx, selectEvidence(postgres.Major(conn)), publication, r.OID).
		Scan(&text, &problem)
	switch {
	case err != nil:
		return "", postgres.Wrap(err, "read how table %s is published", r.Name)
	case problem != nil && *problem != "":
		return "", &slot.Error{Err: fmt.Errorf("%w: table %s %s", ErrUnsent, r.Name, *problem),
			WAL: nothingRemoved, Fix: "postrider check"}
	}
	return text, nil
}
