package protobuf

import (
	"slices"
	"strconv"
	"strings"

	"github.com/postrider/postrider/router/connect"
)

// Options are those options of ProtobufConverter that what Debezium makes of an outbox depends on.
type Options struct {
	// Optional is optional.for.nullables: fields that may be null are optional, and so keep a zero
	// apart from a null.
	Optional bool
	// Wrappers is wrapper.for.nullables: fields that may be null are messages such as
	// google.protobuf.StringValue.
	Wrappers bool
	// Scrub is scrub.invalid.names: characters that Protocol Buffers refuse in names are replaced.
	Scrub bool
}

// Schema is the file with the message of a Connect schema. It is immutable.
type Schema struct {
	options Options
	source  *connect.Schema
	top     *message
	indexes []byte // which message of the file a value is, as Confluent's serializer writes it
	record  string
	text    string
}

// message is a message of a struct, or the entry of a map.
type message struct {
	name   string
	fields []*field
	nested []*message
	types  map[string]*connect.Schema // of nested structs, by the names of their messages
}

// field is a field of a message. Its number is its place among the fields, from one.
type field struct {
	name     string
	kind     string // as in the text
	label    string // repeated, optional or none
	params   [][2]string
	source   *connect.Schema // of an item, if it is repeated
	message  *message        // of a struct or the entry of a map; nil for others
	defaults any             // of the Connect schema
}

// New makes the schema of a Connect schema, to which it keeps a reference. Schemas that are equal
// have the same text. Errors are connect.Unwritable's.
func New(s *connect.Schema, o Options) (*Schema, error) {
	if s == nil {
		return nil, connect.Unwritable("have the application write an object",
			"Protobuf needs a schema, and an empty array has none")
	}
	out := &Schema{options: o, source: s}
	switch s.Kind {
	case connect.KindArray, connect.KindMap:
		return nil, connect.Unwritable("have the application write an object",
			"ProtobufConverter takes no %s as a whole value", s.Kind)
	case connect.KindStruct:
	default:
		wrapper := wrappers[s.Kind]
		index := slices.IndexFunc(wrapperMessages, func(m [2]string) bool { return m[0] == wrapper })
		out.indexes, out.record, out.text = messageIndexes(index), wrapperPackage+wrapper, wrapperText
		return out, nil
	}
	b := builder{Options: o}
	whole := b.nameOf(s)
	parts := strings.Split(whole, ".")
	for i, part := range parts {
		if o.Scrub {
			parts[i] = scrub(part)
		}
		if err := valid("message", parts[i], whole); err != nil {
			return nil, err
		}
	}
	out.record = strings.Join(parts, ".")
	last := len(parts) - 1
	var err error
	if out.top, err = b.message(parts[last], s); err != nil {
		return nil, err
	}
	for _, reserved := range []string{"google", "confluent"} {
		if slices.Contains(parts[min(1, last):], reserved) && len(b.imports) > 0 {
			return nil, badName("message", whole)
		}
	}
	out.indexes = messageIndexes(0)
	out.text = fileText(strings.Join(parts[:last], "."), b.imports, out.top)
	return out, nil
}

// Text is the schema, as it is registered.
func (s *Schema) Text() string { return s.text }

// Record is the full name of the message.
func (s *Schema) Record() string { return s.record }

// builder makes messages as ProtobufData does, which counts the structs without a name.
type builder struct {
	Options
	imports []string
	unnamed int
}

// message makes the message of a struct.
func (b *builder) message(name string, s *connect.Schema) (*message, error) {
	m := &message{name: name, types: map[string]*connect.Schema{}}
	for _, f := range s.Fields {
		if err := b.add(m, f.Name, f.Schema); err != nil {
			return nil, inside(f.Name, err)
		}
	}
	return m, m.distinct()
}

