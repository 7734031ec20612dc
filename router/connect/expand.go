package connect

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Expander turns JSON text into Connect values with a schema made of the text, as
// table.expand.json.payload does.
type Expander struct {
	KeepNulls  bool // table.json.payload.null.behavior = optional_bytes
	KeepEmpty  bool // table.json.payload.empty.array.behavior = optional_string
	Adjustment string
	Named      bool // schemas carry the path to them as their name, for a format that writes it
	Left       int  // of what the text at hand may become, in bytes; see ExpandedLimit
}

// ExpandedLimit bounds what a text may become. Objects in an array get each other's members, as
// nulls, and the name of a schema is the path to it: a text of a hundred kilobytes, made for it,
// would become a gigabyte.
func ExpandedLimit(length int) int { return 16*length + 1<<20 }

var errExpanded = errors.New("JSON that becomes too large when it is expanded")

// spend takes bytes from what is left.
func (e *Expander) spend(n int) error {
	if e.Left -= n; e.Left < 0 {
		return errExpanded
	}
	return nil
}

// Expansion is what became of a text.
type Expansion struct {
	Schema *Schema // nil with done: an empty array at the top has none
	Value  any
	Done   bool // false: the text stays what it is
	// the schema is that of the JSON but the text cannot be put in it: no converter but string
	// takes it
	Poison bool
}

// Expand gives the schema and value of a JSON text. Only objects become structs. Text that is no
// JSON, or holds an array of different kinds, stays as it is; what has a schema that its own
// values do not fit is poison, as in Debezium.
func (e *Expander) Expand(t Text) Expansion {
	if len(t) == 0 || t[0] != '{' && t[0] != '[' {
		return Expansion{}
	}
	doc, err := ParseJSON(t)
	if err != nil {
		return Expansion{}
	}
	run := *e
	run.Left = ExpandedLimit(len(t))
	s, err := run.SchemaOf("payload", doc)
	switch {
	case errors.Is(err, errExpanded):
		return Expansion{Schema: optionalString, Value: t, Done: true, Poison: true}
	case err != nil:
		return Expansion{}
	case s == nil:
		return Expansion{Value: t, Done: true}
	case s.Kind == KindStruct:
		if v, err := run.Build(doc, s); err == nil {
			return Expansion{Schema: s, Value: v, Done: true}
		}
	}
	return Expansion{Schema: s, Value: t, Done: true, Poison: true}
}

var (
	// What stands for a value without a type of its own gives way to any other of the same
	// place.
	nullBytes  = &Schema{Kind: KindBytes, Optional: true, placeholder: true}
	emptyArray = &Schema{Kind: KindArray, Optional: true, Items: optionalString, placeholder: true}
)

// SchemaOf makes the schema of a JSON value; nil without an error: the value is left out.
func (e *Expander) SchemaOf(path string, n *jsonNode) (*Schema, error) {
	switch n.Kind {
	case JSONString:
		return optionalString, nil
	case jsonBool:
		return optionalBool, nil
	case jsonNumber:
		return numberSchema(n), nil
	case JSONNull:
		if e.KeepNulls {
			return nullBytes, nil
		}
		return nil, nil
	case jsonArray:
		if len(n.items) == 0 {
			if e.KeepEmpty {
				return emptyArray, nil
			}
			return nil, nil
		}
		items, err := e.itemSchema(path, n)
		if err != nil {
			return nil, err
		}
		return &Schema{Kind: KindArray, Optional: true, Items: items}, nil
	}
	s := &Schema{Kind: KindStruct, Optional: true, Name: path,
		Fields: make([]*Field, 0, len(n.Members))}
	for _, m := range n.Members {
		if len(m.Name) == 0 {
			return nil, errors.New("a member without a name")
		}
		name := e.adjust(string(m.Name))
		memberPath, err := e.memberPath(path, name, m.Node)
		if err != nil {
			return nil, err
		}
		ms, err := e.SchemaOf(memberPath, m.Node)
		if err != nil {
			return nil, err
		}
		if ms != nil {
			s.Fields = append(s.Fields, &Field{name, ms})
		}
	}
	if e.adjusts() { // two members can get the same name
		given := map[string]bool{}
		s.Fields = slices.DeleteFunc(s.Fields, func(f *Field) bool {
			again := given[f.Name]
			given[f.Name] = true
			return again
		})
	}
	return s, nil
}

