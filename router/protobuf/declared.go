package protobuf

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/linker"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/postrider/postrider/router/connect"
)

// Declared is a message of a schema that was given, and not made of a Connect schema. It is
// immutable.
type Declared struct {
	message protoreflect.MessageDescriptor
	types   linker.Resolver // for extensions and google.protobuf.Any
	front   []byte          // which message of the file a value is
}

// Parse reads the text of a .proto file and takes a message of it: the first one where name is
// empty, or one by its full name. References are the texts of other files by the names under which
// they are imported.
func Parse(text string, references map[string]string, name string,
	o Options) (*Declared, error) {
	file, err := compile(protocompile.SearchResult{Source: strings.NewReader(text)}, references)
	if err != nil {
		return nil, fmt.Errorf("read the Protobuf schema: %w", err)
	}
	types := linker.ResolverFromFile(file)
	if name == "" {
		if file.Messages().Len() == 0 {
			return nil, errors.New("read the Protobuf schema: it has no message")
		}
		return newDeclared(file.Messages().Get(0), types, o), nil
	}
	m, ok := file.FindDescriptorByName(protoreflect.FullName(name)).(protoreflect.MessageDescriptor)
	if !ok {
		return nil, fmt.Errorf("read the Protobuf schema: it has no message %s", name)
	}
	if m.Parent() != file && o.NamesMessage {
		return nil, fmt.Errorf("read the Protobuf schema: message %s is inside of another one, which "+
			"Apicurio's deserializers do not find", name)
	}
	return newDeclared(m, types, o), nil
}

func newDeclared(m protoreflect.MessageDescriptor, types linker.Resolver, o Options) *Declared {
	var places []int
	for d := protoreflect.Descriptor(m); d != nil; d = d.Parent() {
		if _, top := d.(protoreflect.FileDescriptor); top {
			break
		}
		places = append([]int{d.Index()}, places...)
	}
	return &Declared{m, types, o.front(string(m.Name()), places...)}
}

// Record is the full name of the message.
func (d *Declared) Record() string { return string(d.message.FullName()) }

// AppendJSON appends which message it is and the message of a document in the JSON form of
// Protocol Buffers: members have the names of the fields or their lowerCamelCase; one that the
// message does not have is an error. Fields are written in the order of their numbers. Errors are
// connect.Unwritable's; dst is then worth nothing.
func (d *Declared) AppendJSON(dst, doc []byte) ([]byte, error) {
	m := dynamicpb.NewMessage(d.message)
	if err := (protojson.UnmarshalOptions{Resolver: d.types}).Unmarshal(doc, m); err != nil {
		return dst, connect.Unwritable("have the application write what the schema describes",
			"the document is no message %s: %s", d.Record(), unfit(err))
	}
	return proto.MarshalOptions{Deterministic: true}.MarshalAppend(append(dst, d.front...), m)
}

// Append appends a value of a Connect schema in the same way, from its JSON without schemas.
func (d *Declared) Append(dst []byte, s *connect.Schema, v any) ([]byte, error) {
	values := connect.NewEncoder(connect.Converter{Format: "json"}, false)
	doc, err := values.Value(s, nil, v)
	if err != nil {
		return dst, err
	}
	return d.AppendJSON(dst, doc)
}

var unfitText = regexp.MustCompile(`\(line (\d+:\d+)\): ` +
	`(invalid value for \S+ (?:field [^\s:]+|key)|(?:unknown|duplicate) field "[^"]*"|)`)

// unfit is the text of an error of the library without values of the document, which may be
// confidential.
func unfit(err error) string {
	text := err.Error()
	switch found := unfitText.FindStringSubmatch(text); {
	case found == nil && strings.Contains(text, "required field"):
		return strings.TrimPrefix(text, "proto: ")
	case found == nil:
		return "it is no JSON of this message"
	case found[2] == "":
		return "what is at line and column " + found[1] + " does not fit"
	default:
		return found[2] + " at line and column " + found[1]
	}
}
