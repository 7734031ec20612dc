package avro

import (
	"bytes"
	"cmp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/postrider/postrider/router/connect"
)

// Names of Connect's logical types.
const (
	dateName      = "org.apache.kafka.connect.data.Date"
	timeName      = "org.apache.kafka.connect.data.Time"
	timestampName = "org.apache.kafka.connect.data.Timestamp"
)

// logicalTypes are Avro's for Connect's. Those of Debezium, io.debezium.time.*, are numbers and
// texts with a connect.name.
var logicalTypes = map[string]string{
	connect.DecimalName: "decimal", dateName: "date", timeName: "time-millis",
	timestampName: "timestamp-millis",
}

// precisionParameter is Debezium's parameter of a Decimal; without it the precision is
// anyPrecision.
const (
	precisionParameter = "connect.decimal.precision"
	anyPrecision       = "64"
)

// builder writes one Avro schema, with the members in the order in which Java's Avro has them.
type builder struct {
	Options
	out     []byte
	space   string // namespace of the record around
	first   string // full name of the record that is defined first
	unnamed int    // names given to what has none
	// what is defined: Avro takes each name once, and from then on as a reference
	defined  map[string]*connect.Schema
	nameless []definition
	open     map[*connect.Schema]bool // structs whose definition has begun
}

// definition is a named type that has no name in Connect.
type definition struct {
	schema *connect.Schema
	name   fullName
}

func newBuilder(o Options) *builder {
	return &builder{Options: o, defined: map[string]*connect.Schema{},
		open: map[*connect.Schema]bool{}}
}

func (b *builder) write(text string) { b.out = append(b.out, text...) }

func (b *builder) quote(text string) { b.out = appendQuoted(b.out, []byte(text)) }

// appendQuoted writes a text of JSON as Java's Avro does, which, unlike JsonConverter, has no
// escapes for characters outside of the basic plane.
func appendQuoted(dst, text []byte) []byte {
	dst = append(dst, '"')
	for len(text) > 0 {
		n := bytes.IndexFunc(text, func(c rune) bool { return c > 0xFFFF })
		if n < 0 {
			n = len(text)
		}
		quoted := connect.AppendJSONString(nil, text[:n])
		dst = append(dst, quoted[1:len(quoted)-1]...)
		_, size := utf8.DecodeRune(text[n:])
		dst = append(dst, text[n:n+size]...)
		text = text[n+size:]
	}
	return append(dst, '"')
}

// member writes the name of a member with the comma before it.
func (b *builder) member(name string) {
	b.write(",")
	b.quote(name)
	b.write(":")
}

// property writes a member whose value is a text.
func (b *builder) property(name, text string) {
	b.member(name)
	b.quote(text)
}

// schema writes the type of a value. What is optional is a union with null, which stands behind
// the type that a default is of: the default of a union has to be of its first type.
func (b *builder) schema(s *connect.Schema) error {
	switch {
	case !s.Optional:
		return b.required(s)
	case nullIndex(s) == 0:
		b.write(`["null",`)
		err := b.required(s)
		b.write("]")
		return err
	}
	b.write("[")
	err := b.required(s)
	b.write(`,"null"]`)
	return err
}

// nullIndex is the place of null in the union of an optional value. AvroConverter has it first for
// every struct.
func nullIndex(s *connect.Schema) int {
	if s.Def != nil && s.Kind != connect.KindStruct {
		return 1
	}
	return 0
}

func (b *builder) required(s *connect.Schema) error {
	switch s.Kind {
	case connect.KindStruct:
		return b.record(s)
	case connect.KindArray:
		return b.container(s, "array", "items")
	case connect.KindMap:
		return b.container(s, "map", "values")
	}
	if b.isEnum(s) {
		return b.enum(s)
	}
	start := len(b.out)
	b.write(`{"type":` + primitives[s.Kind])
	head := len(b.out)
	if s.Name == connect.DecimalName {
		b.write(`,"scale":` + cmp.Or(parameter(s, "scale"), "0"))
		b.write(`,"precision":` + cmp.Or(parameter(s, precisionParameter), anyPrecision))
	}
	b.properties(s)
	if len(b.out) == head { // nothing but a type is written as its name
		b.out = append(b.out[:start], primitives[s.Kind]...)
		return nil
	}
	b.write("}")
	return nil
}

var primitives = map[connect.Kind]string{
	connect.KindString: `"string"`, connect.KindBool: `"boolean"`, connect.KindInt16: `"int"`,
	connect.KindInt32: `"int"`, connect.KindInt64: `"long"`, connect.KindFloat: `"float"`,
	connect.KindDouble: `"double"`, connect.KindBytes: `"bytes"`,
}

