package router

// Table is what the catalogue says about a relation, beyond what the server sends with its rows.
// DescribeSQL asks for it and ParseTable reads the answer.
type Table struct {
	OID     uint32        `json:"oid"`
	Columns []TableColumn `json:"columns"`
}

// TableColumn is one column of a Table.
type TableColumn struct {
	Name    string `json:"name"`     // pg_attribute.attname
	NotNull bool   `json:"not_null"` // pg_attribute.attnotnull
	Key     bool   `json:"key"`      // in the primary key
	Default string `json:"default"`  // pg_get_expr(adbin, adrelid); empty: none
	Type    Type   `json:"type"`
}

// Type is a PostgreSQL type.
type Type struct {
	OID    uint32   `json:"oid"`
	Name   string   `json:"name"`             // pg_type.typname
	Kind   string   `json:"kind"`             // pg_type.typtype: b base, c composite, d domain, e enum, m multirange, p pseudo, r range
	Mod    int32    `json:"mod"`              // atttypmod, for a domain its own typtypmod where the column has none; -1: none
	Labels []string `json:"labels,omitempty"` // of an enum, in order
	Elem   *Type    `json:"elem,omitempty"`   // of an array
	Base   *Type    `json:"base,omitempty"`   // of a domain
}

// DescribeSQL returns one row with one column of text, which ParseTable reads. Its parameter is the table's OID.
const DescribeSQL = ``

// ParseTable reads what DescribeSQL returned.
func ParseTable(document []byte) (*Table, error) { return nil, nil }
