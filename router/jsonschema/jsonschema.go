// Package jsonschema describes values of Kafka Connect by JSON Schema, as Confluent's
// JsonSchemaConverter does. The values themselves are JSON as JsonConverter writes it without
// schemas.
//
//	jsonschema.go  New: the JSON Schema of a Connect schema, and its values
//	declared.go    Parse: a JSON Schema that was given, which values must fit
package jsonschema

import (
	"strconv"
	"strings"

	"github.com/postrider/postrider/router/connect"
)

// Options are those options of JsonSchemaConverter that what Debezium makes of an outbox depends
// on.
type Options struct {
	NumericDecimals bool // decimal.format = NUMERIC: decimals are numbers
	// Closed is object.additional.properties = false: objects have no other members than those of
	// their schema.
	Closed bool
}

// encoder writes values. Defaults have taken the place of nulls before.
func (o Options) encoder() connect.Encoder {
	c := connect.Converter{Format: "json"}
	if o.NumericDecimals {
		c.Decimals = "NUMERIC"
	}
	return connect.NewEncoder(c, false)
}

// Schema is a JSON Schema of a Connect schema. It is immutable.
type Schema struct {
	text   string
	record string
	values connect.Encoder
	source *connect.Schema
}

// own is how parameters begin that JsonSchemaConverter has for itself, and leaves out.
const own = "io.confluent.connect.json"

// New makes the JSON Schema of a Connect schema, to which it keeps a reference. Schemas that are
// equal have the same text.
func New(s *connect.Schema, o Options) (*Schema, error) {
	if s == nil {
		return nil, connect.Unwritable("have the application write an object",
			"JSON Schema needs a schema, and an empty array has none")
	}
	out := &Schema{values: o.encoder(), source: s}
	b := builder{o, &out.values}
	text, err := b.schema(nil, s, -1, false)
	if err != nil {
		return nil, err
	}
	out.text = string(text)
	if s.Kind == connect.KindStruct && !s.Optional {
		out.record = s.Name
	}
	return out, nil
}

// Text is the schema in JSON, as it is registered.
func (s *Schema) Text() string { return s.text }

// Record is the title of the object at the top; empty where there is none.
func (s *Schema) Record() string { return s.record }

// Append appends a value of the schema. Errors are connect.Unwritable's.
func (s *Schema) Append(dst []byte, v any) ([]byte, error) {
	b, err := s.values.Value(s.source, nil, v)
	return append(dst, b...), err
}

type builder struct {
	Options
	values *connect.Encoder // of defaults
}

// types are the words of JSON Schema for kinds, and connect.type where a reader needs it.
var types = map[connect.Kind][2]string{
	connect.KindString: {"string", ""}, connect.KindBool: {"boolean", ""},
	connect.KindInt16: {"integer", "int16"}, connect.KindInt32: {"integer", "int32"},
	connect.KindInt64: {"integer", "int64"}, connect.KindFloat: {"number", "float32"},
	connect.KindDouble: {"number", "float64"}, connect.KindBytes: {"string", "bytes"},
	connect.KindArray: {"array", ""}, connect.KindMap: {"object", "map"},
	connect.KindStruct: {"object", ""},
}

// schema appends the JSON Schema of a member with an index, or of what has none (-1). What is
// optional is one of null and the rest, and has the index; required leaves null out.
func (b *builder) schema(dst []byte, s *connect.Schema, index int, required bool) ([]byte, error) {
	if s.Optional && !required {
		dst, err := b.schema(append(dst, `{"oneOf":[{"type":"null"},`...), s, -1, true)
		return b.end(append(dst, ']'), index), err
	}
	var err error
	names := types[s.Kind]
	if s.Name == connect.DecimalName && b.NumericDecimals {
		names[0] = "number"
	}
	dst = append(dst, `{"type":"`+names[0]+`"`...)
	dst = member(dst, "title", s.Name)
	dst = member(dst, "description", s.Doc)
	if s.Def != nil {
		text, err := b.values.Value(s, nil, s.Def)
		if err != nil {
			return nil, err
		}
		dst = append(append(dst, `,"default":`...), text...)
	}
	switch s.Kind {
	case connect.KindArray:
		dst, err = b.schema(append(dst, `,"items":`...), s.Items, -1, false)
	case connect.KindMap: // keys are text
		dst, err = b.schema(append(dst, `,"additionalProperties":`...), s.Items, -1, false)
	case connect.KindStruct:
		dst, err = b.properties(append(dst, `,"properties":{`...), s)
	}
	if err != nil {
		return nil, err
	}
	dst = member(dst, "connect.type", names[1])
	if s.Version != "" {
		dst = append(dst, `,"connect.version":`+s.Version...)
	}
	return b.end(parameters(dst, s.Params), index), nil
}

func (b *builder) properties(dst []byte, s *connect.Schema) (_ []byte, err error) {
	for i, f := range s.Fields {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(connect.AppendJSONString(dst, []byte(f.Name)), ':')
		if dst, err = b.schema(dst, f.Schema, i, false); err != nil {
			return nil, err
		}
	}
	dst = append(dst, '}')
	if b.Closed {
		dst = append(dst, `,"additionalProperties":false`...)
	}
	return dst, nil
}

func (b *builder) end(dst []byte, index int) []byte {
	if index >= 0 {
		dst = strconv.AppendInt(append(dst, `,"connect.index":`...), int64(index), 10)
	}
	return append(dst, '}')
}

// member appends a text, if there is one.
func member(dst []byte, name, value string) []byte {
	if value == "" {
		return dst
	}
	return connect.AppendJSONString(append(dst, `,"`+name+`":`...), []byte(value))
}

func parameters(dst []byte, all []connect.Parameter) []byte {
	begin := `,"connect.parameters":{`
	for _, p := range all {
		if strings.HasPrefix(p.Key, own) {
			continue
		}
		dst = append(connect.AppendJSONString(append(dst, begin...), []byte(p.Key)), ':')
		dst = connect.AppendJSONString(dst, []byte(p.Value))
		begin = ","
	}
	if begin == "," {
		dst = append(dst, '}')
	}
	return dst
}
