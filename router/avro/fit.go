package avro

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/postrider/postrider/router/connect"
)

// AppendJSON appends the Avro binary form of a JSON document. Members are found by their names;
// one that is missing has its default, one that the schema does not have is an error. A union
// takes the value as the first of its types that it fits. Bytes are in Base64; dates and times are
// numbers as Avro has them or texts of ISO 8601, and decimals are numbers or texts. Errors are
// connect.Unwritable's; dst is then worth nothing.
func (d *Declared) AppendJSON(dst, doc []byte) ([]byte, error) {
	if !utf8.Valid(doc) {
		return dst, connect.Unwritable("", "JSON that is no valid UTF-8")
	}
	n, err := connect.ParseJSON(doc)
	if err != nil {
		return dst, connect.Unwritable("", "%w", err)
	}
	if len(n.Raw) < len(bytes.Trim(doc, " \t\r\n")) {
		return dst, connect.Unwritable("", "%w: something follows the document", connect.ErrJSON)
	}
	f := fitter{d, true, 64*len(doc) + 1<<16}
	return f.top(dst, nil, n.Value())
}

// Append appends the Avro binary form of a value of a Connect schema, by the declared schema:
// members are found by their names, as in AppendJSON, and dates and times are written in the unit
// of the declared schema, cut to it where it is coarser. Errors are connect.Unwritable's; dst is
// then worth nothing.
func (d *Declared) Append(dst []byte, s *connect.Schema, v any) ([]byte, error) {
	f := fitter{d, false, 1 << 26}
	return f.top(dst, s, v)
}

// fitter writes values by an Avro schema.
type fitter struct {
	*Declared
	json bool // the value is a JSON document
	// left is how many values may still be looked at: where unions of records are in one another, a
	// value that fits none would be looked at as often as there are ways through them
	left int
}

// top writes bytes as they are, as Schema.Append does.
func (f *fitter) top(dst []byte, s *connect.Schema, v any) ([]byte, error) {
	if f.schema.kind == typeBytes {
		b, err := f.bytes(f.schema, v)
		return append(dst, b...), err
	}
	return f.value(dst, f.schema, s, v)
}

// value writes a value; s is its Connect schema, nil in a JSON document.
func (f *fitter) value(dst []byte, n *node, s *connect.Schema, v any) ([]byte, error) {
	if f.left--; f.left < 0 {
		return dst, connect.Unwritable("", "the unions of the schema leave too many ways to write it")
	}
	if v == nil && !n.takesNull() {
		return dst, connect.Unwritable("", "null where the schema has %s", n.describe())
	}
	switch n.kind {
	case typeUnion:
		return f.union(dst, n, s, v)
	case typeRecord:
		return f.record(dst, n, s, v)
	case typeInt, typeLong:
		i, err := f.integer(n, s, v)
		return appendLong(dst, i), err
	case typeFloat:
		x, err := f.float(n, v, 32)
		return appendFloat(dst, float32(x)), err
	case typeDouble:
		x, err := f.float(n, v, 64)
		return appendDouble(dst, x), err
	case typeBytes:
		b, err := f.bytes(n, v)
		return appendBytes(dst, b), err
	case typeFixed:
		b, err := f.bytes(n, v)
		return append(dst, b...), err
	}
	switch v := v.(type) {
	case nil:
		return dst, nil
	case bool:
		if n.kind == typeBoolean {
			return appendBool(dst, v), nil
		}
	case connect.Text:
		if n.kind == typeString {
			return appendText(dst, v), nil
		}
		if n.kind == typeEnum {
			return appendSymbol(dst, n, v)
		}
	case []any:
		if n.kind == typeArray {
			return appendBlock(dst, v, func(dst []byte, i int, item any) ([]byte, error) {
				dst, err := f.value(dst, n.items, itemsOf(s), item)
				return dst, connect.WithinMember(err, strconv.Itoa(i))
			})
		}
	case connect.Map:
		if n.kind == typeMap {
			return appendBlock(dst, v, func(dst []byte, _ int, e connect.Entry) ([]byte, error) {
				dst, err := f.value(appendText(dst, e.Key), n.items, itemsOf(s), e.Value)
				return dst, connect.WithinMember(err, string(e.Key))
			})
		}
	}
	return dst, unfit(n, v)
}

