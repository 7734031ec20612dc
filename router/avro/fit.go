package avro

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"

	hamba "github.com/hamba/avro/v2"

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
	if p, ok := f.schema.(*hamba.PrimitiveSchema); ok && p.Type() == hamba.Bytes {
		b, err := f.bytes(p, s, v)
		return append(dst, b...), err
	}
	return f.value(dst, f.schema, s, v)
}

// value writes a value; s is its Connect schema, nil in a JSON document.
func (f *fitter) value(dst []byte, a hamba.Schema, s *connect.Schema, v any) ([]byte, error) {
	if f.left--; f.left < 0 {
		return dst, connect.Unwritable("", "the unions of the schema leave too many ways to write it")
	}
	switch a := a.(type) {
	case *hamba.RefSchema:
		return f.value(dst, a.Schema(), s, v)
	case *hamba.UnionSchema:
		return f.union(dst, a, s, v)
	}
	if v == nil {
		if a.Type() == hamba.Null {
			return dst, nil
		}
		return dst, connect.Unwritable("", "null where the schema has %s", describe(a))
	}
	switch a := a.(type) {
	case *hamba.RecordSchema:
		return f.record(dst, a, s, v)
	case *hamba.ArraySchema:
		if items, ok := v.([]any); ok {
			return f.items(dst, a, s, items)
		}
	case *hamba.MapSchema:
		if entries, ok := v.(connect.Map); ok {
			return f.entries(dst, a, s, entries)
		}
	case *hamba.EnumSchema:
		if text, ok := v.(connect.Text); ok {
			i := slices.Index(a.Symbols(), string(text))
			if i < 0 {
				return dst, connect.Unwritable("", "a text that is no symbol of %s", describe(a))
			}
			return appendLong(dst, int64(i)), nil
		}
	case *hamba.FixedSchema:
		b, err := f.bytes(a, s, v)
		return append(dst, b...), err
	case *hamba.PrimitiveSchema:
		return f.primitive(dst, a, s, v)
	}
	return dst, unfit(a, v)
}

func (f *fitter) primitive(dst []byte, a *hamba.PrimitiveSchema, s *connect.Schema, v any) ([]byte,
	error) {
	switch a.Type() {
	case hamba.Boolean:
		if b, ok := v.(bool); ok {
			return appendBool(dst, b), nil
		}
	case hamba.String:
		if t, ok := v.(connect.Text); ok {
			return appendText(dst, t), nil
		}
	case hamba.Int, hamba.Long:
		n, err := f.integer(a, s, v)
		return appendLong(dst, n), err
	case hamba.Float:
		n, err := f.float(a, v, 32)
		return appendFloat(dst, float32(n)), err
	case hamba.Double:
		n, err := f.float(a, v, 64)
		return appendDouble(dst, n), err
	case hamba.Bytes:
		b, err := f.bytes(a, s, v)
		return appendBytes(dst, b), err
	}
	return dst, unfit(a, v)
}

