package connect

import (
	"encoding/binary"
	"errors"
	"math"
	"strings"
)

// Converter is one of Kafka Connect's converters with its options.
type Converter struct {
	Format   string // string | json | json+schema | binary | simple, or one of NumberKinds
	Decimals string // of JSON: BASE64 | NUMERIC
	Encoding string // of string: the character set
	Delegate string // of binary: the format of what is no bytes; empty: an error
	Defaults bool   // of JSON: the default of a column in the place of null
}

// Registered writes values for a schema registry: Avro and the like, with the id of their schema.
type Registered interface {
	// Append writes a value of a schema, which is nil for a value without one; nil for a null. It
	// may block on the registry. Errors are *ValueError, about the value or its schema, or wrap
	// ErrRegistry or ErrRegistryLogin, about the registry.
	Append(dst []byte, topic string, s *Schema, v any) ([]byte, error)
}

// Errors of a schema registry, which say nothing about the row.
var (
	ErrRegistry      = errors.New("schema registry unavailable")
	ErrRegistryLogin = errors.New("schema registry refuses the login")
	// ErrRegistryHalt is that of a registry for which the relay does not wait: the configuration says
	// so, or what it answers is wrong.
	ErrRegistryHalt = errors.New("schema registry needs an operator")
)

// RegistryFormats are those that are written by a Registered.
var RegistryFormats = []string{"avro", "json_schema", "protobuf", "framed"}

// Encoder writes values to bytes as a converter does. It belongs to one goroutine.
type Encoder struct {
	Converter
	Topic      string     // of the next value, for Registered
	Registered Registered // of RegistryFormats

	text    *notation // of format string
	charset charset   // of format string
	numeric bool      // decimals are numbers in JSON
}

// NewEncoder makes the encoder of a valid converter. With java, format string prints bytes as Java
// does.
func NewEncoder(c Converter, java bool) Encoder {
	set, _ := CharsetOf(c.Encoding)
	e := Encoder{Converter: c, text: plainText, charset: set,
		numeric: strings.EqualFold(c.Decimals, "NUMERIC")}
	if java {
		e.text = javaText
	}
	return e
}

// NumberKinds are the formats of Connect's number converters, with the type that each takes.
var NumberKinds = map[string]Kind{
	"short": KindInt16, "integer": KindInt32, "long": KindInt64, "float": KindFloat,
	"double": KindDouble, "boolean": KindBool,
}

// Column is a column of a relation with what is needed to write it.
type Column struct {
	Index  int
	Name   string
	Schema *Schema
	Read   func([]byte) (any, error) // nil: the text itself is the value
	Number bool                      // an integer, whose text is the same everywhere
	// with format string the text itself is written whatever it is: members of a logical message
	AsIs   bool
	Def    any // in the place of NULL; nil: none
	Type   *Type
	Prefix []byte // of format json+schema, up to the payload
}

// IsBytes reports whether the values are nothing but bytes.
func (c *Column) IsBytes() bool {
	return c.Schema.Kind == KindBytes && c.Schema.Name != DecimalName
}

// IsJSON reports whether format string writes JSON: of json, jsonb, hstore, and members of a
// logical message that are objects or arrays.
func (c *Column) IsJSON() bool { return c.AsIs || c.Schema.Name == jsonName }

// Cell encodes a column's text. It returns the text itself where nothing has to change. Nil is a
// null.
func (e *Encoder) Cell(c *Column, raw []byte) ([]byte, error) {
	if raw == nil {
		return e.Value(c.Schema, c.Prefix, c.Def)
	}
	switch plain := c.Read == nil || c.Number; {
	case e.Format == "string" && (plain || c.AsIs):
		return e.charset.recode(raw), nil
	case e.Format == "simple" && (plain || c.AsIs), e.Format == "json" && c.Number:
		return raw, nil
	case e.Format == "json" && plain:
		return AppendJSONString(make([]byte, 0, len(raw)+len(raw)/4+8), raw), nil
	case e.Format == "json+schema" && plain:
		out := append(make([]byte, 0, len(c.Prefix)+len(raw)+len(raw)/4+9), c.Prefix...)
		if c.Number {
			out = append(out, raw...)
		} else {
			out = AppendJSONString(out, raw)
		}
		return append(out, '}'), nil
	}
	v, err := c.Value(raw)
	if err != nil {
		return nil, err
	}
	return e.Value(c.Schema, c.Prefix, v)
}

// Value reads a column's text; NULL gives the default, which is nil unless defaults take its
// place.
func (c *Column) Value(raw []byte) (any, error) {
	if raw == nil {
		return c.Def, nil
	}
	if c.Read == nil {
		return Text(raw), nil
	}
	v, err := c.Read(raw)
	if err != nil {
		return nil, Unwritable("", "column %s: %w", c.Name, err)
	}
	return v, nil
}

