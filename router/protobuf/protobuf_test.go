package protobuf

import (
	"context"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/bufbuild/protocompile"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/postrider/postrider/router/connect"
)

func of(k connect.Kind, name string, params ...connect.Parameter) *connect.Schema {
	return &connect.Schema{Kind: k, Name: name, Params: params}
}

func optional(s *connect.Schema) *connect.Schema {
	o := *s
	o.Optional = true
	return &o
}

func record(name string, fields ...any) *connect.Schema {
	s := &connect.Schema{Kind: connect.KindStruct, Name: name}
	for i := 0; i < len(fields); i += 2 {
		s.Fields = append(s.Fields, &connect.Field{Name: fields[i].(string), Schema: fields[i+1].(*connect.Schema)})
	}
	return s
}

func structure(s *connect.Schema, values ...any) *connect.Structure {
	return &connect.Structure{Schema: s, Values: values}
}

var (
	text   = of(connect.KindString, "")
	long   = of(connect.KindInt64, "")
	amount = of(connect.KindBytes, connect.DecimalName, connect.Parameter{Key: "scale", Value: "2"}, connect.Parameter{Key: "connect.decimal.precision", Value: "9"})
	item   = record("shop.Item", "sku", text, "n", optional(of(connect.KindInt16, "")))
	line   = record("shop.Line", item.Fields[0].Name, text, item.Fields[1].Name, item.Fields[1].Schema)
	order  = record("shop.v1.Order", "id", long, "Item", item, "items", &connect.Schema{Kind: connect.KindArray, Items: line}, "inner", record("", "x", text),
		"tags", &connect.Schema{Kind: connect.KindMap, Items: optional(text)}, "amount", amount, "numbers", &connect.Schema{Kind: connect.KindArray, Items: long})
	logicals = record("L", "day", of(connect.KindInt32, "org.apache.kafka.connect.data.Date"), "clock", of(connect.KindInt32, "org.apache.kafka.connect.data.Time"),
		"moment", of(connect.KindInt64, "org.apache.kafka.connect.data.Timestamp"))
	scalarsOf = record("S", "s", text, "b", of(connect.KindBool, ""), "i", of(connect.KindInt32, ""), "l", long, "f", of(connect.KindFloat, ""),
		"d", of(connect.KindDouble, ""), "raw", of(connect.KindBytes, ""))
)

// Written from ProtobufData, ProtobufSchema and ProtobufSchemaUtils of Confluent's schema-registry.
func TestNew_DescribesAsProtobufConverter(t *testing.T) {
	for want, c := range map[string]struct {
		schema  *connect.Schema
		options Options
	}{
		`syntax = "proto3";
package shop.v1;

import "confluent/type/decimal.proto";

message Order {
  int64 id = 1;
  ItemMessage Item = 2;
  repeated Line items = 3;
  ConnectDefault1 inner = 4;
  repeated ConnectDefault2Entry tags = 5;
  confluent.type.Decimal amount = 6 [(confluent.field_meta) = {
    params: [
      {
        value: "9",
        key: "precision"
      },
      {
        value: "2",
        key: "scale"
      }
    ]
  }];
  repeated int64 numbers = 7;

  message ItemMessage {
    string sku = 1;
    int32 n = 2 [(confluent.field_meta) = {
      params: [
        {
          key: "connect.type",
          value: "int16"
        }
      ]
    }];
  }
  message Line {
    string sku = 1;
    int32 n = 2 [(confluent.field_meta) = {
      params: [
        {
          key: "connect.type",
          value: "int16"
        }
      ]
    }];
  }
  message ConnectDefault1 {
    string x = 1;
  }
  message ConnectDefault2Entry {
    string key = 1;
    string value = 2;
  }
}
`: {order, Options{}},
		`syntax = "proto3";

message ConnectDefault1 {
  optional string a = 1;
  int64 b = 2;
}
`: {record("", "a", optional(text), "b", long), Options{Optional: true}},
		`syntax = "proto3";

import "google/protobuf/wrappers.proto";

message ConnectDefault1 {
  google.protobuf.StringValue a = 1;
  int64 b = 2;
}
`: {record("", "a", optional(text), "b", long), Options{Wrappers: true}},
		`syntax = "proto3";
package a_b;

message x1_2Fc {
  string x_d_e = 1;
}
`: {record("a-b.1/c", "_d e", text), Options{Scrub: true}},
		`syntax = "proto3";

import "google/type/date.proto";
import "google/type/timeofday.proto";
import "google/protobuf/timestamp.proto";

message L {
  google.type.Date day = 1;
  google.type.TimeOfDay clock = 2;
  google.protobuf.Timestamp moment = 3;
}
`: {logicals, Options{}},
	} {
		got, err := New(c.schema, c.options)
		require.NoError(t, err)
		require.Equal(t, want, got.Text())
		again, err := New(c.schema, c.options)
		require.NoError(t, err)
		require.Equal(t, got.Text(), again.Text())
	}
	got, err := New(order, Options{})
	require.NoError(t, err)
	require.Equal(t, "shop.v1.Order", got.Record())
}

