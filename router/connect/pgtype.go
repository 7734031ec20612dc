package connect

// Type is a PostgreSQL type.
type Type struct {
	OID  uint32 `json:"oid"`
	Name string `json:"name"` // pg_type.typname
	// pg_type.typtype: b base, c composite, d domain, e enum, m multirange, p pseudo, r range
	Kind string `json:"kind"`
	// pg_attribute.atttypmod, for the base of a domain pg_type.typtypmod; -1: none
	Mod    int32    `json:"mod"`
	Labels []string `json:"labels"` // pg_enum.enumlabel of an enum, in order
	Elem   *Type    `json:"elem"`   // of an array; its Mod is not used, an array's own is
	Base   *Type    `json:"base"`   // of a domain: the type at the end of the chain
}

// Root is the type that a domain is made of, or the type itself.
func (t *Type) Root() *Type {
	for t.Kind == "d" && t.Base != nil {
		t = t.Base
	}
	return t
}

// IsBuiltinJSON reports whether PostgreSQL checks that values are JSON. A type of another schema
// can have the name json, too.
func (t *Type) IsBuiltinJSON() bool {
	const json, jsonb = 114, 3802
	return t.Root().OID == json || t.Root().OID == jsonb
}

// Builtin gives the type of an OID that every server has; nil for all others.
func Builtin(oid uint32, mod int32) *Type {
	if name, ok := builtinTypes[oid]; ok {
		return &Type{OID: oid, Name: name, Kind: "b", Mod: mod}
	}
	if elem, ok := builtinArrays[oid]; ok {
		return &Type{OID: oid, Name: "_" + builtinTypes[elem], Kind: "b", Mod: mod,
			Elem: &Type{OID: elem, Name: builtinTypes[elem], Kind: "b", Mod: -1}}
	}
	return nil
}

// OIDs below 10000 are the same on every server.
var builtinTypes = map[uint32]string{
	16: "bool", 17: "bytea", 18: "char", 19: "name", 20: "int8", 21: "int2", 23: "int4",
	25: "text", 26: "oid", 114: "json", 142: "xml",
	600: "point", 601: "lseg", 602: "path", 603: "box", 604: "polygon", 628: "line", 650: "cidr",
	700: "float4", 701: "float8",
	718: "circle", 774: "macaddr8", 790: "money", 829: "macaddr", 869: "inet", 1042: "bpchar",
	1043: "varchar", 1082: "date",
	1083: "time", 1114: "timestamp", 1184: "timestamptz", 1186: "interval", 1266: "timetz",
	1560: "bit", 1562: "varbit",
	1700: "numeric", 2950: "uuid", 3220: "pg_lsn", 3614: "tsvector", 3615: "tsquery",
	3802: "jsonb", 3904: "int4range",
	3906: "numrange", 3908: "tsrange", 3910: "tstzrange", 3912: "daterange", 3926: "int8range",
}

var builtinArrays = map[uint32]uint32{
	143: 142, 199: 114, 651: 650, 775: 774, 791: 790, 1000: 16, 1001: 17, 1002: 18, 1003: 19,
	1005: 21, 1007: 23, 1009: 25, 1014: 1042,
	1015: 1043, 1016: 20, 1017: 600, 1021: 700, 1022: 701, 1028: 26, 1040: 829, 1041: 869,
	1115: 1114, 1182: 1082, 1183: 1083,
	1185: 1184, 1187: 1186, 1231: 1700, 1270: 1266, 1561: 1560, 1563: 1562, 2951: 2950, 3807: 3802,
	3905: 3904, 3907: 3906,
	3909: 3908, 3911: 3910, 3913: 3912, 3927: 3926,
}
