package router

import (
	"encoding/json"
	"fmt"
)

// Table is what the catalogue says about a relation, beyond what the server sends with its rows: it decides schemas
// (optional, default), how types outside the built-in ones are written, and what takes the place of NULL with null_defaults.
// DescribeSQL asks for it and ParseTable reads the answer.
type Table struct {
	OID     uint32        `json:"oid"`
	Columns []TableColumn `json:"columns"` // in the table's order, without dropped ones
	Dropped bool          `json:"dropped"` // a column was dropped at some time
}

// TableColumn is one column of a Table.
type TableColumn struct {
	Name    string `json:"name"`     // pg_attribute.attname
	NotNull bool   `json:"not_null"` // pg_attribute.attnotnull
	Key     int    `json:"key"`      // its place in the primary key, from 1; 0: not part of it
	Default string `json:"default"`  // pg_get_expr(adbin, adrelid); empty: none, or the column is generated
	Type    Type   `json:"type"`
}

// Type is a PostgreSQL type.
type Type struct {
	OID    uint32   `json:"oid"`
	Name   string   `json:"name"`   // pg_type.typname
	Kind   string   `json:"kind"`   // pg_type.typtype: b base, c composite, d domain, e enum, m multirange, p pseudo, r range
	Mod    int32    `json:"mod"`    // pg_attribute.atttypmod, for the base of a domain pg_type.typtypmod; -1: none
	Labels []string `json:"labels"` // pg_enum.enumlabel of an enum, in order
	Elem   *Type    `json:"elem"`   // of an array; its Mod is not used, an array's own is
	Base   *Type    `json:"base"`   // of a domain: the type at the end of the chain
}

// DescribeSQL returns one row with one column of text, which ParseTable reads; a table that is gone has no columns in it, and its rows
// are then read by their type OIDs alone. Its parameter is the table's OID. It reads pg_catalog only and needs no privilege.
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

// builtin gives the type of an OID that every server has; nil for all others.
func builtin(oid uint32, mod int32) *Type {
	if name, ok := builtinTypes[oid]; ok {
		return &Type{OID: oid, Name: name, Kind: "b", Mod: mod}
	}
	if elem, ok := builtinArrays[oid]; ok {
		return &Type{OID: oid, Name: "_" + builtinTypes[elem], Kind: "b", Mod: mod, Elem: &Type{OID: elem, Name: builtinTypes[elem], Kind: "b", Mod: -1}}
	}
	return nil
}

// OIDs below 10000 are the same on every server.
var builtinTypes = map[uint32]string{
	16: "bool", 17: "bytea", 18: "char", 19: "name", 20: "int8", 21: "int2", 23: "int4", 25: "text", 26: "oid", 114: "json", 142: "xml",
	600: "point", 601: "lseg", 602: "path", 603: "box", 604: "polygon", 628: "line", 650: "cidr", 700: "float4", 701: "float8",
	718: "circle", 774: "macaddr8", 790: "money", 829: "macaddr", 869: "inet", 1042: "bpchar", 1043: "varchar", 1082: "date",
	1083: "time", 1114: "timestamp", 1184: "timestamptz", 1186: "interval", 1266: "timetz", 1560: "bit", 1562: "varbit",
	1700: "numeric", 2950: "uuid", 3220: "pg_lsn", 3614: "tsvector", 3615: "tsquery", 3802: "jsonb", 3904: "int4range",
	3906: "numrange", 3908: "tsrange", 3910: "tstzrange", 3912: "daterange", 3926: "int8range",
}

var builtinArrays = map[uint32]uint32{
	143: 142, 199: 114, 651: 650, 775: 774, 791: 790, 1000: 16, 1001: 17, 1002: 18, 1003: 19, 1005: 21, 1007: 23, 1009: 25, 1014: 1042,
	1015: 1043, 1016: 20, 1017: 600, 1021: 700, 1022: 701, 1028: 26, 1040: 829, 1041: 869, 1115: 1114, 1182: 1082, 1183: 1083,
	1185: 1184, 1187: 1186, 1231: 1700, 1270: 1266, 1561: 1560, 1563: 1562, 2951: 2950, 3807: 3802, 3905: 3904, 3907: 3906,
	3909: 3908, 3911: 3910, 3913: 3912, 3927: 3926,
}