// withMeta imports the file of the options, as Confluent's parser does by itself.
func withMeta(text string) string {
	return strings.Replace(text, "\nmessage ", "\nimport \"confluent/meta.proto\";\nmessage ", 1)
}

// decode reads a message by the text of its schema, with Go's own library.
func decode(t *testing.T, s *Schema, b []byte) string {
	t.Helper()
	files := map[string]string{"top.proto": withMeta(s.Text())}
	compiler := protocompile.Compiler{Resolver: protocompile.WithStandardImports(protocompile.CompositeResolver{
		&protocompile.SourceResolver{Accessor: protocompile.SourceAccessorFromMap(files)}, protocompile.ResolverFunc(known)})}
	linked, err := compiler.Compile(context.Background(), "top.proto")
	require.NoError(t, err, "%s", s.Text())
	index := 0
	if b[0] != 0 {
		require.Equal(t, byte(2), b[0])
		index = int(b[1] / 2)
		b = b[1:]
	}
	m := dynamicpb.NewMessage(linked[0].Messages().Get(index))
	require.NoError(t, proto.Unmarshal(b[1:], m))
	require.Equal(t, s.Record(), string(m.Descriptor().FullName()))
	require.Empty(t, m.GetUnknown())
	out, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	require.NoError(t, err)
	again, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	require.NoError(t, err)
	require.Equal(t, again, b[1:], "another library writes the same bytes")
	return string(out)
}

func TestAppend_WritesWhatGosLibraryReads(t *testing.T) {
	nullable := record("N", "none", optional(text), "zero", optional(long), "empty", optional(text), "preset", &connect.Schema{Kind: connect.KindInt64, Def: int64(7)})
	nullables := structure(nullable, nil, int64(0), connect.Text(""), nil)
	for _, c := range []struct {
		schema  *connect.Schema
		options Options
		value   any
		want    string
	}{
		{order, Options{}, structure(order, int64(1), structure(item, connect.Text("a"), nil),
			[]any{structure(line, connect.Text("b"), int64(-2)), structure(line, connect.Text(""), int64(0))}, structure(order.Fields[3].Schema, connect.Text("é🚚")),
			connect.Map{{Key: connect.Text("k"), Value: connect.Text("v")}, {Key: connect.Text("n")}},
			connect.Decimal{Unscaled: big.NewInt(-1230), Scale: 2}, []any{int64(0), int64(-1), int64(1 << 60)}),
			`{"id":"1","Item":{"sku":"a"},"items":[{"sku":"b","n":-2},{}],"inner":{"x":"é🚚"},"tags":[{"key":"k","value":"v"},{"key":"n"}],
			"amount":{"value":"+zI=","precision":4,"scale":2},"numbers":["0","-1","1152921504606846976"]}`},
		{scalarsOf, Options{}, structure(scalarsOf, connect.Text("x"), true, int64(-1<<31), int64(-1<<63), float32(1.5), -2.25, connect.Buffer{0, 255}),
			`{"s":"x","b":true,"i":-2147483648,"l":"-9223372036854775808","f":1.5,"d":-2.25,"raw":"AP8="}`},
		{nullable, Options{}, nullables, `{"preset":"7"}`},
		{nullable, Options{Optional: true}, nullables, `{"zero":"0","empty":"","preset":"7"}`},
		{nullable, Options{Wrappers: true}, nullables, `{"zero":"0","empty":"","preset":"7"}`},
		{logicals, Options{}, structure(logicals, connect.Date{Millis: 20_468 * 86_400_000, DayOnly: true}, connect.Date{Millis: 34_200_123}, connect.Date{Millis: 1_768_469_400_123}),
			`{"day":{"year":2026,"month":1,"day":15},"clock":{"hours":9,"minutes":30,"nanos":123000000},"moment":"2026-01-15T09:30:00.123Z"}`},
		{logicals, Options{}, structure(logicals, connect.Date{Millis: -1 * 86_400_000}, connect.Date{Millis: 86_400_000}, connect.Date{Millis: -1}),
			`{"day":{"year":1969,"month":12,"day":31},"clock":{},"moment":"1969-12-31T23:59:59.999Z"}`},
		{text, Options{}, connect.Text("key"), `"key"`},
		{optional(of(connect.KindBytes, "")), Options{}, connect.Buffer{0, 255}, `"AP8="`},
		{of(connect.KindDouble, ""), Options{}, 0.5, `0.5`},
	} {
		s, err := New(c.schema, c.options)
		require.NoError(t, err)
		got, err := s.Append([]byte("front"), c.value)
		require.NoError(t, err)
		require.JSONEq(t, c.want, decode(t, s, got[len("front"):]))
	}
}

