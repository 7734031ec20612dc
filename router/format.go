package router

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
)

// encoder writes values to bytes as one of Kafka Connect's converters does.
type encoder struct {
	format   string // string | json | json+schema | binary | simple, or one of numberKinds
	java     javaText
	numeric  bool    // decimals are numbers in JSON
	defaults bool    // JSON has the default of a column in the place of null
	charset  charset // of format string
	delegate string  // the format of what is no bytes, with format binary; empty: an error
}

// newEncoder makes the encoder of a valid converter.
func newEncoder(c converter, java bool) encoder {
	set, _ := charsetOf(c.encoding)
	return encoder{format: c.format, java: javaText(java), numeric: strings.EqualFold(c.decimals, "NUMERIC"), defaults: c.defaults, charset: set, delegate: c.delegate}
}

// numberKinds are the formats of Connect's number converters, with the type that each takes.
var numberKinds = map[string]kind{
	"short": kindInt16, "integer": kindInt32, "long": kindInt64, "float": kindFloat, "double": kindDouble, "boolean": kindBool,
}

// column is a column of a relation with what is needed to write it.
type column struct {
	index  int
	name   string
	schema *schema
	read   func([]byte) (any, error) // nil: the text itself is the value
	number bool                      // an integer, whose text is the same everywhere
	asIs   bool                      // with format string the text itself is written whatever it is: members of a logical message
	def    any                       // in the place of NULL; nil: none
	typ    *Type
	prefix []byte // of format json+schema, up to the payload
}

// cell encodes a column's text. It returns the text itself where nothing has to change. Nil is a null.
func (e *encoder) cell(c *column, raw []byte) ([]byte, error) {
	if raw == nil {
		return e.value(c.schema, c.prefix, c.def)
	}
	plain := c.read == nil || c.number
	switch e.format {
	case "string":
		if plain || c.asIs {
			return e.charset.recode(raw), nil
		}
	case "simple":
		if plain || c.asIs {
			return raw, nil
		}
	case "json":
		if c.number {
			return raw, nil
		}
		if c.read == nil {
			return appendJSONString(make([]byte, 0, len(raw)+len(raw)/4+8), raw), nil
		}
	case "json+schema":
		if plain {
			out := make([]byte, 0, len(c.prefix)+len(raw)+len(raw)/4+9)
			out = append(out, c.prefix...)
			if c.number {
				out = append(out, raw...)
			} else {
				out = appendJSONString(out, raw)
			}
			return append(out, '}'), nil
		}
	}
	v, err := c.value(raw)
	if err != nil {
		return nil, err
	}
	return e.value(c.schema, c.prefix, v)
}

// value reads a column's text; NULL gives the default, which is nil unless defaults take its place.
func (c *column) value(raw []byte) (any, error) {
	if raw == nil {
		return c.def, nil
	}
	if c.read == nil {
		return text(raw), nil
	}
	v, err := c.read(raw)
	if err != nil {
		return nil, fault(ReasonUnconvertible, "", "column %s: %w", c.name, err)
	}
	return v, nil
}

// value encodes a value of a schema. A nil schema is none, as for an expanded empty array.
func (e *encoder) value(s *schema, prefix []byte, v any) ([]byte, error) {
	switch e.format {
	case "json", "json+schema":
		return e.json(e.format == "json+schema", s, prefix, v)
	case "binary":
		return e.binary(s, v)
	case "simple":
		if v == nil {
			return nil, nil
		}
		return appendHeaderValue([]byte{}, v), nil
	case "string":
		if v == nil {
			return nil, nil
		}
		return e.charset.recode(e.java.append([]byte{}, v, true)), nil
	}
	return e.number(s, v)
}

func (e *encoder) json(withSchema bool, s *schema, prefix []byte, v any) ([]byte, error) {
	if v == nil && s != nil && s.def != nil && e.defaults {
		v = s.def
	}
	if v == nil && s != nil && !s.optional && s.def == nil {
		return nil, fault(ReasonUnconvertible, "", "null for a column that is NOT NULL: a number that is not finite has no decimal form; "+
			"set router.decimal.handling.mode to \"string\" or \"double\"")
	}
	n := plainJSON
	if e.numeric {
		n, prefix = numericJSON, nil // a default may be a decimal
	}
	if !withSchema {
		return n.append(nil, v), nil
	}
	if prefix == nil {
		prefix = schemaPrefix(s, n)
	}
	out := append(make([]byte, 0, len(prefix)+64), prefix...)
	return append(n.append(out, v), '}'), nil
}

func schemaPrefix(s *schema, n *notation) []byte {
	out := []byte(`{"schema":`)
	if s == nil {
		out = append(out, "null"...)
	} else {
		out = s.appendJSON(out, nil, n)
	}
	return append(out, `,"payload":`...)
}

// binary hands on bytes, and leaves everything else to the delegate: Debezium's BinaryDataConverter.
func (e *encoder) binary(s *schema, v any) ([]byte, error) {
	if s == nil || s.kind == kindBytes {
		switch v := v.(type) {
		case nil:
			return nil, nil
		case buffer:
			return v, nil
		case byteArray:
			return v, nil
		}
	}
	if e.delegate != "" {
		d := *e
		d.format = e.delegate
		return d.value(s, nil, v)
	}
	return nil, fault(ReasonUnconvertible, `set [format] to "string" or "json", or make the column bytea`, "format binary takes bytes, not %s", s.describe())
}

// describe names a schema for people.
func (s *schema) describe() string {
	if s == nil {
		return "a value without a schema"
	}
	return "a value of type " + s.kind.String()
}

// number writes a number or a boolean in its binary form: Connect's number converters and its BooleanConverter.
func (e *encoder) number(s *schema, v any) ([]byte, error) {
	if v == nil {
		return nil, nil
	}
	if s != nil && s.kind == numberKinds[e.format] {
		switch v := v.(type) {
		case int64:
			switch s.kind {
			case kindInt16:
				return binary.BigEndian.AppendUint16(nil, uint16(v)), nil
			case kindInt32:
				return binary.BigEndian.AppendUint32(nil, uint32(v)), nil
			}
			return binary.BigEndian.AppendUint64(nil, uint64(v)), nil
		case float32:
			if v != v {
				return []byte{0x7f, 0xc0, 0, 0}, nil // Java knows one NaN only
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
	return nil, fault(ReasonUnconvertible, fmt.Sprintf("choose a column of that type, or set [format] to %q", "string"),
		"format %s takes a value of type %s, not %s", e.format, numberKinds[e.format], s.describe())
}
