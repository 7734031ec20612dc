package avro

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// parser reads schemas that share their names.
type parser struct {
	named map[string]*node
	// defaults are written when all types are known: that of a record may have defaults inside
	defaults []func() error
}

// object is one of JSON.
type object = map[string]any

// read reads the text of a schema.
func (p *parser) read(text string) (*node, error) {
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.UseNumber() // a float would not hold each long
	var doc any
	if err := d.Decode(&doc); err != nil {
		return nil, fmt.Errorf("it is no JSON: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("it is no JSON: something follows the schema")
	}
	n, err := p.schema(doc, "")
	for _, write := range p.defaults {
		if err == nil {
			err = write()
		}
	}
	p.defaults = nil
	return n, err
}

// schema reads a schema inside of a namespace.
func (p *parser) schema(doc any, space string) (*node, error) {
	switch doc := doc.(type) {
	case string:
		return p.reference(doc, space)
	case []any:
		return p.union(doc, space)
	case object:
		return p.definition(doc, space)
	}
	return nil, fmt.Errorf("%s is no schema", shortened(doc))
}

// reference is one of Avro's own types, or a name that is defined, in the namespace or without
// one.
func (p *parser) reference(name, space string) (*node, error) {
	switch name {
	case typeNull, typeBoolean, typeInt, typeLong, typeFloat, typeDouble, typeString, typeBytes:
		return &node{kind: name}, nil
	}
	if space != "" && !strings.Contains(name, ".") {
		if n := p.named[space+"."+name]; n != nil {
			return n, nil
		}
	}
	if n := p.named[name]; n != nil {
		return n, nil
	}
	return nil, fmt.Errorf("type %q is not defined, neither in the schema nor in a reference", name)
}

func (p *parser) union(docs []any, space string) (*node, error) {
	n := &node{kind: typeUnion}
	seen := map[string]bool{}
	for _, doc := range docs {
		t, err := p.schema(doc, space)
		if err != nil {
			return nil, err
		}
		key := t.kind + " " + t.name
		if t.kind == typeUnion || seen[key] {
			return nil, fmt.Errorf("a union with a second %s, or with another union", t.describe())
		}
		seen[key] = true
		n.types = append(n.types, t)
	}
	return n, nil
}

func (p *parser) definition(doc object, space string) (n *node, err error) {
	kind, isName := doc["type"].(string)
	if !isName {
		return p.schema(doc["type"], space)
	}
	switch kind {
	case typeRecord, "error":
		return p.record(doc, space)
	case typeEnum:
		return p.enum(doc, space)
	case typeFixed:
		n, err = p.fixed(doc, space)
	case typeArray:
		return p.container(kind, doc["items"], space)
	case typeMap:
		return p.container(kind, doc["values"], space)
	default:
		n, err = p.reference(kind, space)
	}
	if err == nil && (kind == typeFixed || n.name == "") {
		n.readLogical(doc)
	}
	return n, err
}

func (p *parser) container(kind string, items any, space string) (*node, error) {
	n, err := p.schema(items, space)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kind, err)
	}
	return &node{kind: kind, items: n}, nil
}

// define gives a type its name, under which it is found from then on. Namespaces are not checked:
// the registry has those that Java's Avro takes.
func (p *parser) define(n *node, doc object, space string) (inner string, err error) {
	name, _ := doc["name"].(string)
	if given, ok := doc["namespace"].(string); ok {
		space = given
	}
	if dot := strings.LastIndexByte(name, '.'); dot >= 0 {
		space, name = name[:dot], name[dot+1:]
	}
	if err := valid(n.kind, name, name); err != nil {
		return "", err
	}
	n.name = fullName{space, name}.String()
	if p.named[n.name] != nil {
		return "", fmt.Errorf("%s is defined twice", n.describe())
	}
	p.named[n.name] = n
	return space, nil
}

func (p *parser) record(doc object, space string) (*node, error) {
	n := &node{kind: typeRecord, places: map[string]int{}}
	space, err := p.define(n, doc, space)
	if err != nil {
		return nil, err
	}
	fields, ok := doc["fields"].([]any)
	if !ok {
		return nil, fmt.Errorf("%s has no array of fields", n.describe())
	}
	for i, doc := range fields {
		doc, _ := doc.(object)
		name, _ := doc["name"].(string)
		if err := valid("member", name, name); err != nil {
			return nil, fmt.Errorf("%s: %w", n.describe(), err)
		}
		if _, known := n.places[name]; known {
			return nil, fmt.Errorf("%s has two members %s", n.describe(), name)
		}
		s, err := p.schema(doc["type"], space)
		if err != nil {
			return nil, fmt.Errorf("member %s of %s: %w", name, n.describe(), err)
		}
		f := &field{name: name, schema: s}
		n.places[name] = i
		n.fields = append(n.fields, f)
		if def, has := doc["default"]; has {
			p.defaults = append(p.defaults, func() (err error) {
				if f.def, err = appendParsedDefault([]byte{}, s, def); err != nil {
					return fmt.Errorf("default of member %s of %s: %w", name, n.describe(), err)
				}
				return nil
			})
		}
	}
	return n, nil
}

func (p *parser) enum(doc object, space string) (*node, error) {
	n := &node{kind: typeEnum}
	if _, err := p.define(n, doc, space); err != nil {
		return nil, err
	}
	list, ok := doc["symbols"].([]any)
	if !ok {
		return nil, fmt.Errorf("%s has no array of symbols", n.describe())
	}
	for _, s := range list {
		symbol, _ := s.(string)
		if err := valid("symbol", symbol, symbol); err != nil {
			return nil, fmt.Errorf("%s: %w", n.describe(), err)
		}
		n.symbols = append(n.symbols, symbol)
	}
	return n, nil
}

func (p *parser) fixed(doc object, space string) (*node, error) {
	n := &node{kind: typeFixed}
	if _, err := p.define(n, doc, space); err != nil {
		return nil, err
	}
	var ok bool
	if n.size, ok = small(doc["size"]); !ok {
		return nil, fmt.Errorf("%s has no size, or one that is too large", n.describe())
	}
	return n, nil
}

// readLogical takes a logical type where it is one of its kind; as the specification has it, any
// other is ignored.
func (n *node) readLogical(doc object) {
	logical, _ := doc["logicalType"].(string)
	kind := typeLong
	switch logical {
	case logicalDecimal:
		precision, _ := small(doc["precision"])
		scale, ok := small(doc["scale"])
		ok = ok || doc["scale"] == nil
		if (n.kind == typeBytes || n.kind == typeFixed) && ok && precision > 0 && scale <= precision {
			n.logical, n.precision, n.scale = logical, precision, scale
		}
		return
	case logicalDate, logicalTimeMillis:
		kind = typeInt
	case logicalTimeMicros, logicalTimestampMillis, logicalTimestampMicros, logicalTimestampNanos,
		logicalLocalMillis, logicalLocalMicros, logicalLocalNanos:
	default:
		return
	}
	if n.kind == kind {
		n.logical = logical
	}
}

// small reads a size: an integer from 0 to 2^20.
func small(v any) (int, bool) {
	number, _ := v.(json.Number)
	n, err := strconv.ParseUint(string(number), 10, 32)
	return int(n), err == nil && n <= 1<<20
}

func shortened(v any) string {
	text, err := json.Marshal(v)
	if err != nil || len(text) > 40 {
		return "what is there"
	}
	return string(text)
}
