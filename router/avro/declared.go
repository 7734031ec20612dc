package avro

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"

	hamba "github.com/hamba/avro/v2"
)

// Declared is an Avro schema that was given, and not made of a Connect schema. It is immutable
// once Options are set.
type Declared struct {
	// Options are those of the converter: Scrub and KeepNulls decide how the members of a struct are
	// found and read, the others have no effect.
	Options Options

	schema  hamba.Schema
	members map[*hamba.RecordSchema]*members
}

// members are those of a record.
type members struct {
	places   map[string]int
	defaults [][]byte // in their binary form; nil: none
}

// Parse reads a schema in JSON, which may use what the references define, in any order. Names are
// checked as Avro's specification has them.
func Parse(text string, references ...string) (*Declared, error) {
	cache := &hamba.SchemaCache{}
	if err := parseReferences(cache, references); err != nil {
		return nil, err
	}
	s, err := parse(cache, text)
	if err != nil {
		return nil, fmt.Errorf("read the Avro schema: %w", err)
	}
	d := &Declared{schema: s, members: map[*hamba.RecordSchema]*members{}}
	if err := d.collect(s); err != nil {
		return nil, fmt.Errorf("read the Avro schema: %w", err)
	}
	return d, nil
}

// parseReferences reads those that need no other first, and so on.
func parseReferences(cache *hamba.SchemaCache, texts []string) error {
	for pending := texts; len(pending) > 0; {
		var left []string
		var last error
		for _, text := range pending {
			if _, err := parse(cache, text); err != nil {
				left, last = append(left, text), err
			}
		}
		if len(left) == len(pending) {
			return fmt.Errorf("read a reference of the Avro schema: %w", last)
		}
		pending = left
	}
	return nil
}

func parse(cache *hamba.SchemaCache, text string) (hamba.Schema, error) {
	if !json.Valid([]byte(text)) {
		return nil, errors.New("it is no JSON")
	}
	return hamba.ParseWithCache(text, "", cache)
}

// collect finds the records and writes their defaults.
func (d *Declared) collect(s hamba.Schema) error {
	switch s := s.(type) {
	case *hamba.RefSchema:
		return d.collect(s.Schema())
	case *hamba.ArraySchema:
		return d.collect(s.Items())
	case *hamba.MapSchema:
		return d.collect(s.Values())
	case *hamba.UnionSchema:
		for _, t := range s.Types() {
			if err := d.collect(t); err != nil {
				return err
			}
		}
	case *hamba.RecordSchema:
		return d.collectMembers(s)
	}
	return nil
}

func (d *Declared) collectMembers(s *hamba.RecordSchema) error {
	if d.members[s] != nil {
		return nil
	}
	m := &members{map[string]int{}, make([][]byte, len(s.Fields()))}
	d.members[s] = m
	for i, f := range s.Fields() {
		m.places[f.Name()] = i
		if err := d.collect(f.Type()); err != nil {
			return err
		}
		if !f.HasDefault() {
			continue
		}
		var err error
		if m.defaults[i], err = appendDeclaredDefault([]byte{}, f.Type(), f.Default()); err != nil {
			return fmt.Errorf("default of member %s of %s: %w", f.Name(), s.FullName(), err)
		}
	}
	return nil
}

// appendDeclaredDefault writes a default in the form in which hamba holds it. That of a union is
// of its first type.
func appendDeclaredDefault(dst []byte, s hamba.Schema, v any) (_ []byte, err error) {
	switch s := s.(type) {
	case *hamba.RefSchema:
		return appendDeclaredDefault(dst, s.Schema(), v)
	case *hamba.NullSchema:
		return dst, nil
	case *hamba.UnionSchema:
		return appendDeclaredDefault(appendLong(dst, 0), s.Types()[0], v)
	case *hamba.EnumSchema:
		return appendLong(dst, int64(slices.Index(s.Symbols(), v.(string)))), nil
	case *hamba.FixedSchema:
		b := make([]byte, s.Size())
		reflect.Copy(reflect.ValueOf(b), reflect.ValueOf(v)) // an array of bytes
		return append(dst, b...), nil
	case *hamba.ArraySchema:
		items := v.([]any)
		if len(items) > 0 {
			dst = appendLong(dst, int64(len(items)))
		}
		for _, item := range items {
			if dst, err = appendDeclaredDefault(dst, s.Items(), item); err != nil {
				return dst, err
			}
		}
		return append(dst, 0), nil
	case *hamba.MapSchema:
		entries := v.(map[string]any)
		if len(entries) > 0 {
			dst = appendLong(dst, int64(len(entries)))
		}
		for _, key := range slices.Sorted(maps.Keys(entries)) {
			dst = appendText(dst, []byte(key))
			dst, err = appendDeclaredDefault(dst, s.Values(), entries[key])
			if err != nil {
				return dst, err
			}
		}
		return append(dst, 0), nil
	case *hamba.RecordSchema:
		for _, f := range s.Fields() {
			dst, err = appendDeclaredDefault(dst, f.Type(), v.(map[string]any)[f.Name()])
			if err != nil {
				return dst, err
			}
		}
		return dst, nil
	}
	switch v := v.(type) {
	case bool:
		return appendBool(dst, v), nil
	case int:
		if v < math.MinInt32 || v > math.MaxInt32 {
			return dst, errors.New("out of the range of int")
		}
		return appendLong(dst, int64(v)), nil
	case int64:
		if v < -exactInteger || v > exactInteger {
			return dst, errors.New("a long beyond 2^53, which is not read exactly")
		}
		return appendLong(dst, v), nil
	case float32:
		return appendFloat(dst, v), nil
	case float64:
		return appendDouble(dst, v), nil
	case string:
		return appendText(dst, []byte(v)), nil
	case []byte:
		return appendBytes(dst, v), nil
	}
	return dst, fmt.Errorf("a value of type %T", v)
}

// exactInteger is the largest integer up to which a double has every one.
const exactInteger = 1 << 53
