package connect

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Kind is a Kafka Connect schema type.
type Kind uint8

// The types of Kafka Connect (org.apache.kafka.connect.data.Schema.Type) that values here have.
const (
	KindString Kind = iota + 1
	KindBool
	KindInt16
	KindInt32
	KindInt64
	KindFloat
	KindDouble
	KindBytes
	KindArray
	KindMap
	KindStruct
)

func (k Kind) String() string {
	return [...]string{"", "string", "boolean", "int16", "int32", "int64", "float", "double",
		"bytes", "array", "map", "struct"}[k]
}

// Schema is a Kafka Connect schema. It is immutable once it is in use.
type Schema struct {
	Kind     Kind
	Optional bool
	Name     string
	Version  string // empty: none
	Doc      string
	Params   []Parameter
	Def      any      // default value, nil: none
	Items    *Schema  // of an array or of a map's values; keys of maps are always text
	Fields   []*Field // of a struct

	placeholder bool // made of a null or an empty array in JSON: gives way to any other
}

// Parameter is one of a schema's parameters.
type Parameter struct{ Key, Value string }

// Field is a member of a struct. Its place among the Fields of the Schema is that of its value
// among the Values of a Structure.
type Field struct {
	Name   string
	Schema *Schema
}

// RequiredString is the schema of a text that is never null, without a name or a default.
var RequiredString = &Schema{Kind: KindString}

var (
	optionalString = &Schema{Kind: KindString, Optional: true}
	optionalBool   = &Schema{Kind: KindBool, Optional: true}
	optionalInt32  = &Schema{Kind: KindInt32, Optional: true}
	optionalInt64  = &Schema{Kind: KindInt64, Optional: true}
	optionalDouble = &Schema{Kind: KindDouble, Optional: true}
	optionalBytes  = &Schema{Kind: KindBytes, Optional: true}
	requiredBytes  = &Schema{Kind: KindBytes}
	requiredInt32  = &Schema{Kind: KindInt32}
	requiredDouble = &Schema{Kind: KindDouble}
)

// Index is the place of the field of that name, -1 if there is none.
func (s *Schema) Index(name string) int {
	return slices.IndexFunc(s.Fields, func(f *Field) bool { return f.Name == name })
}

// Takes reports whether a value made for another schema can be put in a field of this one: Connect
// looks at the kind, and at the names of its own logical types alone.
func (s *Schema) Takes(v any, made *Schema) bool {
	switch {
	case v == nil:
		return s.Optional || s.Def != nil
	case s.Kind != made.Kind:
		return false
	case s.Kind == KindStruct || s.Kind == KindArray || s.Kind == KindMap:
		return s.Equal(made)
	case s.Name == made.Name:
		return s.Name != DecimalName || slices.Equal(s.Params[:1], made.Params[:1]) // the scale
	}
	return !s.IsLogical() && !made.IsLogical()
}

// IsLogical reports whether the values are those of a logical type of Connect, which has a form of
// its own in Java: Decimal, Date, Time or Timestamp.
func (s *Schema) IsLogical() bool {
	return strings.HasPrefix(s.Name, "org.apache.kafka.connect.data.")
}

// Equal compares as Connect's schemas are compared: everything counts, the order of fields too.
func (s *Schema) Equal(o *Schema) bool {
	if s == o {
		return true
	}
	return s != nil && o != nil && s.Kind == o.Kind && s.Optional == o.Optional &&
		s.Name == o.Name && s.Version == o.Version && s.Items.Equal(o.Items) &&
		slices.Equal(s.Params, o.Params) &&
		(s.Def == nil && o.Def == nil || reflect.DeepEqual(s.Def, o.Def)) &&
		slices.EqualFunc(s.Fields, o.Fields, (*Field).equal)
}

// SameFields reports whether two structs have the same fields. Copies of a schema share their
// fields: that is seen first, since a schema that contains itself has no end.
func (s *Schema) SameFields(o *Schema) bool {
	return len(s.Fields) == len(o.Fields) && (len(s.Fields) == 0 || &s.Fields[0] == &o.Fields[0] ||
		slices.EqualFunc(s.Fields, o.Fields, (*Field).equal))
}

func (f *Field) equal(o *Field) bool { return f.Name == o.Name && f.Schema.Equal(o.Schema) }

// appendJSON writes the schema with JsonConverter's order of members, the default in the given
// notation; field, the name of the field that has it, is written last if there is one.
func (s *Schema) appendJSON(dst []byte, field string, n *notation) []byte {
	dst = append(dst, `{"type":"`+s.Kind.String()+`"`...)
	switch s.Kind {
	case KindArray:
		dst = s.Items.appendJSON(append(dst, `,"items":`...), "", n)
	case KindMap:
		dst = RequiredString.appendJSON(append(dst, `,"keys":`...), "", n)
		dst = s.Items.appendJSON(append(dst, `,"values":`...), "", n)
	case KindStruct:
		dst = append(dst, `,"fields":[`...)
		for i, f := range s.Fields {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = f.Schema.appendJSON(dst, f.Name, n)
		}
		dst = append(dst, ']')
	}
	dst = strconv.AppendBool(append(dst, `,"optional":`...), s.Optional)
	text := func(member, value string) {
		if value != "" {
			dst = AppendJSONString(append(dst, `,"`+member+`":`...), []byte(value))
		}
	}
	text("name", s.Name)
	if s.Version != "" {
		dst = append(dst, `,"version":`+s.Version...)
	}
	text("doc", s.Doc)
	if len(s.Params) > 0 {
		dst = append(dst, `,"parameters":{`...)
		for i, p := range s.Params {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(AppendJSONString(dst, []byte(p.Key)), ':')
			dst = AppendJSONString(dst, []byte(p.Value))
		}
		dst = append(dst, '}')
	}
	if s.Def != nil {
		dst = n.append(append(dst, `,"default":`...), s.Def)
	}
	text("field", field)
	return append(dst, '}')
}