// add adds a field, and the message that it needs.
func (b *builder) add(m *message, name string, s *connect.Schema) error {
	if b.Scrub {
		name = scrub(name)
	}
	if err := valid("field", name, name); err != nil {
		return err
	}
	f := &field{name: name, source: s, defaults: s.Def}
	switch {
	case s.Kind == connect.KindArray:
		f.label, f.source = "repeated", s.Items
	case s.Kind == connect.KindMap:
		f.label = "repeated"
	case b.Optional && s.Optional:
		f.label = "optional"
	}
	m.fields = append(m.fields, f)
	switch s = f.source; {
	case s == nil || s.Kind == connect.KindArray:
		return connect.Unwritable("have the application write the inner array as a member of an object",
			"Protobuf has no arrays of arrays")
	case logical[s.Name].message != "":
		f.kind = logical[s.Name].message
		b.depend(logical[s.Name].file)
		f.params = decimalParameters(s)
	case s.Kind == connect.KindMap:
		return b.addMap(m, f)
	case s.Kind == connect.KindStruct:
		return b.addStruct(m, f)
	default:
		f.kind = b.scalar(s)
		if s.Kind == connect.KindInt16 {
			f.params = [][2]string{{"connect.type", "int16"}}
		}
	}
	return nil
}

// scalar is the type of what is neither a struct, a map nor an array.
func (b *builder) scalar(s *connect.Schema) string {
	if b.Wrappers && s.Optional {
		b.depend(wrapperFile)
		return wrapperPackage + wrappers[s.Kind]
	}
	return scalars[s.Kind]
}

func (b *builder) depend(file string) {
	if !slices.Contains(b.imports, file) {
		b.imports = append(b.imports, file)
	}
}

func (b *builder) addMap(m *message, f *field) (err error) {
	f.kind = b.unqualified(f.source) + "Entry"
	f.message = &message{name: f.kind, types: map[string]*connect.Schema{}}
	if err := b.add(f.message, "key", connect.RequiredString); err != nil {
		return err
	}
	if err := b.add(f.message, "value", f.source.Items); err != nil {
		return err
	}
	m.nested = append(m.nested, f.message)
	return valid("message", f.kind, f.kind)
}

// addStruct gives structs of one name in one message the same message, as ProtobufData does: the
// values of another one would not fit.
func (b *builder) addStruct(m *message, f *field) (err error) {
	f.kind = b.unqualified(f.source)
	if f.kind == f.name {
		f.kind += "Message"
	}
	if err := valid("message", f.kind, f.kind); err != nil {
		return err
	}
	if f.kind == m.name {
		return connect.Unwritable("rename the member", "its type has the name of the message around "+
			"it, %s", m.name)
	}
	if f.message, err = b.message(f.kind, f.source); err != nil {
		return err
	}
	first, known := m.types[f.kind]
	switch {
	case !known:
		m.nested, m.types[f.kind] = append(m.nested, f.message), f.source
		return nil
	case first.Kind == f.source.Kind && sameFields(first, f.source):
		return nil
	}
	return connect.Unwritable("rename one of them", "two objects of the type name %s differ", f.kind)
}

// unqualified is the name of a struct's schema without what stands before the last dot.
func (b *builder) unqualified(s *connect.Schema) string {
	name := b.nameOf(s)
	name = name[strings.LastIndexByte(name, '.')+1:]
	if b.Scrub {
		name = scrub(name)
	}
	return name
}

func (b *builder) nameOf(s *connect.Schema) string {
	if s.Name != "" {
		return s.Name
	}
	b.unnamed++
	return "ConnectDefault" + strconv.Itoa(b.unnamed)
}

var scalars = map[connect.Kind]string{
	connect.KindString: "string", connect.KindBool: "bool", connect.KindInt16: "int32",
	connect.KindInt32: "int32", connect.KindInt64: "int64", connect.KindFloat: "float",
	connect.KindDouble: "double", connect.KindBytes: "bytes",
}

// wrappers are the messages of scalars, in the package google.protobuf.
var wrappers = map[connect.Kind]string{
	connect.KindString: "StringValue", connect.KindBool: "BoolValue",
	connect.KindInt16: "Int32Value", connect.KindInt32: "Int32Value",
	connect.KindInt64: "Int64Value", connect.KindFloat: "FloatValue",
	connect.KindDouble: "DoubleValue", connect.KindBytes: "BytesValue",
}

const (
	wrapperPackage = "google.protobuf."
	wrapperFile    = "google/protobuf/wrappers.proto"
)
