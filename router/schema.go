package router

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// kind is a Kafka Connect schema type.
type kind uint8

const (
	kindString kind = iota + 1
	kindBool
	kindInt16
	kindInt32
	kindInt64
	kindFloat
	kindDouble
	kindBytes
	kindArray
	kindMap
	kindStruct
)

func (k kind) String() string {
	return [...]string{"", "string", "boolean", "int16", "int32", "int64", "float", "double", "bytes", "array", "map", "struct"}[k]
}

// schema is a Kafka Connect schema. It is immutable once it is in use.
type schema struct {
	kind     kind
	optional bool
	name     string
	version  string // empty: none
	doc      string
	params   []parameter
	def      any      // default value, nil: none
	items    *schema  // of an array or of a map's values; keys of maps are always text
	fields   []*field // of a struct

	placeholder bool // made of a null or an empty array in JSON: gives way to any other
}

type parameter struct{ key, value string }

type field struct {
	name   string
	schema *schema
}

var (
	optionalString = &schema{kind: kindString, optional: true}
	optionalBool   = &schema{kind: kindBool, optional: true}
	optionalInt32  = &schema{kind: kindInt32, optional: true}
	optionalInt64  = &schema{kind: kindInt64, optional: true}
	optionalDouble = &schema{kind: kindDouble, optional: true}
	optionalBytes  = &schema{kind: kindBytes, optional: true}
	requiredString = &schema{kind: kindString}
	requiredBytes  = &schema{kind: kindBytes}
	requiredInt32  = &schema{kind: kindInt32}
	requiredDouble = &schema{kind: kindDouble}
)

// index is the place of the field of that name, -1 if there is none.
func (s *schema) index(name string) int {
	return slices.IndexFunc(s.fields, func(f *field) bool { return f.name == name })
}

// takes tells whether a value made for another schema can be put in a field of this one: Connect looks at the kind, and at the names of
// its own logical types alone.
func (s *schema) takes(v any, made *schema) bool {
	switch {
	case v == nil:
		return s.optional || s.def != nil
	case s.kind != made.kind:
		return false
	case s.kind == kindStruct || s.kind == kindArray || s.kind == kindMap:
		return s.equal(made)
	case s.name == made.name:
		return s.name != decimalName || slices.Equal(s.params[:1], made.params[:1]) // the scale
	}
	const own = "org.apache.kafka.connect.data."
	return !strings.HasPrefix(s.name, own) && !strings.HasPrefix(made.name, own)
}

// equal compares as Connect's schemas are compared: everything counts, the order of fields too.
func (s *schema) equal(o *schema) bool {
	if s == o {
		return true
	}
	if s == nil || o == nil || s.kind != o.kind || s.optional != o.optional || s.name != o.name || s.version != o.version ||
		len(s.fields) != len(o.fields) || !s.items.equal(o.items) || !slices.Equal(s.params, o.params) {
		return false
	}
	if (s.def != nil || o.def != nil) && !reflect.DeepEqual(s.def, o.def) {
		return false
	}
	for i, f := range s.fields {
		if f.name != o.fields[i].name || !f.schema.equal(o.fields[i].schema) {
			return false
		}
	}
	return true
}

// appendJSON writes the schema with JsonConverter's order of members, the default in the given notation; fieldName is written last if it is given.
func (s *schema) appendJSON(dst []byte, fieldName *string, n *notation) []byte {
	dst = append(dst, `{"type":"`...)
	dst = append(dst, s.kind.String()...)
	dst = append(dst, '"')
	switch s.kind {
	case kindArray:
		dst = append(dst, `,"items":`...)
		dst = s.items.appendJSON(dst, nil, n)
	case kindMap:
		dst = append(dst, `,"keys":`...)
		dst = requiredString.appendJSON(dst, nil, n)
		dst = append(dst, `,"values":`...)
		dst = s.items.appendJSON(dst, nil, n)
	case kindStruct:
		dst = append(dst, `,"fields":[`...)
		for i, f := range s.fields {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = f.schema.appendJSON(dst, &f.name, n)
		}
		dst = append(dst, ']')
	}
	dst = append(dst, `,"optional":`...)
	dst = strconv.AppendBool(dst, s.optional)
	if s.name != "" {
		dst = append(dst, `,"name":`...)
		dst = appendJSONString(dst, []byte(s.name))
	}
	if s.version != "" {
		dst = append(dst, `,"version":`...)
		dst = append(dst, s.version...)
	}
	if s.doc != "" {
		dst = append(dst, `,"doc":`...)
		dst = appendJSONString(dst, []byte(s.doc))
	}
	if len(s.params) > 0 {
		dst = append(dst, `,"parameters":{`...)
		for i, p := range s.params {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendJSONString(dst, []byte(p.key))
			dst = append(dst, ':')
			dst = appendJSONString(dst, []byte(p.value))
		}
		dst = append(dst, '}')
	}
	if s.def != nil {
		dst = append(dst, `,"default":`...)
		dst = n.append(dst, s.def)
	}
	if fieldName != nil {
		dst = append(dst, `,"field":`...)
		dst = appendJSONString(dst, []byte(*fieldName))
	}
	return append(dst, '}')
}
