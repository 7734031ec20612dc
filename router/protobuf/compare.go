package protobuf

import (
	"cmp"
	"slices"
	"strings"

	"github.com/bufbuild/protocompile/parser"
	"github.com/bufbuild/protocompile/reporter"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
)

// Equal reports whether two texts of proto3 have the same messages: a registry may write fields in
// the order of their numbers, types with their full names, and imports and options in any order.
// Options and comments do not count.
func Equal(a, b string) bool {
	ours, err := parse(a)
	if err != nil {
		return false
	}
	theirs, err := parse(b)
	return err == nil && proto.Equal(ours, theirs)
}

// parse reads a text without its imports.
func parse(text string) (*descriptorpb.FileDescriptorProto, error) {
	handler := reporter.NewHandler(nil)
	tree, err := parser.Parse("schema.proto", strings.NewReader(text), handler)
	if err != nil {
		return nil, err
	}
	result, err := parser.ResultFromAST(tree, true, handler)
	if err != nil {
		return nil, err
	}
	file := result.FileDescriptorProto()
	file.Options, file.SourceCodeInfo = nil, nil
	slices.Sort(file.Dependency)
	for _, m := range file.MessageType {
		simplify(m)
	}
	return file, nil
}

// simplify leaves of a message what its values depend on.
func simplify(m *descriptorpb.DescriptorProto) {
	m.Options = nil
	slices.SortFunc(m.Field, func(a, b *descriptorpb.FieldDescriptorProto) int {
		return cmp.Compare(a.GetNumber(), b.GetNumber())
	})
	for _, f := range m.Field {
		f.Options, f.JsonName = nil, nil
		if name := f.GetTypeName(); name != "" {
			f.TypeName = proto.String(name[strings.LastIndexByte(name, '.')+1:])
		}
	}
	for _, n := range m.NestedType {
		simplify(n)
	}
}
