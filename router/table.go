package router

import (
	"encoding/json"
	"fmt"

	"github.com/postrider/postrider/router/connect"
)

// Table is what the catalog has about a relation, beyond what the server sends with its rows: it
// decides schemas (optional, default), how types outside the built-in ones are written, and what
// takes the place of NULL with null_defaults. DescribeSQL selects it and ParseTable reads the
// answer.
type Table struct {
	OID     uint32        `json:"oid"`
	Columns []tableColumn `json:"columns"` // in the table's order, without dropped ones
	Dropped bool          `json:"dropped"` // a column was dropped at some time
}

// tableColumn is one column of a Table.
type tableColumn struct {
	Name    string `json:"name"`     // pg_attribute.attname
	NotNull bool   `json:"not_null"` // pg_attribute.attnotnull
	Key     int    `json:"key"`      // its place in the primary key, from 1; 0: not part of it
	// pg_get_expr(adbin, adrelid); empty: none, or the column is generated
	Default string       `json:"default"`
	Type    connect.Type `json:"type"`
}

// DescribeSQL returns one row with one column of text, which ParseTable reads; a table that is
// gone has no columns in it, and its rows are then read by their type OIDs alone. Its parameter is
// the table's OID. It reads pg_catalog only and needs no privilege.
const DescribeSQL = `
SELECT pg_catalog.json_build_object('oid', $1::pg_catalog.oid::pg_catalog.int8,
  'dropped', EXISTS (SELECT FROM pg_catalog.pg_attribute g WHERE g.attrelid = $1::pg_catalog.oid AND g.attisdropped),
  'columns', pg_catalog.json_agg(pg_catalog.json_build_object(
  'name', a.attname,
  'not_null', a.attnotnull,
  'key', coalesce((SELECT k.place FROM pg_catalog.pg_index i, pg_catalog.unnest(i.indkey) WITH ORDINALITY AS k(attnum, place)
    WHERE i.indrelid = a.attrelid AND i.indisprimary AND k.attnum = a.attnum AND k.place <= i.indnkeyatts), 0),
  'default', CASE WHEN a.attgenerated = '' THEN coalesce(pg_catalog.pg_get_expr(d.adbin, d.adrelid), '') ELSE '' END,
  'type', pg_catalog.json_build_object(
    'oid', t.oid::pg_catalog.int8, 'name', t.typname, 'kind', t.typtype, 'mod', a.atttypmod,
    'labels', (SELECT pg_catalog.json_agg(e.enumlabel ORDER BY e.enumsortorder) FROM pg_catalog.pg_enum e WHERE e.enumtypid = t.oid),
    'elem', (SELECT pg_catalog.json_build_object('oid', et.oid::pg_catalog.int8, 'name', et.typname, 'kind', et.typtype, 'mod', -1,
        'labels', (SELECT pg_catalog.json_agg(e.enumlabel ORDER BY e.enumsortorder) FROM pg_catalog.pg_enum e WHERE e.enumtypid = et.oid))
      FROM pg_catalog.pg_type et WHERE et.oid = t.typelem AND t.typcategory = 'A'),
    'base', CASE WHEN t.typtype = 'd' THEN (
      WITH RECURSIVE chain(oid, mod) AS (
        SELECT t.typbasetype, t.typtypmod
        UNION ALL
        SELECT b.typbasetype, CASE WHEN b.typtypmod >= 0 THEN b.typtypmod ELSE chain.mod END
        FROM chain JOIN pg_catalog.pg_type b ON b.oid = chain.oid WHERE b.typtype = 'd')
      SELECT pg_catalog.json_build_object('oid', bt.oid::pg_catalog.int8, 'name', bt.typname, 'kind', bt.typtype, 'mod', chain.mod,
        'labels', (SELECT pg_catalog.json_agg(e.enumlabel ORDER BY e.enumsortorder) FROM pg_catalog.pg_enum e WHERE e.enumtypid = bt.oid),
        'elem', (SELECT pg_catalog.json_build_object('oid', et.oid::pg_catalog.int8, 'name', et.typname, 'kind', et.typtype, 'mod', -1)
          FROM pg_catalog.pg_type et WHERE et.oid = bt.typelem AND bt.typcategory = 'A'))
      FROM chain JOIN pg_catalog.pg_type bt ON bt.oid = chain.oid WHERE bt.typtype <> 'd' LIMIT 1) END)
  ) ORDER BY a.attnum))::pg_catalog.text
FROM pg_catalog.pg_attribute a
JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = $1::pg_catalog.oid AND a.attnum > 0 AND NOT a.attisdropped`

// ParseTable reads what DescribeSQL returned.
func ParseTable(document []byte) (*Table, error) {
	var t Table
	if err := json.Unmarshal(document, &t); err != nil {
		return nil, fmt.Errorf("read the description of a table: %w", err)
	}
	return &t, nil
}