func (b *builder) container(s *connect.Schema, kind, items string) error {
	b.write(`{"type":"` + kind + `","` + items + `":`)
	if err := b.schema(s.Items); err != nil {
		return err
	}
	b.properties(s)
	b.write("}")
	return nil
}

// record writes a struct: its definition, or its name where that is defined.
func (b *builder) record(s *connect.Schema) error {
	name, known, err := b.recordName(s)
	switch {
	case err != nil:
		return err
	case known:
		b.quote(name.from(b.space))
		return nil
	case b.first == "":
		b.first = name.String()
	}
	b.open[s] = true
	around := b.space
	b.head("record", name)
	b.space = name.space
	b.write(`,"fields":[`)
	taken := make(map[string]bool, len(s.Fields))
	for i, f := range s.Fields {
		if i > 0 {
			b.write(",")
		}
		if err := b.field(f, taken); err != nil {
			return err
		}
	}
	b.write("]")
	b.properties(s)
	b.write("}")
	b.space = around
	if s.Name == "" {
		b.nameless = append(b.nameless, definition{s, name})
	}
	return nil
}

// recordName gives a struct its name, and reports whether that is defined already. Structs without
// a name share a definition if they are equal.
func (b *builder) recordName(s *connect.Schema) (name fullName, known bool, err error) {
	if s.Name == "" {
		for _, d := range b.nameless {
			if sameRecord(d.schema, s) {
				return d.name, true, nil
			}
		}
		if b.open[s] {
			return name, false, connect.Unwritable("", "a struct without a name that contains itself")
		}
		return b.nextName(), false, nil
	}
	if name, err = b.split(s.Name); err != nil {
		return name, false, err
	}
	key := name.String()
	before, known := b.defined[key]
	if known && !before.SameFields(s) {
		return name, false, connect.Unwritable("give one of them another name",
			"two different structs have the name %s, which Avro takes for one of them only", key)
	}
	if !known {
		b.defined[key] = s
	}
	return name, known, nil
}

// nextName is for what has no name in Connect.
func (b *builder) nextName() fullName {
	b.unnamed++
	if b.unnamed == 1 {
		return fullName{namespace, defaultName}
	}
	return fullName{namespace, defaultName + strconv.Itoa(b.unnamed)}
}

// head begins the definition of a named type.
func (b *builder) head(kind string, name fullName) {
	b.write(`{"type":"` + kind + `"`)
	b.property("name", name.name)
	if name.space != b.space {
		b.property("namespace", name.space)
	}
}

func (b *builder) field(f *connect.Field, taken map[string]bool) error {
	name, err := b.Options.member(f.Name)
	if err != nil {
		return err
	}
	if taken[name] {
		return connect.Unwritable("", "two members have the name %s in Avro", name)
	}
	taken[name] = true
	b.write(`{"name":`)
	b.quote(name)
	b.write(`,"type":`)
	if err := b.schema(f.Schema); err != nil {
		return connect.WithinMember(err, f.Name)
	}
	switch s := f.Schema; {
	case s.Def != nil:
		if defaultFits(s, s.Def) {
			b.member("default")
			b.out = b.appendDefault(b.out, s, s.Def, true)
		}
	case s.Optional:
		b.member("default")
		b.write("null")
	}
	b.write("}")
	return nil
}

// properties writes what Avro has no place for.
func (b *builder) properties(s *connect.Schema) {
	if b.MetaData {
		b.metaData(s)
	}
	if t := logicalTypes[s.Name]; t != "" {
		b.property("logicalType", t)
	}
	for _, p := range s.Params {
		if strings.HasPrefix(p.Key, "avro") {
			b.property(p.Key, p.Value)
		}
	}
}

func (b *builder) metaData(s *connect.Schema) {
	if s.Doc != "" {
		b.property("connect.doc", s.Doc)
	}
	if s.Version != "" {
		b.member("connect.version")
		b.write(s.Version)
	}
	if len(s.Params) > 0 {
		b.member("connect.parameters")
		b.write("{")
		for i, p := range s.Params {
			if i > 0 {
				b.write(",")
			}
			b.quote(p.Key)
			b.write(":")
			b.quote(p.Value)
		}
		b.write("}")
	}
	if s.Def != nil {
		b.member("connect.default")
		b.out = b.appendDefault(b.out, s, s.Def, false)
	}
	if s.Name != "" {
		b.property("connect.name", s.Name)
	}
	if s.Kind == connect.KindInt16 {
		b.property("connect.type", "int16")
	}
}

// sameRecord reports whether two structs are equal as Connect compares them, apart from whether
// they are optional.
func sameRecord(a, b *connect.Schema) bool {
	copied := *a
	copied.Optional = b.Optional
	return copied.Equal(b)
}

func parameter(s *connect.Schema, key string) string {
	for _, p := range s.Params {
		if p.Key == key {
			return p.Value
		}
	}
	return ""
}
