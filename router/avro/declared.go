package avro

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Declared is an Avro schema that was given, and not made of a Connect schema. It is immutable
// once Options are set.
type Declared struct {
	// Options are those of the converter: Scrub and KeepNulls decide how the members of a struct are
	// found and read, the others have no effect.
	Options Options

	schema *node
}

// Parse reads a schema in JSON, which may use what the references define, in any order. It takes
// the names that Java's Avro takes.
func Parse(text string, references ...string) (*Declared, error) {
	p := &parser{named: map[string]*node{}}
	if err := p.references(references); err != nil {
		return nil, err
	}
	n, err := p.read(text)
	if err != nil {
		return nil, fmt.Errorf("read the Avro schema: %w", err)
	}
	return &Declared{schema: n}, nil
}

// Record is the full name of the record at the top; empty where the top is no record.
func (d *Declared) Record() string {
	if d.schema.kind != typeRecord {
		return ""
	}
	return d.schema.name
}

// Equal reports whether two schemas are the same to those who write and read by them: order of
// members, names, types, defaults and logical types count; docs and other properties do not.
func (d *Declared) Equal(o *Declared) bool {
	return d.schema.equal(o.schema, map[[2]*node]bool{})
}

// references reads those that need no other first, and so on.
func (p *parser) references(texts []string) error {
	for pending := texts; len(pending) > 0; {
		var left []string
		var last error
		for _, text := range pending {
			// what a reference defines before it fails would be defined twice at the next try
			try := &parser{named: maps.Clone(p.named)}
			if _, err := try.read(text); err != nil {
				left, last = append(left, text), err
				continue
			}
			p.named = try.named
		}
		if len(left) == len(pending) {
			return fmt.Errorf("read a reference of the Avro schema: %w", last)
		}
		pending = left
	}
	return nil
}

// appendParsedDefault writes a default in JSON. That of a union is of any of its types, as in Avro
// 1.12; before, it had to be of the first one.
func appendParsedDefault(dst []byte, n *node, v any) (_ []byte, err error) {
	switch n.kind {
	case typeUnion:
		for i, t := range n.types {
			if out, err := appendParsedDefault(appendLong(dst, int64(i)), t, v); err == nil {
				return out, nil
			}
		}
	case typeNull:
		if v == nil {
			return dst, nil
		}
	case typeBoolean:
		if b, ok := v.(bool); ok {
			return appendBool(dst, b), nil
		}
	case typeInt, typeLong:
		number, _ := v.(json.Number)
		bits := 64
		if n.kind == typeInt {
			bits = 32
		}
		if i, err := strconv.ParseInt(string(number), 10, bits); err == nil {
			return appendLong(dst, i), nil
		}
	case typeFloat, typeDouble:
		if f, ok := parsedFloat(n, v); ok {
			if n.kind == typeFloat {
				return appendFloat(dst, float32(f)), nil
			}
			return appendDouble(dst, f), nil
		}
	case typeString:
		if s, ok := v.(string); ok {
			return appendText(dst, []byte(s)), nil
		}
	case typeEnum:
		if s, ok := v.(string); ok && slices.Contains(n.symbols, s) {
			return appendLong(dst, int64(slices.Index(n.symbols, s))), nil
		}
	case typeBytes, typeFixed:
		b, ok := latin1(v)
		switch {
		case ok && n.kind == typeBytes:
			return appendBytes(dst, b), nil
		case ok && len(b) == n.size:
			return append(dst, b...), nil
		}
	case typeArray:
		if items, ok := v.([]any); ok {
			return appendBlock(dst, items, func(dst []byte, _ int, item any) ([]byte, error) {
				return appendParsedDefault(dst, n.items, item)
			})
		}
	case typeMap:
		if entries, ok := v.(object); ok {
			keys := slices.Sorted(maps.Keys(entries))
			return appendBlock(dst, keys, func(dst []byte, _ int, key string) ([]byte, error) {
				return appendParsedDefault(appendText(dst, []byte(key)), n.items, entries[key])
			})
		}
	case typeRecord:
		if members, ok := v.(object); ok {
			return appendRecordDefault(dst, n, members)
		}
	}
	return dst, errors.New("it is no value of " + n.describe())
}

func appendRecordDefault(dst []byte, n *node, members object) (_ []byte, err error) {
	for _, f := range n.fields {
		v, given := members[f.name]
		switch {
		case given:
			if dst, err = appendParsedDefault(dst, f.schema, v); err != nil {
				return dst, fmt.Errorf("member %s: %w", f.name, err)
			}
		case f.def != nil:
			dst = append(dst, f.def...)
		default:
			return dst, fmt.Errorf("member %s is missing", f.name)
		}
	}
	return dst, nil
}

// parsedFloat reads a number; JSON has texts for those that are not finite, which Java's Avro
// writes.
func parsedFloat(n *node, v any) (float64, bool) {
	text := ""
	switch v := v.(type) {
	case json.Number:
		text = string(v)
	case string:
		if !notFinite[v] {
			return 0, false
		}
		text = v
	}
	bits := 64
	if n.kind == typeFloat {
		bits = 32
	}
	f, err := strconv.ParseFloat(text, bits)
	return f, err == nil
}

var notFinite = map[string]bool{"NaN": true, "Infinity": true, "-Infinity": true}

// latin1 reads bytes, which are the characters 0 to 255 of a text.
func latin1(v any) ([]byte, bool) {
	text, ok := v.(string)
	out := make([]byte, 0, utf8.RuneCountInString(text))
	for _, c := range text {
		if c > 0xFF {
			return nil, false
		}
		out = append(out, byte(c))
	}
	return out, ok
}
