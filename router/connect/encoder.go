package connect

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
)

// Converter is the format of one side with its options.
type Converter struct {
	Format, Decimals, Encoding, Delegate string
	Defaults                             bool
}

// Encoder writes values to bytes as one of Kafka Connect's converters does.
type Encoder struct {
	Format   string // string | json | json+schema | binary | simple, or one of numberKinds
	java     javaText
	numeric  bool    // decimals are numbers in JSON
	Defaults bool    // JSON has the default of a column in the place of null
	charset  charset // of format string
	Delegate string  // the format of what is no bytes, with format binary; empty: an error
}

// NewEncoder makes the encoder of a valid converter.
func NewEncoder(c Converter, java bool) Encoder {
	set, _ := CharsetOf(c.Encoding)
	return Encoder{Format: c.Format, java: javaText(java),
		numeric: strings.EqualFold(c.Decimals, "NUMERIC"), Defaults: c.Defaults, charset: set,
		Delegate: c.Delegate}
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

// Cell encodes a column's text. It returns the text itself where nothing has to change. Nil is a
// null.
func (e *Encoder) Cell(c *Column, raw []byte) ([]byte, error) {
	if raw == nil {
		return e.Value(c.Schema, c.Prefix, c.Def)
	}
	plain := c.Read == nil || c.Number
	switch e.Format {
	case "string":
		if plain || c.AsIs {
			return e.charset.recode(raw), nil
		}
	case "simple":
		if plain || c.AsIs {
			return raw, nil
		}
	case "json":
		if c.Number {
			return raw, nil
		}
		if c.Read == nil {
			return appendJSONString(make([]byte, 0, len(raw)+len(raw)/4+8), raw), nil
		}
	case "json+schema":
		if plain {
			out := make([]byte, 0, len(c.Prefix)+len(raw)+len(raw)/4+9)
			out = append(out, c.Prefix...)
			if c.Number {
				out = append(out, raw...)
			} else {
				out = appendJSONString(out, raw)
			}
			return append(out, '}'), nil
		}
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
		return nil, unwritable("", "column %s: %w", c.Name, err)
	}
	return v, nil
}

// Value encodes a value of a schema. A nil schema is none, as for an expanded empty array.
func (e *Encoder) Value(s *Schema, prefix []byte, v any) ([]byte, error) {
	switch e.Format {
	case "json", "json+schema":
		return e.json(e.Format == "json+schema", s, prefix, v)
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

func (e *Encoder) json(withSchema bool, s *Schema, prefix []byte, v any) ([]byte, error) {
	if v == nil && s != nil && s.Def != nil && e.Defaults {
		v = s.Def
	}
	if v == nil && s != nil && !s.Optional && s.Def == nil {
		return nil, unwritable("",
			"null for a column that is NOT NULL: a number that is not finite has no decimal "+
				"form; "+
				"set router.decimal.handling.mode to \"string\" or \"double\"")
	}
	n := PlainJSON
	if e.numeric {
		n, prefix = numericJSON, nil // a default may be a decimal
	}
	if !withSchema {
		return n.append(nil, v), nil
	}
	if prefix == nil {
		prefix = SchemaPrefix(s, n)
	}
	out := append(make([]byte, 0, len(prefix)+64), prefix...)
	return append(n.append(out, v), '}'), nil
}

func SchemaPrefix(s *Schema, n *notation) []byte {
	out := []byte(`{"schema":`)
	if s == nil {
		out = append(out, "null"...)
	} else {
		out = s.appendJSON(out, nil, n)
	}
	return append(out, `,"payload":`...)
}

// ValueError is a value that cannot be written.
type ValueError struct {
	Err  error
	Hint string // what to do about it; may be empty
}

func (e *ValueError) Error() string { return e.Err.Error() }

func unwritable(hint, format string, args ...any) error {
	return &ValueError{fmt.Errorf(format, args...), hint}
}

// binary hands on bytes, and leaves everything else to the delegate: Debezium's
// BinaryDataConverter.
func (e *Encoder) binary(s *Schema, v any) ([]byte, error) {
	if s == nil || s.Kind == KindBytes {
		switch v := v.(type) {
		case nil:
			return nil, nil
		case buffer:
			return v, nil
		case byteArray:
			return v, nil
		}
	}
	if e.Delegate != "" {
		d := *e
		d.Format = e.Delegate
		return d.Value(s, nil, v)
	}
	return nil, unwritable(`set [format] to "string" or "json", or make the column bytea`,
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
	if v == nil {
		return nil, nil
	}
	if s != nil && s.Kind == NumberKinds[e.Format] {
		switch v := v.(type) {
		case int64:
			switch s.Kind {
			case KindInt16:
				return binary.BigEndian.AppendUint16(nil, uint16(v)), nil
			case KindInt32:
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
	return nil, unwritable(fmt.Sprintf("choose a column of that type, or set [format] to %q",
		"string"),
		"format %s takes a value of type %s, not %s", e.Format, NumberKinds[e.Format],
		s.describe())
}
