package protobuf

import (
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

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
	// KeepNulls is ignore.default.for.nullables: what is null stays null, although it has a default.
	KeepNulls bool
	// NamesMessage has the name of a value's message before it, as Apicurio's serializers write it,
	// and not its place in the file.
	NamesMessage bool
}

// Schema is the file with the message of a Connect schema. It is immutable.
type Schema struct {
	options Options
	source  *connect.Schema
	top     *message
	front   []byte // which message of the file a value is
	record  string
	text    string
}

// message is a message of a struct, or the entry of a map.
type message struct {
	name   string
	fields []*field
	nested []*message
}

// field is a field of a message. Its number is its place among the fields, from one.
type field struct {
	name   string
	kind   string // as in the text
	label  string // repeated, optional or none
	params [][2]string
	source *connect.Schema // of an item, if it is an array
	// message is that of a struct or of the entry of a map; write makes that of a logical type or a
	// wrapper; wire is the type of what has neither.
	message *message
	write   func(*connect.Schema, any) ([]byte, error)
	wire    protowire.Type
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
		wrapper := scalars[s.Kind].wrapper
		index := slices.IndexFunc(wrapperMessages, func(m [2]string) bool { return m[0] == wrapper })
		out.front, out.record = o.front(wrapper, index), wrapperPackage+wrapper
		out.text = wrapperText
		return out, nil
	}
	b := builder{Options: o, structs: map[nested]*connect.Schema{}}
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
			return nil, connect.Unwritable("name it without that part", "the package of message %q has "+
				"a part %s, in which the imported files would be looked for", whole, reserved)
		}
	}
	out.front = o.front(out.top.name, 0)
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
	structs map[nested]*connect.Schema
}

// nested is a message within another one.
type nested struct {
	around *message
	name   string
}

// message makes the message of a struct.
func (b *builder) message(name string, s *connect.Schema) (*message, error) {
	m := &message{name: name}
	for _, f := range s.Fields {
		if err := b.add(m, f.Name, f.Schema); err != nil {
			return nil, connect.WithinMember(err, f.Name)
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
	f := &field{name: name, source: s}
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
	case logical[s.Name].write != nil:
		l := logical[s.Name]
		f.kind, f.write, f.params = l.message, l.write, decimalParameters(s)
		b.depend(l.file)
		return nil
	case s.Kind == connect.KindMap:
		return b.addMap(m, f)
	case s.Kind == connect.KindStruct:
		return b.addStruct(m, f)
	case b.Wrappers && s.Optional:
		f.kind, f.write = wrapperPackage+scalars[s.Kind].wrapper, wrapped
		b.depend(wrapperFile)
	default:
		f.kind, f.wire = scalars[s.Kind].name, scalars[s.Kind].wire
	}
	if s.Kind == connect.KindInt16 {
		f.params = [][2]string{{"connect.type", "int16"}}
	}
	return nil
}

func (b *builder) depend(file string) {
	if !slices.Contains(b.imports, file) {
		b.imports = append(b.imports, file)
	}
}

func (b *builder) addMap(m *message, f *field) (err error) {
	f.kind = b.unqualified(f.source) + "Entry"
	f.message = &message{name: f.kind}
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
	place := nested{m, f.kind}
	switch first := b.structs[place]; {
	case first == nil:
		m.nested, b.structs[place] = append(m.nested, f.message), f.source
		return nil
	case first.SameFields(f.source):
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

// scalar is a type of Protobuf with its wrapper, a message in the package google.protobuf.
type scalar struct {
	name, wrapper string
	wire          protowire.Type
}

var scalars = map[connect.Kind]scalar{
	connect.KindString: {"string", "StringValue", protowire.BytesType},
	connect.KindBool:   {"bool", "BoolValue", protowire.VarintType},
	connect.KindInt16:  {"int32", "Int32Value", protowire.VarintType},
	connect.KindInt32:  {"int32", "Int32Value", protowire.VarintType},
	connect.KindInt64:  {"int64", "Int64Value", protowire.VarintType},
	connect.KindFloat:  {"float", "FloatValue", protowire.Fixed32Type},
	connect.KindDouble: {"double", "DoubleValue", protowire.Fixed64Type},
	connect.KindBytes:  {"bytes", "BytesValue", protowire.BytesType},
}

const (
	wrapperPackage = "google.protobuf."
	wrapperFile    = "google/protobuf/wrappers.proto"
)
