package jsonschema

import (
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/router/connect"
)

func of(k connect.Kind, name string) *connect.Schema { return &connect.Schema{Kind: k, Name: name} }

func optional(s *connect.Schema) *connect.Schema {
	o := *s
	o.Optional = true
	return &o
}

var decimal = &connect.Schema{Kind: connect.KindBytes, Name: connect.DecimalName, Version: "1",
	Params: []connect.Parameter{{Key: "scale", Value: "2"}, {Key: own + ".Id", Value: "x"}}}

// Written from JsonSchemaData.rawSchemaFromConnectSchema of Confluent's schema-registry.
func TestNew_DescribesAsJsonSchemaConverter(t *testing.T) {
	item := &connect.Schema{Kind: connect.KindStruct, Name: "shop.Item", Fields: []*connect.Field{
		{Name: "sku", Schema: of(connect.KindString, "")}, {Name: "n", Schema: optional(of(connect.KindInt32, ""))}}}
	const itemText = `{"type":"object","title":"shop.Item","properties":{"sku":{"type":"string","connect.index":0},` +
		`"n":{"oneOf":[{"type":"null"},{"type":"integer","connect.type":"int32"}],"connect.index":1}}}`
	for want, s := range map[string]*connect.Schema{
		`{"type":"string"}`:                          of(connect.KindString, ""),
		`{"type":"boolean"}`:                         of(connect.KindBool, ""),
		`{"type":"integer","connect.type":"int16"}`:  of(connect.KindInt16, ""),
		`{"type":"integer","connect.type":"int64"}`:  of(connect.KindInt64, ""),
		`{"type":"number","connect.type":"float32"}`: of(connect.KindFloat, ""),
		`{"type":"number","connect.type":"float64"}`: of(connect.KindDouble, ""),
		`{"type":"string","connect.type":"bytes"}`:   of(connect.KindBytes, ""),
		`{"oneOf":[{"type":"null"},{"type":"string","title":"io.debezium.data.Json","connect.version":1}]}`: {Kind: connect.KindString,
			Optional: true, Name: "io.debezium.data.Json", Version: "1"},
		`{"type":"string","title":"` + connect.DecimalName + `","connect.type":"bytes","connect.version":1,"connect.parameters":{"scale":"2"}}`: decimal,
		`{"type":"integer","default":7,"connect.type":"int64"}`:                                                                                 {Kind: connect.KindInt64, Def: int64(7)},
		`{"type":"string","description":"a \"note\""}`:                                                                                          {Kind: connect.KindString, Doc: `a "note"`},
		`{"type":"array","items":` + itemText + `}`:                                                                                             {Kind: connect.KindArray, Items: item},
		`{"type":"object","additionalProperties":` + itemText + `,"connect.type":"map"}`:                                                        {Kind: connect.KindMap, Items: item},
		itemText: item,
		`{"oneOf":[{"type":"null"},` + itemText + `]}`: optional(item),
	} {
		got, err := New(s, Options{})
		require.NoError(t, err)
		require.Equal(t, want, got.Text())
		again, err := New(s, Options{})
		require.NoError(t, err)
		require.Equal(t, got.Text(), again.Text())
	}
	got, err := New(item, Options{})
	require.NoError(t, err)
	require.Equal(t, "shop.Item", got.Record())
	got, err = New(optional(item), Options{})
	require.NoError(t, err)
	require.Empty(t, got.Record(), "a choice has no title")

	got, err = New(decimal, Options{NumericDecimals: true})
	require.NoError(t, err)
	require.Contains(t, got.Text(), `{"type":"number",`)
	value, err := got.Append(nil, connect.Decimal{Unscaled: big.NewInt(1230), Scale: 2})
	require.NoError(t, err)
	require.Equal(t, "12.30", string(value))

	_, err = New(nil, Options{})
	var row *connect.ValueError
	require.ErrorAs(t, err, &row)
}

func TestAppend_WritesJSONWithNulls(t *testing.T) {
	s := &connect.Schema{Kind: connect.KindStruct, Fields: []*connect.Field{
		{Name: "a", Schema: optional(of(connect.KindString, ""))}, {Name: "b", Schema: of(connect.KindBytes, "")}}}
	schema, err := New(s, Options{})
	require.NoError(t, err)
	got, err := schema.Append([]byte("front"), &connect.Structure{Schema: s, Values: []any{nil, connect.Buffer{0, 255}}})
	require.NoError(t, err)
	require.Equal(t, `front{"a":null,"b":"AP8="}`, string(got))

	required, err := New(of(connect.KindInt64, ""), Options{})
	require.NoError(t, err)
	_, err = required.Append(nil, nil)
	require.Error(t, err)
}