// union writes a value as the first type that it fits; a struct as the record of its name, if
// there is one.
func (f *fitter) union(dst []byte, a *hamba.UnionSchema, s *connect.Schema, v any) ([]byte, error) {
	if v == nil {
		if i := slices.IndexFunc(a.Types(), isNull); i >= 0 {
			return appendLong(dst, int64(i)), nil
		}
		return dst, connect.Unwritable("", "null where the schema has %s", describe(a))
	}
	if st, ok := v.(*connect.Structure); ok {
		if t, i := a.Types().Get(st.Schema.Name); i >= 0 && isRecord(t) {
			return f.value(appendLong(dst, int64(i)), t, s, v)
		}
	}
	var first error
	types := 0
	for i, t := range a.Types() {
		if isNull(t) {
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
	if types > 1 {
		first = around(first, "no type of %s fits: the first one has ", describe(a))
	}
	return dst, first
}

func isNull(a hamba.Schema) bool { return a.Type() == hamba.Null }

func isRecord(a hamba.Schema) bool {
	if r, ok := a.(*hamba.RefSchema); ok {
		a = r.Schema()
	}
	return a.Type() == hamba.Record
}

func (f *fitter) items(dst []byte, a *hamba.ArraySchema, s *connect.Schema, v []any) (_ []byte,
	err error) {
	if len(v) > 0 {
		dst = appendLong(dst, int64(len(v)))
		for i, item := range v {
			if dst, err = f.value(dst, a.Items(), itemsOf(s), item); err != nil {
				return dst, inside(strconv.Itoa(i), err)
			}
		}
	}
	return append(dst, 0), nil
}

func (f *fitter) entries(dst []byte, a *hamba.MapSchema, s *connect.Schema, v connect.Map) (_ []byte,
	err error) {
	if len(v) > 0 {
		dst = appendLong(dst, int64(len(v)))
		for _, e := range v {
			dst = appendText(dst, e.Key)
			if dst, err = f.value(dst, a.Values(), itemsOf(s), e.Value); err != nil {
				return dst, inside(string(e.Key), err)
			}
		}
	}
	return append(dst, 0), nil
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

func (f *fitter) record(dst []byte, a *hamba.RecordSchema, s *connect.Schema, v any) (_ []byte,
	err error) {
	m := f.members[a]
	values := make([]given, len(a.Fields()))
	switch v := v.(type) {
	case connect.Map:
		for _, e := range v {
			i, err := f.place(m, string(e.Key), a)
			if err != nil {
				return dst, err
			}
			values[i] = given{true, itemsOf(s), e.Value}
		}
	case *connect.Structure:
		for at, field := range v.Schema.Fields {
			i, err := f.place(m, field.Name, a)
			if err != nil {
				return dst, err
			}
			member := f.Options.memberOf(v, at, field)
			// What an expanded object does not have is null in a struct.
			missing := member == nil && m.defaults[i] != nil && !takesNull(a.Fields()[i].Type())
			values[i] = given{!missing, field.Schema, member}
		}
	default:
		return dst, unfit(a, v)
	}
	for i, field := range a.Fields() {
		switch value := values[i]; {
		case value.present:
			dst, err = f.value(dst, field.Type(), value.schema, value.value)
			if err != nil {
				return dst, inside(field.Name(), err)
			}
		case m.defaults[i] != nil:
			dst = append(dst, m.defaults[i]...)
		default:
			return dst, connect.Unwritable("give the member a default in the schema, or a value",
				"member %s of %s is missing, and has no default", field.Name(), describe(a))
		}
	}
	return dst, nil
}

// place finds the member of a record by its name.
func (f *fitter) place(m *members, name string, a *hamba.RecordSchema) (int, error) {
	i, known := m.places[name]
	if !known && f.Options.Scrub {
		i, known = m.places[scrub(name)]
	}
	if !known {
		return 0, connect.Unwritable("add the member to the schema, with a default for older events",
			"member %q is not in the schema of %s", name, describe(a))
	}
	return i, nil
}

func takesNull(a hamba.Schema) bool {
	u, ok := a.(*hamba.UnionSchema)
	return isNull(a) || ok && slices.ContainsFunc(u.Types(), isNull)
}

// describe names an Avro schema for people.
func describe(a hamba.Schema) string {
	if n, ok := a.(hamba.NamedSchema); ok {
		return string(a.Type()) + " " + n.FullName()
	}
	if u, ok := a.(*hamba.UnionSchema); ok {
		var names []string
		for _, t := range u.Types() {
			names = append(names, describe(t))
		}
		return fmt.Sprintf("%v", names)
	}
	if t := logicalOf(a); t != "" {
		return string(a.Type()) + " (" + string(t) + ")"
	}
	if r, ok := a.(*hamba.RefSchema); ok {
		return describe(r.Schema())
	}
	return string(a.Type())
}

// unfit says what a value is, and not the value itself, which may be confidential.
func unfit(a hamba.Schema, v any) error {
	is := fmt.Sprintf("%T", v)
	switch v := v.(type) {
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
	return connect.Unwritable("", "%s where the schema has %s", is, describe(a))
}