// memberPath is the name of a member's schema. Only objects, also those in arrays, have one.
func (e *Expander) memberPath(path, name string, n *jsonNode) (string, error) {
	if !e.Named || n.Kind != JSONObject && n.Kind != jsonArray {
		return "", nil
	}
	if path != "" {
		name = path + "." + name
	}
	return name, e.spend(len(name))
}

func numberSchema(n *jsonNode) *Schema {
	if n.fractional() {
		return optionalDouble
	}
	v, err := strconv.ParseInt(string(n.Raw), 10, 64)
	switch {
	case err != nil:
		return optionalDouble
	case v >= math.MinInt32 && v <= math.MaxInt32:
		return optionalInt32
	}
	return optionalInt64
}

// fractional reports whether a number is written with a point or an exponent.
func (n *jsonNode) fractional() bool { return bytes.ContainsAny(n.Raw, ".eE") }

// itemSchema makes the schema of an array's items, which have to be of one kind. Objects of
// different shape are merged.
func (e *Expander) itemSchema(path string, n *jsonNode) (*Schema, error) {
	sample := &jsonNode{Kind: JSONNull}
	for _, item := range n.items {
		if item.Kind == JSONNull {
			continue
		}
		if sample.Kind == JSONNull {
			sample = item
		}
		if item.Kind != sample.Kind || item.Kind == jsonNumber &&
			numberSchema(item) != numberSchema(sample) {
			return nil, errors.New("an array of different kinds")
		}
	}
	if sample.Kind != JSONObject {
		s, err := e.SchemaOf("", sample)
		if err == nil && s == nil {
			err = errors.New("an array of nothing known")
		}
		return s, err
	}
	var m *merger
	var first *Schema
	for _, item := range n.items {
		if item.Kind != JSONObject {
			continue
		}
		s, err := e.SchemaOf(path, item)
		switch {
		case err != nil:
			return nil, err
		case first == nil:
			first = s
		case m != nil:
			m.merge(s)
		case !first.Equal(s):
			m = newMerger(first)
			m.merge(s)
		}
	}
	if m == nil {
		return first, nil
	}
	m.schema.Optional = false
	return m.schema, nil
}

var errMisfit = errors.New("a value that does not fit the schema")

// Build makes the value of a JSON node under a schema.
func (e *Expander) Build(n *jsonNode, s *Schema) (any, error) {
	switch {
	case n.Kind == JSONNull && s.Optional:
		return nil, nil
	case n.Kind == JSONString && s.Kind == KindString:
		return n.Text, nil
	case n.Kind == jsonBool && s.Kind == KindBool:
		return n.Raw[0] == 't', nil
	case n.Kind == jsonNumber && numberSchema(n).Kind == s.Kind:
		if s.Kind != KindDouble {
			return strconv.ParseInt(string(n.Raw), 10, 64)
		}
		if !n.fractional() { // an integer beyond 64 bits
			return nil, errMisfit
		}
		v, err := strconv.ParseFloat(string(n.Raw), 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			return nil, fmt.Errorf("read a number: %w", err)
		}
		return v, nil
	case n.Kind == jsonArray && s.Kind == KindArray:
		out := make([]any, len(n.items))
		for i, item := range n.items {
			var err error
			if out[i], err = e.Build(item, s.Items); err != nil {
				return nil, err
			}
		}
		return out, nil
	case n.Kind == JSONObject && s.Kind == KindStruct:
		out := &Structure{s, make([]any, len(s.Fields))}
		for i, f := range s.Fields {
			var err error
			if member := n.get(f.Name); member != nil {
				out.Values[i], err = e.Build(member, f.Schema)
			} else {
				err = e.spend(len(f.Name) + len(`"":null,`))
			}
			if err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	return nil, errMisfit
}

// adjust makes a member name fit for Avro. As in Debezium a member whose name changes loses its
// value, which is looked up under the new name.
func (e *Expander) adjust(name string) string {
	if !e.adjusts() {
		return name
	}
	var out strings.Builder
	for i, c := range name {
		letter, digit := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z', c >= '0' && c <= '9'
		switch unicode := e.Adjustment == "avro_unicode"; {
		case letter, digit && i > 0, c == '_' && !unicode:
			out.WriteRune(c)
		case unicode:
			fmt.Fprintf(&out, "_u%04x", c)
		case digit:
			out.WriteString("_" + string(c))
		default:
			out.WriteByte('_')
		}
	}
	return out.String()
}

func (e *Expander) adjusts() bool {
	return e.Adjustment == "avro" || e.Adjustment == "avro_unicode"
}