// Text is the value of a column of text; nil for NULL.
func (c *Column) Text(raw []byte) (Text, error) {
	if raw == nil || c.Read == nil {
		return raw, nil
	}
	v, err := c.Value(raw)
	t, _ := v.(Text)
	return t, err
}

// Value encodes a value of a schema. A nil schema is none, as for an expanded empty array.
func (e *Encoder) Value(s *Schema, prefix []byte, v any) ([]byte, error) {
	switch e.Format {
	case "json", "json+schema":
		return e.json(s, prefix, v)
	case "binary":
		return e.binary(s, v)
	}
	switch {
	case e.Registered != nil:
		return e.registered(s, v)
	case v == nil:
		return nil, nil
	case e.Format == "simple":
		return appendHeaderValue([]byte{}, v), nil
	case e.Format == "string":
		if b, ok := bytesOf(v); ok && e.text == plainText { // Base64 is for bytes inside of others
			return e.charset.recode(append([]byte{}, b...)), nil
		}
		return e.charset.recode(e.text.append([]byte{}, v)), nil
	}
	return e.number(s, v)
}

func (e *Encoder) registered(s *Schema, v any) ([]byte, error) {
	if v == nil && s != nil && e.Defaults {
		v = s.Def
	}
	return e.Registered.Append(nil, e.Topic, s, v)
}

func (e *Encoder) json(s *Schema, prefix []byte, v any) ([]byte, error) {
	if v == nil && s != nil && s.Def != nil && e.Defaults {
		v = s.Def
	}
	if v == nil && s != nil && !s.Optional && s.Def == nil {
		return nil, Unwritable("", "null for a column that is NOT NULL: a number that is not finite "+
			"has no decimal form; set router.decimal.handling.mode to \"string\" or \"double\"")
	}
	n := PlainJSON
	if e.numeric {
		n, prefix = numericJSON, nil // a default may be a decimal
	}
	if e.Format == "json" {
		return n.append(nil, v), nil
	}
	if prefix == nil {
		prefix = SchemaPrefix(s, n)
	}
	out := append(make([]byte, 0, len(prefix)+64), prefix...)
	return append(n.append(out, v), '}'), nil
}

// SchemaPrefix is a value in format json+schema up to the payload.
func SchemaPrefix(s *Schema, n *notation) []byte {
	out := []byte(`{"schema":`)
	if s == nil {
		out = append(out, "null"...)
	} else {
		out = s.appendJSON(out, "", n)
	}
	return append(out, `,"payload":`...)
}

// binary passes on bytes, and leaves everything else to the delegate: Debezium's
// BinaryDataConverter.
func (e *Encoder) binary(s *Schema, v any) ([]byte, error) {
	if s == nil || s.Kind == KindBytes {
		if b, ok := bytesOf(v); ok || v == nil {
			return b, nil
		}
	}
	if e.Delegate != "" {
		d := *e
		d.Format = e.Delegate
		return d.Value(s, nil, v)
	}
	return nil, Unwritable(`set [format] to "string" or "json", or make the column bytea`,
		"format binary takes bytes, not %s", s.describe())
}

// describe names a schema for people.
func (s *Schema) describe() string {
	if s == nil {
		return "a value without a schema"
	}
	return "a value of type " + s.Kind.String()
}

// number writes a number or a boolean in its binary form: Connect's number converters and its
// BooleanConverter.
func (e *Encoder) number(s *Schema, v any) ([]byte, error) {
	kind := NumberKinds[e.Format]
	if s != nil && s.Kind == kind {
		switch v := v.(type) {
		case int64:
			switch kind {
			case KindInt16:
				return binary.BigEndian.AppendUint16(nil, uint16(v)), nil
			case KindInt32:
				return binary.BigEndian.AppendUint32(nil, uint32(v)), nil
			}
			return binary.BigEndian.AppendUint64(nil, uint64(v)), nil
		case float32:
			if v != v {
				return []byte{0x7f, 0xc0, 0, 0}, nil // Java has one NaN only
			}
			return binary.BigEndian.AppendUint32(nil, math.Float32bits(v)), nil
		case float64:
			return binary.BigEndian.AppendUint64(nil, javaBits(v)), nil
		case bool:
			if v {
				return []byte{1}, nil
			}
			return []byte{0}, nil
		}
	}
	return nil, Unwritable(`choose a column of that type, or set [format] to "string"`,
		"format %s takes a value of type %s, not %s", e.Format, kind, s.describe())
}