// Days of Java's GregorianCalendar around its change of calendars, and of years before Christ.
func TestAppend_WritesDatesOfJavasCalendar(t *testing.T) {
	days := func(y, m, d int) int64 { return time.Date(y, time.Month(m), d, 0, 0, 0, 0, time.UTC).UnixMilli() }
	for ms, want := range map[int64][3]int64{
		days(1582, 10, 15): {1582, 10, 15}, days(1582, 10, 14): {1582, 10, 4}, days(1500, 3, 10): {1500, 2, 29}, days(1500, 3, 11): {1500, 3, 1},
		days(1, 1, 1): {1, 1, 3}, days(0, 12, 30): {1, 1, 1}, days(0, 12, 29): {1, 12, 31}, days(-4, 2, 26): {5, 2, 28}, days(-4, 2, 27): {5, 2, 29}, days(-4, 2, 28): {5, 3, 1},
	} {
		got, err := date(ms)
		require.NoError(t, err)
		require.Equal(t, number(number(number(nil, 1, want[0]), 2, want[1]), 3, want[2]), got, "%v", want)
	}
}

func TestNew_RefusesWhatProtobufCannotBe(t *testing.T) {
	for hint, s := range map[string]*connect.Schema{
		"an empty array":       nil,
		"array as a whole":     {Kind: connect.KindArray, Items: text},
		"arrays of arrays":     record("A", "a", &connect.Schema{Kind: connect.KindArray, Items: &connect.Schema{Kind: connect.KindArray, Items: text}}),
		`field of the name`:    record("A", "a-b", text),
		`of the name "A.1"`:    record("A.1", "a", text),
		`"com.google.x.Order"`: record("com.google.x.Order", "at", logicals.Fields[2].Schema),
		"differ":               record("A", "a", record("x.B", "c", text), "b", record("y.B", "d", text)),
		"message around":       record("A", "b", record("x.A", "c", text)),
		"two members":          record("A", "b", text, "b", text),
	} {
		_, err := New(s, Options{})
		var row *connect.ValueError
		require.ErrorAs(t, err, &row, hint)
		require.ErrorContains(t, err, hint)
	}
	for text, v := range map[string]any{
		"another type": structure(scalarsOf, int64(1), nil, nil, nil, nil, nil, nil), "member i: a number out of the range": structure(scalarsOf, nil, nil, int64(1<<31), nil, nil, nil, nil),
		"than the schema's, struct": structure(item, nil, nil)} {
		s, err := New(scalarsOf, Options{})
		require.NoError(t, err)
		_, err = s.Append(nil, v)
		require.ErrorContains(t, err, text)
	}
	s, err := New(order, Options{})
	require.NoError(t, err)
	_, err = s.Append(nil, structure(order, nil, nil, []any{nil}, nil, nil, nil, nil))
	require.ErrorContains(t, err, "null in an array")
	s, err = New(logicals, Options{})
	require.NoError(t, err)
	for text, v := range map[string]*connect.Structure{
		"a time that is no google.protobuf.Timestamp": structure(logicals, nil, nil, connect.Date{Millis: 1 << 62}), "a number that is no time of day": structure(logicals, nil, connect.Date{Millis: -1}, nil),
		"with a time of day": structure(logicals, connect.Date{Millis: 1}, nil, nil)} {
		_, err = s.Append(nil, v)
		require.ErrorContains(t, err, text)
	}
}

