package avro

import (
	"bytes"
	"slices"
)

// Types of Avro.
const (
	typeNull    = "null"
	typeBoolean = "boolean"
	typeInt     = "int"
	typeLong    = "long"
	typeFloat   = "float"
	typeDouble  = "double"
	typeString  = "string"
	typeBytes   = "bytes"
	typeRecord  = "record"
	typeEnum    = "enum"
	typeFixed   = "fixed"
	typeArray   = "array"
	typeMap     = "map"
	typeUnion   = "union"
)

// Logical types that decide how a value is written. All others are what they are made of.
const (
	logicalDecimal         = "decimal"
	logicalDate            = "date"
	logicalTimeMillis      = "time-millis"
	logicalTimeMicros      = "time-micros"
	logicalTimestampMillis = "timestamp-millis"
	logicalTimestampMicros = "timestamp-micros"
	logicalTimestampNanos  = "timestamp-nanos"
	logicalLocalMillis     = "local-timestamp-millis"
	logicalLocalMicros     = "local-timestamp-micros"
	logicalLocalNanos      = "local-timestamp-nanos"
)

// node is an Avro schema that was read. What contains itself is a cycle of nodes.
type node struct {
	kind             string
	name             string // of a record, enum or fixed: in full
	logical          string // one of those above, or empty
	precision, scale int    // of a decimal
	items            *node  // of an array, or of the values of a map
	types            []*node
	symbols          []string
	size             int // of a fixed
	fields           []*field
	places           map[string]int // of the fields, by name
}

// field is a member of a record.
type field struct {
	name   string
	schema *node
	def    []byte // default in its binary form; nil: none
}

func (n *node) isNull() bool { return n.kind == typeNull }

// takesNull reports whether null is a value.
func (n *node) takesNull() bool {
	return n.isNull() || slices.ContainsFunc(n.types, (*node).isNull)
}

// equal compares what decides how a value is written and read. Pairs that are being compared are
// equal as far as it is known: schemas may contain themselves.
func (n *node) equal(o *node, compared map[[2]*node]bool) bool {
	pair := [2]*node{n, o}
	if n == o || compared[pair] {
		return true
	}
	if n == nil || o == nil {
		return false
	}
	compared[pair] = true
	return n.kind == o.kind && n.name == o.name && n.size == o.size && n.logical == o.logical &&
		n.precision == o.precision && n.scale == o.scale && slices.Equal(n.symbols, o.symbols) &&
		n.items.equal(o.items, compared) &&
		slices.EqualFunc(n.types, o.types, func(a, b *node) bool { return a.equal(b, compared) }) &&
		slices.EqualFunc(n.fields, o.fields, func(a, b *field) bool {
			return a.name == b.name && (a.def == nil) == (b.def == nil) &&
				bytes.Equal(a.def, b.def) && a.schema.equal(b.schema, compared)
		})
}

// describe names a schema for people.
func (n *node) describe() string {
	switch {
	case n.name != "":
		return n.kind + " " + n.name
	case n.logical != "":
		return n.kind + " (" + n.logical + ")"
	case n.kind == typeUnion:
		text := "["
		for i, t := range n.types {
			if i > 0 {
				text += " "
			}
			text += t.describe()
		}
		return text + "]"
	}
	return n.kind
}
