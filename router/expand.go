package router

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// expander turns JSON text into Connect values with a schema made of the text, as table.expand.json.payload asks.
type expander struct {
	keepNulls  bool // table.json.payload.null.behavior = optional_bytes
	keepEmpty  bool // table.json.payload.empty.array.behavior = optional_string
	adjustment string
	named      bool // schemas carry the path to them as their name, for a format that writes it
	left       int  // of what the text at hand may become, in bytes; see expandedLimit
}

func newExpander(cfg *Config, encoders ...encoder) expander {
	return expander{
		keepNulls: cfg.NullBehavior == "optional_bytes", keepEmpty: cfg.EmptyArrayBehavior == "optional_string", adjustment: cfg.FieldNameAdjustment,
		named: slices.ContainsFunc(encoders, func(e encoder) bool { return e.format == "json+schema" || e.delegate == "json+schema" }),
	}
}

// expandedLimit bounds what a text may become. Objects in an array get each other's members, as nulls, and the name of a schema is the path to
// it: a text of a hundred kilobytes, made for it, would become a gigabyte.
func expandedLimit(length int) int { return 16*length + 1<<20 }

var errExpanded = errors.New("JSON that becomes too large when it is expanded")

// spend takes bytes from what is left.
func (e *expander) spend(n int) error {
	if e.left -= n; e.left < 0 {
		return errExpanded
	}
	return nil
}

// expansion is what became of a text.
type expansion struct {
	schema *schema // nil with done: an empty array at the top has none
	value  any
	done   bool // false: the text stays what it is
	poison bool // the schema is that of the JSON but the text cannot be put in it: no converter but string takes it
}

// expand gives the schema and value of a JSON text. Only objects become structs. Text that is no JSON, or holds an array of
// different kinds, stays as it is; what has a schema that its own values do not fit is poison, as in Debezium.
func (e *expander) expand(t text) expansion {
	if len(t) == 0 || t[0] != '{' && t[0] != '[' {
		return expansion{}
	}
	doc, err := parseJSON(t)
	if err != nil {
		return expansion{}
	}
	run := *e
	run.left = expandedLimit(len(t))
	s, err := run.schemaOf("payload", doc)
	if errors.Is(err, errExpanded) {
		return expansion{schema: optionalString, value: t, done: true, poison: true}
	}
	if err != nil {
		return expansion{}
	}
	if s == nil {
		return expansion{value: t, done: true}
	}
	if s.kind != kindStruct {
		return expansion{schema: s, value: t, done: true, poison: true}
	}
	v, err := run.build(doc, s)
	if err != nil {
		return expansion{schema: s, value: t, done: true, poison: true}
	}
	return expansion{schema: s, value: v, done: true}
}

var (
	// What stands for a value that says nothing about its type gives way to any other of the same place.
	nullBytes  = &schema{kind: kindBytes, optional: true, placeholder: true}
	emptyArray = &schema{kind: kindArray, optional: true, items: optionalString, placeholder: true}
)

// schemaOf makes the schema of a JSON value; nil without an error: the value is left out.
func (e *expander) schemaOf(path string, n *jsonNode) (*schema, error) {
	switch n.kind {
	case jsonString:
		return optionalString, nil
	case jsonBool:
		return optionalBool, nil
	case jsonNumber:
		return numberSchema(n), nil
	case jsonNull:
		if e.keepNulls {
			return nullBytes, nil
		}
		return nil, nil
	case jsonArray:
		if len(n.items) == 0 {
			if e.keepEmpty {
				return emptyArray, nil
			}
			return nil, nil
		}
		items, err := e.itemSchema(path, n)
		if err != nil {
			return nil, err
		}
		return &schema{kind: kindArray, optional: true, items: items}, nil
	}
	s := &schema{kind: kindStruct, optional: true, name: path, fields: make([]*field, 0, len(n.members))}
	var given map[string]bool // names, if two members can get the same one
	if e.adjusts() {
		given = map[string]bool{}
	}
	for _, m := range n.members {
		if len(m.name) == 0 {
			return nil, errors.New("a member without a name")
		}
		name := e.adjust(string(m.name))
		memberPath, err := e.memberPath(path, name, m.node)
		if err != nil {
			return nil, err
		}
		ms, err := e.schemaOf(memberPath, m.node)
		if err != nil {
			return nil, err
		}
		if ms == nil || given[name] {
			continue
		}
		if given != nil {
			given[name] = true
		}
		s.fields = append(s.fields, &field{name, ms})
	}
	return s, nil
}

