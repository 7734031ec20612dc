package router

import "fmt"

// encoder writes values to bytes as one of Kafka Connect's converters does.
type encoder struct {
	format string // string | json | json+schema | binary | simple
	java   javaText
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
			return raw, nil
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
	if v == nil && s != nil && !s.optional && s.def == nil && (e.format == "json" || e.format == "json+schema") {
		return nil, fault(ReasonUnconvertible, "", "null for a column that is NOT NULL: a number that is not finite has no decimal form; "+
			"set router.decimal.handling.mode to \"string\" or \"double\"")
	}
	switch e.format {
	case "json":
		return appendJSONValue(nil, v), nil
	case "json+schema":
		if prefix == nil {
			prefix = schemaPrefix(s)
		}
		out := append(make([]byte, 0, len(prefix)+64), prefix...)
		return append(appendJSONValue(out, v), '}'), nil
	case "binary":
		return binaryValue(s, v)
	case "simple":
		if v == nil {
			return nil, nil
		}
		return appendHeaderValue([]byte{}, v, true), nil
	}
	if v == nil {
		return nil, nil
	}
	return e.java.append([]byte{}, v, true), nil
}

func schemaPrefix(s *schema) []byte {
	out := []byte(`{"schema":`)
	if s == nil {
		out = append(out, "null"...)
	} else {
		out = s.appendJSON(out, nil)
	}
	return append(out, `,"payload":`...)
}

// binaryValue hands on bytes and nothing else: Debezium's BinaryDataConverter without a delegate.
func binaryValue(s *schema, v any) ([]byte, error) {
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
	what := "a value without a schema"
	if s != nil {
		what = fmt.Sprintf("a value of type %s", s.kind)
	}
	return nil, fault(ReasonUnconvertible, `set [format] to "string" or "json", or make the column bytea`, "format binary takes bytes, not %s", what)
}
