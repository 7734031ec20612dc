package protobuf

import (
	"fmt"
	"strings"
)

// fileText is the text of a file with one message, laid out as Confluent's ProtobufSchema does:
// registries without normalization compare texts.
func fileText(pkg string, imports []string, top *message) string {
	var b strings.Builder
	b.WriteString("syntax = \"proto3\";\n")
	if pkg != "" {
		fmt.Fprintf(&b, "package %s;\n", pkg)
	}
	if len(imports) > 0 {
		b.WriteByte('\n')
	}
	for _, file := range imports {
		fmt.Fprintf(&b, "import %q;\n", file)
	}
	b.WriteByte('\n')
	top.print(&b, "")
	return b.String()
}

func (m *message) print(b *strings.Builder, indent string) {
	fmt.Fprintf(b, "%smessage %s {", indent, m.name)
	if len(m.fields) > 0 {
		b.WriteByte('\n')
	}
	for i, f := range m.fields {
		b.WriteString(indent + "  ")
		if f.label != "" {
			b.WriteString(f.label + " ")
		}
		fmt.Fprintf(b, "%s %s = %d", f.kind, f.name, i+1)
		f.printParameters(b, indent+"  ")
		b.WriteString(";\n")
	}
	if len(m.nested) > 0 {
		b.WriteByte('\n')
	}
	for _, n := range m.nested {
		n.print(b, indent+"  ")
	}
	if len(m.fields) > 0 {
		b.WriteString(indent)
	}
	b.WriteString("}\n")
}

// printParameters prints what a Connect schema says beyond the type. Those of a decimal have the
// value first.
func (f *field) printParameters(b *strings.Builder, indent string) {
	if len(f.params) == 0 {
		return
	}
	fmt.Fprintf(b, " [(confluent.field_meta) = {\n%s  params: [\n", indent)
	for i, p := range f.params {
		first, second := fmt.Sprintf("value: %q", p[1]), fmt.Sprintf("key: %q", p[0])
		if p[0] == "connect.type" {
			first, second = second, first
		}
		comma := ","
		if i == len(f.params)-1 {
			comma = ""
		}
		fmt.Fprintf(b, "%[1]s    {\n%[1]s      %[2]s,\n%[1]s      %[3]s\n%[1]s    }%[4]s\n", indent,
			first, second, comma)
	}
	fmt.Fprintf(b, "%[1]s  ]\n%[1]s}]", indent)
}

// wrapperMessages are the messages of google/protobuf/wrappers.proto in their order there, with
// the types of their only field.
var wrapperMessages = [][2]string{
	{"DoubleValue", "double"}, {"FloatValue", "float"}, {"Int64Value", "int64"},
	{"UInt64Value", "uint64"}, {"Int32Value", "int32"}, {"UInt32Value", "uint32"},
	{"BoolValue", "bool"}, {"StringValue", "string"}, {"BytesValue", "bytes"},
}

// wrapperText is the text of wrappers.proto, which is the schema of a value that is no struct.
var wrapperText = func() string {
	var b strings.Builder
	b.WriteString(`syntax = "proto3";
package google.protobuf;

option java_package = "com.google.protobuf";
option java_outer_classname = "WrappersProto";
option java_multiple_files = true;
option go_package = "google.golang.org/protobuf/types/known/wrapperspb";
option cc_enable_arenas = true;
option objc_class_prefix = "GPB";
option csharp_namespace = "Google.Protobuf.WellKnownTypes";

`)
	for _, m := range wrapperMessages {
		(&message{name: m[0], fields: []*field{{name: "value", kind: m[1]}}}).print(&b, "")
	}
	return b.String()
}()