func appendSymbol(dst []byte, n *node, v connect.Text) ([]byte, error) {
	i := slices.Index(n.symbols, string(v))
	if i < 0 {
		return dst, connect.Unwritable("", "a text that is no symbol of %s", n.describe())
	}
	return appendLong(dst, int64(i)), nil
}

// union writes a value as the first type that it fits; a struct as the record of its name, if
// there is one.
func (f *fitter) union(dst []byte, n *node, s *connect.Schema, v any) ([]byte, error) {
	if i := n.typeOf(v); i >= 0 {
		return f.value(appendLong(dst, int64(i)), n.types[i], s, v)
	}
	var first error
	types := 0
	for i, t := range n.types {
		if t.isNull() {
			continue
		}
		out, err := f.value(appendLong(dst, int64(i)), t, s, v)
		if err == nil {
			return out, nil
		}
		if f.left < 0 {
			return dst, err
		}
		if types++; first == nil {
			first = err
		}
	}
	switch types {
	case 0:
		return dst, unfit(n, v)
	case 1:
		return dst, first
	}
	return dst, connect.Within(first, "no type of "+n.describe()+" fits: the first one has ")
}

// typeOf is the place of the one type of a union that can be the value's: null, or the record of a
// struct's name; -1: each is tried.
func (n *node) typeOf(v any) int {
	switch v := v.(type) {
	case nil:
		return slices.IndexFunc(n.types, (*node).isNull)
	case *connect.Structure:
		return slices.IndexFunc(n.types, func(t *node) bool {
			return t.kind == typeRecord && t.name == v.Schema.Name
		})
	}
	return -1
}

func itemsOf(s *connect.Schema) *connect.Schema {
	if s == nil {
		return nil
	}
	return s.Items
}

// given is a member that the value has.
type given struct {
	present bool
	schema  *connect.Schema
	value   any
}

func (f *fitter) record(dst []byte, n *node, s *connect.Schema, v any) (_ []byte, err error) {
	values := make([]given, len(n.fields))
	switch v := v.(type) {
	case connect.Map:
		for _, e := range v {
			i, err := f.place(n, string(e.Key))
			if err != nil {
				return dst, err
			}
			values[i] = given{true, itemsOf(s), e.Value}
		}
	case *connect.Structure:
		for at, member := range v.Schema.Fields {
			i, err := f.place(n, member.Name)
			if err != nil {
				return dst, err
			}
			value := f.Options.memberOf(v, at, member)
			// What an expanded object does not have is null in a struct.
			missing := value == nil && n.fields[i].def != nil && !n.fields[i].schema.takesNull()
			values[i] = given{!missing, member.Schema, value}
		}
	default:
		return dst, unfit(n, v)
	}
	for i, member := range n.fields {
		switch value := values[i]; {
		case value.present:
			if dst, err = f.value(dst, member.schema, value.schema, value.value); err != nil {
				return dst, connect.WithinMember(err, member.name)
			}
		case member.def != nil:
			dst = append(dst, member.def...)
		default:
			return dst, connect.Unwritable("give the member a default in the schema, or a value",
				"member %s of %s is missing, and has no default", member.name, n.describe())
		}
	}
	return dst, nil
}

// place finds the member of a record by its name.
func (f *fitter) place(n *node, name string) (int, error) {
	i, known := n.places[name]
	if !known && f.Options.Scrub {
		i, known = n.places[scrub(name)]
	}
	if !known {
		return 0, connect.Unwritable("add the member to the schema, with a default for older events",
			"member %q is not in the schema of %s", name, n.describe())
	}
	return i, nil
}

// unfit says what a value is, and not the value itself, which may be confidential.
func unfit(n *node, v any) error {
	is := fmt.Sprintf("%T", v)
	switch v := v.(type) {
	case nil:
		is = "null"
	case bool:
		is = "a boolean"
	case json.Number, int64, float32, float64:
		is = "a number"
	case connect.Text:
		is = "a text"
	case connect.Buffer, connect.ByteArray:
		is = "bytes"
	case connect.Decimal:
		is = "a decimal"
	case connect.Date:
		is = "a date"
	case []any:
		is = "an array"
	case connect.Map:
		is = "an object"
	case *connect.Structure:
		is = "a struct " + v.Schema.Name
	}
	return connect.Unwritable("", "%s where the schema has %s", is, n.describe())
}