func TestNew_GivesEqualStructsOneMessage(t *testing.T) {
	same := record("payload.b", "c", text)
	got, err := New(record("A", "a", same, "d", optional(same)), Options{})
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(got.Text(), "message b {"))
}

func TestEqual_ComparesMessages(t *testing.T) {
	s, err := New(order, Options{})
	require.NoError(t, err)
	files := map[string]string{"a.proto": `syntax = "proto3"; package a; message T { int32 x = 1; }`, "b.proto": `syntax = "proto3"; package b; message T { string x = 1; }`}
	equal := func(a, b string) {
		t.Helper()
		require.True(t, Equal(a, b, files))
		require.True(t, Equal(b, a, files))
	}
	equal(s.Text(), s.Text())
	equal(s.Text(), strings.NewReplacer("repeated Line items", "repeated .shop.v1.Order.Line items", "// x", "").Replace(s.Text()))
	const top = `syntax = "proto3"; `
	for a, b := range map[string]string{
		`import "b.proto"; import "a.proto"; message M { string b = 2; /* note */ string a = 1 [deprecated = true]; }`: `import "a.proto"; import "b.proto"; message M { string a = 1; string b = 2; }`,
		`import public "b.proto"; import "a.proto"; message M {}`:                                                      `import "a.proto"; import public "b.proto"; message M {}`,
		`enum E { Z = 0; B = 2; A = 1; N = -1; }`:                                                                      `enum E { Z = 0; A = 1; B = 2; N = -1; }`,
		`message M { reserved 5, 3 to 4; reserved "x"; }`:                                                              `message M { reserved "x"; reserved 3, 4; reserved 5; }`,
		`message M { oneof b { int32 x = 1; } oneof a { int32 y = 2; int32 z = 3; } }`:                                 `message M { oneof a { int32 y = 2; int32 z = 3; } oneof b { int32 x = 1; } }`,
		`import "a.proto"; message M { string a = 1 [(confluent.field_meta).doc = "x"]; }`:                             `import "confluent/meta.proto"; message M { string a = 1; }`,
		`import "a.proto"; message M { a.T t = 1; map<string, a.T> m = 2; }`:                                           `import "a.proto"; message M { .a.T t = 1; map<string, .a.T> m = 2; }`,
	} {
		equal(top+a, top+b)
	}
	for _, other := range []string{strings.Replace(s.Text(), "int64 id", "int32 id", 1), strings.Replace(s.Text(), "string x = 1", "string x = 2", 1),
		strings.Replace(s.Text(), "repeated Line", "Line", 1), strings.Replace(s.Text(), "package shop", "package shops", 1), "message {", ""} {
		require.False(t, Equal(s.Text(), other, nil))
	}
	for a, b := range map[string]string{
		`import "a.proto"; import "b.proto"; message M { a.T t = 1; }`:                  `import "a.proto"; import "b.proto"; message M { b.T t = 1; }`,
		`message T { int32 x = 1; } message M { message T { string x = 1; } T t = 1; }`: `message T { int32 x = 1; } message M { message T { string x = 1; } .T t = 1; }`,
		`message A {} message B {}`:                                       `message B {} message A {}`,
		`message M { oneof a { int32 x = 1; } oneof b { int32 y = 2; } }`: `message M { oneof a { int32 y = 2; } oneof b { int32 x = 1; } }`,
	} {
		require.False(t, Equal(top+a, top+b, files), a)
	}
}
