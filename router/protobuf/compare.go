package protobuf

import (
	"cmp"
	"slices"
	"strings"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/parser"
	"github.com/bufbuild/protocompile/reporter"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
)

// Equal reports whether two texts have the same messages. A registry may write fields, constants
// and oneofs in another order, types with their full names, and imports, options and reserved
// numbers in any form: they do not count. References are the texts of other files by the names
// under which both import them.
func Equal(a, b string, references map[string]string) bool {
	ours, err := resolved(a, references)
	if err != nil {
		return false
	}
	theirs, err := resolved(b, references)
	return err == nil && proto.Equal(ours, theirs)
}

// resolved reads a text, with the full names of types. It does not read options: Confluent's
// clients leave out the import of their own.
func resolved(text string, references map[string]string) (*descriptorpb.FileDescriptorProto,
	error) {
	handler := reporter.NewHandler(nil)
	tree, err := parser.Parse(path, strings.NewReader(text), handler)
	if err != nil {
		return nil, err
	}
	result, err := parser.ResultFromAST(tree, true, handler)
	if err != nil {
		return nil, err
	}
	file := result.FileDescriptorProto()
	file.Options, file.SourceCodeInfo = nil, nil
	for _, m := range file.MessageType {
		withoutOptions(m)
	}
	for _, e := range file.EnumType {
		sortConstants(e)
	}
	for _, x := range file.Extension {
		x.Options = nil
	}
	for _, s := range file.Service {
		s.Options = nil
		for _, m := range s.Method {
			m.Options = nil
		}
	}
	linked, err := compile(protocompile.SearchResult{Proto: file}, references)
	if err != nil {
		return nil, err
	}
	out := protodesc.ToFileDescriptorProto(linked)
	out.Dependency, out.PublicDependency, out.WeakDependency = nil, nil, nil
	for _, m := range out.MessageType {
		inOrder(m)
	}
	return out, nil
}

// withoutOptions leaves out what values do not depend on, in a message and those inside of it.
func withoutOptions(m *descriptorpb.DescriptorProto) {
	mapEntry := m.GetOptions().GetMapEntry() // which the parser sets
	m.Options, m.ReservedName, m.ReservedRange = nil, nil, nil
	if mapEntry {
		m.Options = &descriptorpb.MessageOptions{MapEntry: proto.Bool(true)}
	}
	for _, f := range m.Field {
		f.Options = nil
	}
	for _, o := range m.OneofDecl {
		o.Options = nil
	}
	for _, x := range m.Extension {
		x.Options = nil
	}
	for _, r := range m.ExtensionRange {
		r.Options = nil
	}
	for _, e := range m.EnumType {
		sortConstants(e)
	}
	for _, n := range m.NestedType {
		withoutOptions(n)
	}
}

// sortConstants puts the constants of an enum in the order of their numbers, with zero first, as
// proto3 requires it.
func sortConstants(e *descriptorpb.EnumDescriptorProto) {
	e.Options, e.ReservedName, e.ReservedRange = nil, nil, nil
	for _, v := range e.Value {
		v.Options = nil
	}
	slices.SortFunc(e.Value, func(a, b *descriptorpb.EnumValueDescriptorProto) int {
		switch { // a negative one comes after them
		case a.GetNumber() < 0 && b.GetNumber() >= 0:
			return 1
		case a.GetNumber() >= 0 && b.GetNumber() < 0:
			return -1
		}
		return cmp.Or(cmp.Compare(a.GetNumber(), b.GetNumber()),
			strings.Compare(a.GetName(), b.GetName()))
	})
}

// inOrder puts fields in the order of their numbers, and oneofs in that of their names. The order
// of messages counts: the framing has their places.
func inOrder(m *descriptorpb.DescriptorProto) {
	names := make([]string, len(m.OneofDecl))
	for i, o := range m.OneofDecl {
		names[i] = o.GetName()
	}
	sorted := slices.Sorted(slices.Values(names))
	for _, f := range m.Field {
		if f.OneofIndex != nil {
			at := slices.Index(sorted, names[f.GetOneofIndex()])
			f.OneofIndex = proto.Int32(int32(at)) //nolint:gosec // there are as many as fields
		}
	}
	slices.SortFunc(m.OneofDecl, func(a, b *descriptorpb.OneofDescriptorProto) int {
		return strings.Compare(a.GetName(), b.GetName())
	})
	slices.SortFunc(m.Field, func(a, b *descriptorpb.FieldDescriptorProto) int {
		return cmp.Compare(a.GetNumber(), b.GetNumber())
	})
	for _, n := range m.NestedType {
		inOrder(n)
	}
}
