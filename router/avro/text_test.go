package avro

import (
	"math"
	"math/big"
	"testing"

	hamba "github.com/hamba/avro/v2"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/router/connect"
)

var usual = Options{MetaData: true}

// source is Connect's schema, beside the one of this package.
type source = connect.Schema

func of(k connect.Kind) *source { return &source{Kind: k} }

func member(name string, s *source) *connect.Field { return &connect.Field{Name: name, Schema: s} }

func record(name string, members ...*connect.Field) *source {
	return &source{Kind: connect.KindStruct, Name: name, Fields: members}
}

func named(k connect.Kind, name string, params ...connect.Parameter) *source {
	return &source{Kind: k, Name: name, Version: "1", Params: params}
}

func optional(s *source) *source {
	copied := *s
	copied.Optional = true
	return &copied
}

func withDefault(s *source, v any) *source {
	copied := *s
	copied.Def = v
	return &copied
}

func listOf(s *source) *source { return &source{Kind: connect.KindArray, Items: s} }

func mapOf(s *source) *source { return &source{Kind: connect.KindMap, Items: s} }

func decimal(scale, precision string) *source {
	params := []connect.Parameter{{Key: "scale", Value: scale}}
	if precision != "" {
		params = append(params, connect.Parameter{Key: "connect.decimal.precision", Value: precision})
	}
	return named(connect.KindBytes, connect.DecimalName, params...)
}

func must(t *testing.T, o Options, s *source) *Schema {
	t.Helper()
	made, err := New(o).Schema(s)
	require.NoError(t, err)
	return made
}