// memberPath is the name of a member's schema. Only objects, also those in arrays, have one.
func (e *expander) memberPath(path, name string, n *jsonNode) (string, error) {
	if !e.named || n.kind != jsonObject && n.kind != jsonArray {
		return "", nil
	}
	if path != "" {
		name = path + "." + name
	}
	return name, e.spend(len(name))
}

func numberSchema(n *jsonNode) *schema {
	if n.fractional() {
		return optionalDouble
	}
	v, err := strconv.ParseInt(string(n.raw), 10, 64)
	switch {
	case err != nil:
		return optionalDouble
	case v >= math.MinInt32 && v <= math.MaxInt32:
		return optionalInt32
	}
	return optionalInt64
}

// fractional tells whether a number is written with a point or an exponent.
func (n *jsonNode) fractional() bool {
	return slices.ContainsFunc(n.raw, func(c byte) bool { return c == '.' || c == 'e' || c == 'E' })
}

// itemSchema makes the schema of an array's items, which have to be of one kind. Objects of different shape are merged.
func (e *expander) itemSchema(path string, n *jsonNode) (*schema, error) {
	var sample *jsonNode
	for _, item := range n.items {
		if item.kind == jsonNull {
			continue
		}
		if sample == nil {
			sample = item
		}
		if item.kind != sample.kind || item.kind == jsonNumber && numberSchema(item) != numberSchema(sample) {
			return nil, errors.New("an array of different kinds")
		}
	}
	if sample == nil {
		sample = &jsonNode{kind: jsonNull}
	}
	if sample.kind != jsonObject {
		s, err := e.schemaOf("", sample)
		if err == nil && s == nil {
			err = errors.New("an array of nothing known")
		}
		return s, err
	}
	var m *merger
	var first *schema
	for _, item := range n.items {
		if item.kind != jsonObject {
			continue
		}
		s, err := e.schemaOf(path, item)
		switch {
		case err != nil:
			return nil, err
		case first == nil:
			first = s
		case m != nil:
			m.merge(s)
		case !first.equal(s):
			m = newMerger(first)
			m.merge(s)
		}
	}
	if m == nil {
		return first, nil
	}
	m.schema.optional = false
	return m.schema, nil
}

var errMisfit = errors.New("a value that does not fit the schema")

// build makes the value of a JSON node under a schema.
func (e *expander) build(n *jsonNode, s *schema) (any, error) {
	if n.kind == jsonNull {
		if !s.optional {
			return nil, errMisfit
		}
		return nil, nil
	}
	switch {
	case n.kind == jsonString && s.kind == kindString:
		return n.text, nil
	case n.kind == jsonBool && s.kind == kindBool:
		return n.raw[0] == 't', nil
	case n.kind == jsonNumber && numberSchema(n).kind == s.kind:
		if s.kind != kindDouble {
			return strconv.ParseInt(string(n.raw), 10, 64)
		}
		if !n.fractional() { // an integer beyond 64 bits
			return nil, errMisfit
		}
		v, err := strconv.ParseFloat(string(n.raw), 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			return nil, fmt.Errorf("read a number: %w", err)
		}
		return v, nil
	case n.kind == jsonArray && s.kind == kindArray:
		out := make([]any, len(n.items))
		for i, item := range n.items {
			v, err := e.build(item, s.items)
			if err != nil {
				return nil, err
			}
			out[i] = v
		}
		return out, nil
	case n.kind == jsonObject && s.kind == kindStruct:
		out := &structure{s, make([]any, len(s.fields))}
		for i, f := range s.fields {
			member := n.get(f.name)
			if member == nil {
				if err := e.spend(len(f.name) + len(`"":null,`)); err != nil {
					return nil, err
				}
				continue
			}
			v, err := e.build(member, f.schema)
			if err != nil {
				return nil, err
			}
			out.values[i] = v
		}
		return out, nil
	}
	return nil, errMisfit
}

// adjust makes a member name fit for Avro. As in Debezium a member whose name changes loses its value, which is looked up
// under the new name.
func (e *expander) adjust(name string) string {
	if !e.adjusts() {
		return name
	}
	var out strings.Builder
	for i, c := range name {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		digit := c >= '0' && c <= '9'
		if e.adjustment == "avro_unicode" {
			if letter || digit && i > 0 {
				out.WriteRune(c)
			} else {
				fmt.Fprintf(&out, "_u%04x", c)
			}
			continue
		}
		switch {
		case letter || c == '_' || digit && i > 0:
			out.WriteRune(c)
		case digit:
			out.WriteByte('_')
			out.WriteRune(c)
		default:
			out.WriteByte('_')
		}
	}
	return out.String()
}

func (e *expander) adjusts() bool { return e.adjustment == "avro" || e.adjustment == "avro_unicode" }