// The texts are written by hand, from what AvroData does with each schema and from the order in
// which Schema.toString of Java's Avro writes the members.
func TestSchema_IsWhatAvroConverterRegisters(t *testing.T) {
	point := record("io.debezium.data.geometry.Point", member("x", of(connect.KindDouble)))
	tree := record("shop.Node", member("id", of(connect.KindInt64)))
	tree.Fields = append(tree.Fields, member("children", listOf(tree)))
	enum := named(connect.KindString, "shop.Size", connect.Parameter{Key: "io.confluent.connect.avro.Enum", Value: "shop.Size"},
		connect.Parameter{Key: "io.confluent.connect.avro.Enum.S", Value: "S"}, connect.Parameter{Key: "io.confluent.connect.avro.Enum.L", Value: "L"})
	for _, c := range []struct {
		name    string
		options Options
		schema  *source
		want    string
	}{
		{"string", usual, of(connect.KindString), `"string"`},
		{"boolean", usual, of(connect.KindBool), `"boolean"`},
		{"int16", usual, of(connect.KindInt16), `{"type":"int","connect.type":"int16"}`},
		{"int16 without metadata", Options{}, of(connect.KindInt16), `"int"`},
		{"int32", usual, of(connect.KindInt32), `"int"`},
		{"int64", usual, of(connect.KindInt64), `"long"`},
		{"float", usual, of(connect.KindFloat), `"float"`},
		{"double", usual, of(connect.KindDouble), `"double"`},
		{"bytes", usual, of(connect.KindBytes), `"bytes"`},
		{"array", usual, listOf(optional(of(connect.KindInt32))), `{"type":"array","items":["null","int"]}`},
		{"map", usual, mapOf(of(connect.KindString)), `{"type":"map","values":"string"}`},
		{"optional", usual, optional(of(connect.KindString)), `["null","string"]`},
		{"uuid", usual, optional(named(connect.KindString, "io.debezium.data.Uuid")),
			`["null",{"type":"string","connect.version":1,"connect.name":"io.debezium.data.Uuid"}]`},
		{"a named array", usual, &source{Kind: connect.KindArray, Name: "tags", Doc: "of it", Items: of(connect.KindString)},
			`{"type":"array","items":"string","connect.doc":"of it","connect.name":"tags"}`},
		{"a parameter for avro", usual, &source{Kind: connect.KindMap, Items: of(connect.KindBool), Params: []connect.Parameter{{Key: "avro.java.string", Value: "String"}}},
			`{"type":"map","values":"boolean","connect.parameters":{"avro.java.string":"String"},"avro.java.string":"String"}`},
		{"debezium's micro timestamp", usual, named(connect.KindInt64, "io.debezium.time.MicroTimestamp"),
			`{"type":"long","connect.version":1,"connect.name":"io.debezium.time.MicroTimestamp"}`},
		{"debezium's enum", usual, named(connect.KindString, "io.debezium.data.Enum", connect.Parameter{Key: "allowed", Value: "a,b"}),
			`{"type":"string","connect.version":1,"connect.parameters":{"allowed":"a,b"},"connect.name":"io.debezium.data.Enum"}`},
		{"debezium's enum without metadata", Options{}, named(connect.KindString, "io.debezium.data.Enum"), `"string"`},
		{"connect's date", usual, named(connect.KindInt32, dateName),
			`{"type":"int","connect.version":1,"connect.name":"org.apache.kafka.connect.data.Date","logicalType":"date"}`},
		{"connect's time", usual, named(connect.KindInt32, timeName),
			`{"type":"int","connect.version":1,"connect.name":"org.apache.kafka.connect.data.Time","logicalType":"time-millis"}`},
		{"connect's timestamp", Options{}, named(connect.KindInt64, timestampName), `{"type":"long","logicalType":"timestamp-millis"}`},
		{"decimal", usual, decimal("2", "10"),
			`{"type":"bytes","scale":2,"precision":10,"connect.version":1,"connect.parameters":{"scale":"2","connect.decimal.precision":"10"},` +
				`"connect.name":"org.apache.kafka.connect.data.Decimal","logicalType":"decimal"}`},
		{"decimal without a precision or metadata", Options{}, decimal("2", ""),
			`{"type":"bytes","scale":2,"precision":64,"logicalType":"decimal"}`},
		{"default", usual, withDefault(of(connect.KindInt32), int64(7)), `{"type":"int","connect.default":7}`},
		{"struct without a name", usual, record("", member("a", of(connect.KindInt32)), member("b", optional(of(connect.KindString)))),
			`{"type":"record","name":"ConnectDefault","namespace":"io.confluent.connect.avro","fields":[` +
				`{"name":"a","type":"int"},{"name":"b","type":["null","string"],"default":null}]}`},
		{"structs without names", usual, record("", member("a", record("", member("x", of(connect.KindInt32)))),
			member("b", optional(record("", member("y", of(connect.KindInt32))))), member("c", record("", member("x", of(connect.KindInt32)))), member("d", optional(record("", member("x", of(connect.KindInt32)))))),
			`{"type":"record","name":"ConnectDefault","namespace":"io.confluent.connect.avro","fields":[` +
				`{"name":"a","type":{"type":"record","name":"ConnectDefault2","fields":[{"name":"x","type":"int"}]}},` +
				`{"name":"b","type":["null",{"type":"record","name":"ConnectDefault3","fields":[{"name":"y","type":"int"}]}],"default":null},` +
				`{"name":"c","type":"ConnectDefault2"},{"name":"d","type":["null","ConnectDefault2"],"default":null}]}`},
		{"optional struct at the top", usual, optional(record("payload", member("id", optional(of(connect.KindInt32))))),
			`["null",{"type":"record","name":"payload","fields":[{"name":"id","type":["null","int"],"default":null}],"connect.name":"payload"}]`},
		{"debezium's envelope with a topic of hyphens", usual,
			&source{Kind: connect.KindStruct, Name: "my-shop.public.outbox.order.Value", Version: "3", Fields: []*connect.Field{
				member("payload", optional(record("payload", member("lines", optional(listOf(record("payload.lines", member("sku", of(connect.KindString))))))))),
				member("eventType", of(connect.KindString))}},
			`{"type":"record","name":"Value","namespace":"my-shop.public.outbox.order","fields":[` +
				`{"name":"payload","type":["null",{"type":"record","name":"payload","namespace":"","fields":[` +
				`{"name":"lines","type":["null",{"type":"array","items":{"type":"record","name":"lines","namespace":"payload","fields":[` +
				`{"name":"sku","type":"string"}],"connect.name":"payload.lines"}}],"default":null}],"connect.name":"payload"}],"default":null},` +
				`{"name":"eventType","type":"string"}],"connect.version":3,"connect.name":"my-shop.public.outbox.order.Value"}`},
		{"the same with scrubbed names", Options{Scrub: true}, record("my-shop.größe.1st", member("a b", of(connect.KindInt32)), member("ä", of(connect.KindInt32))),
			`{"type":"record","name":"x1st","namespace":"my_shop.gr_C3_B6_C3_9Fe","fields":[{"name":"a_b","type":"int"},{"name":"_C3_A4","type":"int"}]}`},
		{"letters of any script", Options{}, record("größe", member("ä٣", of(connect.KindInt32))),
			`{"type":"record","name":"größe","fields":[{"name":"ä٣","type":"int"}]}`},
		{"a struct twice", Options{}, record("a.Shape", member("from", point), member("to", optional(point)), member("others", listOf(optional(point)))),
			`{"type":"record","name":"Shape","namespace":"a","fields":[` +
				`{"name":"from","type":{"type":"record","name":"Point","namespace":"io.debezium.data.geometry","fields":[{"name":"x","type":"double"}]}},` +
				`{"name":"to","type":["null","io.debezium.data.geometry.Point"],"default":null},` +
				`{"name":"others","type":{"type":"array","items":["null","io.debezium.data.geometry.Point"]}}]}`},
		{"a struct that contains itself", Options{}, tree,
			`{"type":"record","name":"Node","namespace":"shop","fields":[{"name":"id","type":"long"},{"name":"children","type":{"type":"array","items":"Node"}}]}`},
		{"a struct with the name of a type", Options{}, record("a.B", member("s", record("a.string")), member("l", listOf(record("a.string")))),
			`{"type":"record","name":"B","namespace":"a","fields":[{"name":"s","type":{"type":"record","name":"string","fields":[]}},` +
				`{"name":"l","type":{"type":"array","items":"a.string"}}]}`},
		{"dots at the end", Options{}, record("shop.order."), `{"type":"record","name":"order","namespace":"shop","fields":[]}`},
		{"signs that URLs have", Options{Scrub: true}, record("r", member("a*b c.d~%", of(connect.KindInt32))),
			`{"type":"record","name":"r","fields":[{"name":"a_b_c_d_7E_25","type":"int"}]}`},
		{"an enum without a name beside structs without one", Options{Enhanced: true},
			record("", member("e", &source{Kind: connect.KindString, Params: enum.Params}), member("s", record(""))),
			`{"type":"record","name":"ConnectDefault","namespace":"io.confluent.connect.avro","fields":[` +
				`{"name":"e","type":{"type":"enum","name":"Size","namespace":"shop","symbols":["S","L"]}},` +
				`{"name":"s","type":{"type":"record","name":"ConnectDefault3","fields":[]}}]}`},
		{"defaults of members", usual, record("d",
			member("i", withDefault(of(connect.KindInt32), int64(-1))),
			member("o", optional(withDefault(of(connect.KindString), connect.Text("x\"y")))),
			member("s", withDefault(of(connect.KindString), connect.Text("a\n😀\tä😀"))),
			member("f", withDefault(of(connect.KindFloat), float32(0.1))),
			member("d", withDefault(of(connect.KindDouble), 1e21)),
			member("nan", withDefault(of(connect.KindDouble), math.NaN())),
			member("b", withDefault(of(connect.KindBytes), connect.Buffer{0, 'A', 0xFF})),
			member("m", withDefault(decimal("1", ""), connect.Decimal{Unscaled: big.NewInt(-15), Scale: 1})),
			member("t", withDefault(named(connect.KindInt32, dateName), connect.Date{Millis: 2 * connect.MillisPerDay, DayOnly: true})),
			member("l", withDefault(listOf(of(connect.KindInt32)), []any{int64(1), int64(2)})),
			member("n", withDefault(listOf(optional(of(connect.KindInt32))), []any{int64(1)})),
			member("u", withDefault(mapOf(optional(of(connect.KindBool))), connect.Map{{Key: connect.Text("k"), Value: true}})),
			member("h", withDefault(mapOf(of(connect.KindBool)), connect.Map{{Key: connect.Text("k"), Value: true}}))),
			`{"type":"record","name":"d","fields":[` +
				`{"name":"i","type":{"type":"int","connect.default":-1},"default":-1},` +
				`{"name":"o","type":[{"type":"string","connect.default":"x\"y"},"null"],"default":"x\"y"},` +
				`{"name":"s","type":{"type":"string","connect.default":"a\n😀\tä😀"},"default":"a\n😀\tä😀"},` +
				`{"name":"f","type":{"type":"float","connect.default":0.1},"default":0.10000000149011612},` +
				`{"name":"d","type":{"type":"double","connect.default":1.0E21},"default":1.0E21},` +
				`{"name":"nan","type":{"type":"double","connect.default":"NaN"}},` +
				`{"name":"b","type":{"type":"bytes","connect.default":"\u0000Aÿ"},"default":"\u0000Aÿ"},` +
				`{"name":"m","type":{"type":"bytes","scale":1,"precision":64,"connect.version":1,"connect.parameters":{"scale":"1"},"connect.default":"ñ",` +
				`"connect.name":"org.apache.kafka.connect.data.Decimal","logicalType":"decimal"},"default":"ñ"},` +
				`{"name":"t","type":{"type":"int","connect.version":1,"connect.default":2,"connect.name":"org.apache.kafka.connect.data.Date","logicalType":"date"},"default":2},` +
				`{"name":"l","type":{"type":"array","items":"int","connect.default":[1,2]},"default":[1,2]},` +
				`{"name":"n","type":{"type":"array","items":["null","int"],"connect.default":[1]}},` +
				`{"name":"u","type":{"type":"map","values":["null","boolean"],"connect.default":{"k":true}}},` +
				`{"name":"h","type":{"type":"map","values":"boolean","connect.default":{"k":true}},"default":{"k":true}}],"connect.name":"d"}`},
		{"an enum that is a text", Options{}, enum, `"string"`},
		{"an enum", Options{Enhanced: true}, record("shop.Shirt", member("size", enum), member("next", optional(enum))),
			`{"type":"record","name":"Shirt","namespace":"shop","fields":[{"name":"size","type":{"type":"enum","name":"Size","symbols":["S","L"]}},` +
				`{"name":"next","type":["null","Size"],"default":null}]}`},
		{"no schema", usual, nil,
			`{"type":"record","name":"Anything","namespace":"io.confluent.connect.avro","fields":[` +
				`{"name":"boolean","type":["null","boolean"],"default":null},{"name":"bytes","type":["null","bytes"],"default":null},` +
				`{"name":"double","type":["null","double"],"default":null},{"name":"float","type":["null","float"],"default":null},` +
				`{"name":"int","type":["null","int"],"default":null},{"name":"long","type":["null","long"],"default":null},` +
				`{"name":"string","type":["null","string"],"default":null},` +
				`{"name":"array","type":["null",{"type":"array","items":"Anything"}],"default":null},` +
				`{"name":"map","type":["null",{"type":"array","items":{"type":"record","name":"MapEntry","fields":[` +
				`{"name":"key","type":"Anything"},{"name":"value","type":"Anything"}]}}],"default":null}]}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, must(t, c.options, c.schema).Text())
		})
	}
}

func TestSchema_IsTheSameForEqualSchemas(t *testing.T) {
	make := func() *source {
		return record("a.B", member("x", optional(decimal("1", "3"))), member("y", withDefault(of(connect.KindString), connect.Text("d"))))
	}
	c := New(usual)
	first, err := c.Schema(make())
	require.NoError(t, err)
	second, err := c.Schema(make())
	require.NoError(t, err)
	require.Equal(t, first.Text(), second.Text())
}

func TestSchema_NamesTheRecordAtTheTop(t *testing.T) {
	for want, s := range map[string]*source{
		"shop.public.outbox.Key":                   record("shop.public.outbox.Key", member("id", record("other"))),
		"io.confluent.connect.avro.ConnectDefault": record(""),
		"io.confluent.connect.avro.Anything":       nil,
	} {
		require.Equal(t, want, must(t, usual, s).Record())
	}
	for _, s := range []*source{of(connect.KindString), optional(record("a.B")), listOf(record("a.B")), mapOf(record("a.B"))} {
		require.Empty(t, must(t, usual, s).Record())
	}
}

func TestSchema_RefusesWhatAvroCannotName(t *testing.T) {
	unnamed := record("")
	unnamed.Fields = []*connect.Field{member("children", listOf(unnamed))}
	for want, s := range map[string]*source{
		`member a: Avro takes no member of the name "b-c"`:                      record("x", member("a", record("y", member("b-c", of(connect.KindInt32))))),
		`Avro takes no member of the name "1st"`:                                record("x", member("1st", of(connect.KindInt32))),
		`Avro takes no member of the name "𝔸"`:                                  record("x", member("𝔸", of(connect.KindInt32))),
		`Avro takes no schema of the name "shop.order-created"`:                 record("shop.order-created"),
		`Avro takes no schema of the name "."`:                                  record("."),
		"member b: two different structs have the name y":                       record("x", member("a", record("y")), member("b", optional(record("y", member("c", of(connect.KindInt32)))))),
		"member children: a struct without a name that contains itself":         unnamed,
		`member a: Avro takes no schema of the name "-"`:                        record("x", member("a", listOf(record("-")))),
		"member a: Avro takes no member of the name \"\"":                       record("x", member("a", record("y", member("", of(connect.KindInt32))))),
		"member a: two different structs have the name shop.x, which Avro take": record("shop.x", member("a", record("shop.x", member("b", of(connect.KindBool))))),
	} {
		_, err := New(usual).Schema(s)
		require.ErrorContains(t, err, want)
		var value *connect.ValueError
		require.ErrorAs(t, err, &value)
	}
	_, err := New(usual).Schema(record("x", member("a-b", of(connect.KindInt32))))
	var value *connect.ValueError
	require.ErrorAs(t, err, &value)
	require.Contains(t, value.Hint, "scrub.invalid.names")
	_, err = New(Options{Enhanced: true}).Schema(named(connect.KindString, "e", connect.Parameter{Key: enumParameter, Value: "e"}, connect.Parameter{Key: enumParameter + ".a-b", Value: "x"}))
	require.ErrorContains(t, err, `Avro takes no symbol of the name "a-b"`)
	enumOf := func(symbol string) *source {
		return named(connect.KindString, "e", connect.Parameter{Key: enumParameter, Value: "shop.Size"}, connect.Parameter{Key: enumParameter + "." + symbol, Value: symbol})
	}
	_, err = New(Options{Enhanced: true}).Schema(record("x", member("a", enumOf("S")), member("b", enumOf("L"))))
	require.ErrorContains(t, err, "member b: two different enums have the name shop.Size")
	_, err = New(Options{Scrub: true}).Schema(record("x", member("a-b", of(connect.KindInt32)), member("a_b", of(connect.KindInt32))))
	require.ErrorContains(t, err, "two members have the name a_b")
}

// What Debezium's adjustment of member names leaves is a name to Avro.
func TestSchema_TakesAdjustedNames(t *testing.T) {
	for mode, want := range map[string]string{"avro": "order_no", "avro_unicode": "order_u002dno"} {
		x := (&connect.Expander{Adjustment: mode, Named: true}).Expand(connect.Text(`{"order-no":7}`))
		require.True(t, x.Done)
		parsed, err := hamba.ParseWithCache(must(t, usual, x.Schema).Text(), "", &hamba.SchemaCache{})
		require.NoError(t, err)
		require.Equal(t, want, parsed.(*hamba.UnionSchema).Types()[1].(*hamba.RecordSchema).Fields()[0].Name())
	}
}
