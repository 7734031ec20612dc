package avro

import (
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/router/connect"
)

const order = `{"type":"record","name":"Order","namespace":"shop","fields":[
	{"name":"id","type":"long"},
	{"name":"note","type":["null","string"],"default":null},
	{"name":"paid","type":"boolean","default":false}]}`

func parsed(t *testing.T, text string, references ...string) *Declared {
	t.Helper()
	d, err := Parse(text, references...)
	require.NoError(t, err)
	return d
}

func TestDeclared_AppendJSONWritesAvroBinary(t *testing.T) {
	logical := func(kind, name string) string {
		return `{"type":"` + kind + `","logicalType":"` + name + `"}`
	}
	const dec = `{"type":"bytes","logicalType":"decimal","precision":5,"scale":2}`
	for _, c := range []struct{ name, schema, doc, want string }{
		{"record", order, ` {"note":"x","paid":true,"id":1} `, "\x02\x02\x02x\x01"},
		{"defaults", order, `{"id":1}`, "\x02\x00\x00"},
		{"null", order, `{"id":1,"note":null}`, "\x02\x00\x00"},
		{"the last of two members", order, `{"id":1,"id":2}`, "\x04\x00\x00"},
		{"null at the top", `["null","int"]`, `null`, "\x00"},
		{"int", `"int"`, `-1`, "\x01"},
		{"a whole number with a fraction", `"int"`, `2.0`, "\x04"},
		{"a whole number with an exponent", `"long"`, `1e3`, "\xd0\x0f"},
		{"long", `"long"`, `9223372036854775807`, "\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"},
		{"float", `"float"`, `0.1`, "\xcd\xcc\xcc\x3d"},
		{"double", `"double"`, `-2`, "\x00\x00\x00\x00\x00\x00\x00\xc0"},
		{"a text that is no number", `"double"`, `"NaN"`, "\x00\x00\x00\x00\x00\x00\xf8\x7f"},
		{"a text that is infinite", `"float"`, `"-Infinity"`, "\x00\x00\x80\xff"},
		{"string", `"string"`, `"\u00e4\ud800"`, "\x06ä?"},
		{"bytes at the top", `"bytes"`, `"AQI="`, "\x01\x02"},
		{"bytes", `{"type":"array","items":"bytes"}`, `["AQI="]`, "\x02\x04\x01\x02\x00"},
		{"fixed", `{"type":"fixed","name":"f","size":2}`, `"AQI="`, "\x01\x02"},
		{"enum", `{"type":"enum","name":"e","symbols":["A","B"]}`, `"B"`, "\x02"},
		{"array", `{"type":"array","items":["null","int"]}`, `[1,null]`, "\x04\x02\x02\x00\x00"},
		{"empty array", `{"type":"array","items":"int"}`, `[]`, "\x00"},
		{"map", `{"type":"map","values":"int"}`, `{"b":1,"a":2}`, "\x04\x02b\x02\x02a\x04\x00"},
		{"the first type of a union that fits", `["null","int","long","double","string"]`, `5000000000`, "\x04\x80\xc8\xaf\xa0\x25"},
		{"the record of a union", `[{"type":"record","name":"a","fields":[{"name":"x","type":"int"}]},{"type":"record","name":"b","fields":[{"name":"y","type":"int"}]}]`, `{"y":1}`, "\x02\x02"},
		{"a record that contains itself", `{"type":"record","name":"n","fields":[{"name":"next","type":["null","n"],"default":null}]}`, `{"next":{"next":{}}}`, "\x02\x02\x00"},
		{"date", logical("int", "date"), `"1969-12-31"`, "\x01"},
		{"days", logical("int", "date"), `-1`, "\x01"},
		{"time of day", logical("int", "time-millis"), `"00:00:00.0019"`, "\x02"},
		{"time of day in micros", logical("long", "time-micros"), `"00:00:00.000001"`, "\x02"},
		{"timestamp", logical("long", "timestamp-millis"), `"1970-01-01T01:00:00.001+01:00"`, "\x02"},
		{"timestamp before 1970", logical("long", "timestamp-millis"), `"1969-12-31T23:59:59.9999Z"`, "\x01"},
		{"timestamp in micros", logical("long", "timestamp-micros"), `"1970-01-01T00:00:00.000001Z"`, "\x02"},
		{"local timestamp", logical("long", "local-timestamp-millis"), `"1970-01-01T00:00:00.001"`, "\x02"},
		{"millis", logical("long", "timestamp-millis"), `1`, "\x02"},
		{"decimal at the top", dec, `-2.56`, "\xff\x00"},
		{"decimal", "[" + dec + "]", `-2.56`, "\x00\x04\xff\x00"},
		{"decimal with fewer digits", "[" + dec + "]", `"1"`, "\x00\x02\x64"},
		{"decimal with zeros", "[" + dec + "]", `1.000e0`, "\x00\x02\x64"},
		{"decimal with an exponent", "[" + dec + "]", `1E2`, "\x00\x04\x27\x10"},
		{"fixed decimal", `{"type":"fixed","name":"f","size":3,"logicalType":"decimal","precision":5,"scale":2}`, `-2.56`, "\xff\xff\x00"},
		{"timestamp in nanos", logical("long", "timestamp-nanos"), `"1970-01-01T00:00:00.000000001Z"`, "\x02"},
		{"uuid", logical("string", "uuid"), `"b"`, "\x02b"},
		{"decimal without a scale", `[{"type":"bytes","logicalType":"decimal","precision":5}]`, `1`, "\x00\x02\x01"},
		{"decimal without digits, which is none", `[{"type":"bytes","logicalType":"decimal","precision":0}]`, `"AQ=="`, "\x00\x02\x01"},
		{"decimal of a scale beyond its digits, which is none", `[{"type":"bytes","logicalType":"decimal","precision":1,"scale":2}]`, `"AQ=="`, "\x00\x02\x01"},
		{"date of the wrong type, which is none", logical("string", "date"), `"b"`, "\x02b"},
		{"number of the wrong type for a date, which is a number", `[` + logical("long", "date") + `,"string"]`, `"1970-01-01"`, "\x02\x141970-01-01"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := parsed(t, c.schema).AppendJSON([]byte("before"), []byte(c.doc))
			require.NoError(t, err)
			require.Equal(t, "before"+c.want, string(got))
		})
	}
}

func TestDeclared_AppendJSONRefusesWhatTheSchemaDoesNotTake(t *testing.T) {
	const secret = "s3cret"
	const dec = `{"type":"bytes","logicalType":"decimal","precision":3,"scale":1}`
	for _, c := range []struct{ name, schema, doc, want string }{
		{"no JSON", order, `{"id":1`, "no valid JSON at byte 7"},
		{"nothing", order, ``, "no valid JSON at byte 0"},
		{"two documents", order, `{"id":1} {}`, "something follows the document"},
		{"no UTF-8", `"string"`, "\"\xff\"", "no valid UTF-8"},
		{"unknown member", order, `{"id":1,"nope":"s3cret"}`, `member "nope" is not in the schema of record shop.Order`},
		{"missing member", order, `{"note":"x"}`, "member id of record shop.Order is missing, and has no default"},
		{"null", order, `{"id":null}`, "member id: null where the schema has long"},
		{"another type", order, `{"id":"s3cret"}`, "member id: a text where the schema has long"},
		{"in a union", order, `{"id":1,"note":2}`, "member note: a number where the schema has string"},
		{"no object", order, `[]`, "an array where the schema has record shop.Order"},
		{"number as text", `"string"`, `1`, "a number where the schema has string"},
		{"text as boolean", `"boolean"`, `"true"`, "a text where the schema has boolean"},
		{"fraction", `"int"`, `1.5`, "a number where the schema has int"},
		{"int", `"int"`, `2147483648`, "out of the range of int"},
		{"long", `"long"`, `9223372036854775808`, "a number where the schema has long"},
		{"an exponent beyond what is exact", `"long"`, `1e18`, "a number where the schema has long"},
		{"float", `"float"`, `1e39`, "out of the range of float"},
		{"text as float", `"float"`, `"1"`, "a text where the schema has float"},
		{"no Base64", `"bytes"`, `"s3cret!"`, "a text that is no Base64, where the schema has bytes"},
		{"Base64 with a rest", `"bytes"`, `"AQJ="`, "a text that is no Base64"},
		{"nanos before 1678", `{"type":"long","logicalType":"timestamp-nanos"}`, `"1600-01-01T00:00:00Z"`, "a text where the schema has long (timestamp-nanos)"},
		{"decimal with a plus", dec, `"+1"`, "a text where the schema has bytes (decimal)"},
		{"fixed", `{"type":"fixed","name":"f","size":3}`, `"AQI="`, "2 bytes where the schema has fixed f of 3"},
		{"symbol", `{"type":"enum","name":"e","symbols":["A"]}`, `"s3cret"`, "no symbol of enum e"},
		{"item", `{"type":"array","items":"int"}`, `[1,true]`, "member 1: a boolean where the schema has int"},
		{"entry", `{"type":"map","values":"int"}`, `{"k":{}}`, "member k: an object where the schema has int"},
		{"union", `["int","string"]`, `true`, "no type of [int string] fits: the first one has a boolean where"},
		{"null in a union without null", `["int","string"]`, `null`, "null where the schema has [int string]"},
		{"date", `{"type":"int","logicalType":"date"}`, `"s3cret"`, "a text where the schema has int (date)"},
		{"timestamp without a zone", `{"type":"long","logicalType":"timestamp-millis"}`, `"1970-01-01T00:00:00"`, "a text where the schema has long (timestamp-millis)"},
		{"decimal", dec, `"s3cret"`, "a text where the schema has bytes (decimal)"},
		{"decimal's fraction", dec, `1.25`, "does not fit in 3 digits with 1 of them behind the point"},
		{"decimal's digits", dec, `100`, "does not fit in 3 digits"},
		{"decimal's exponent", dec, `1e1000000000`, "a number where the schema has bytes (decimal)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := parsed(t, c.schema).AppendJSON(nil, []byte(c.doc))
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), secret)
			var value *connect.ValueError
			require.ErrorAs(t, err, &value)
		})
	}
}

// An error that is deep inside does not grow with the document.
func TestDeclared_AppendJSONKeepsErrorsShort(t *testing.T) {
	d := parsed(t, `{"type":"record","name":"a","fields":[{"name":"x","type":["null","a","int"]}]}`)
	_, err := d.AppendJSON(nil, []byte(strings.Repeat(`{"x":`, 900)+"true"+strings.Repeat("}", 900)))
	require.ErrorContains(t, err, "a boolean where the schema has record a")
	require.Less(t, len(err.Error()), 1000)
}

// A document that fits no way through unions of records that contain one another does not cost as
// much as there are ways.
func TestDeclared_AppendJSONEndsWhereManyWaysLeadNowhere(t *testing.T) {
	d := parsed(t, `{"type":"record","name":"a","fields":[{"name":"x","type":["null","a",{"type":"record","name":"b","fields":[{"name":"x","type":["null","a","b"]}]}]}]}`)
	doc := strings.Repeat(`{"x":`, 200) + "1" + strings.Repeat("}", 200)
	_, err := d.AppendJSON(nil, []byte(doc))
	require.ErrorContains(t, err, "too many ways")
}

func TestDeclared_AppendWritesConnectValuesByName(t *testing.T) {
	logical := func(kind, name string) string {
		return `{"type":"` + kind + `","logicalType":"` + name + `"}`
	}
	const dec = `["null",{"type":"bytes","logicalType":"decimal","precision":5,"scale":2}]`
	source := record("other.Name", member("paid", of(connect.KindBool)), member("id", of(connect.KindInt32)),
		member("note", optional(withDefault(of(connect.KindString), connect.Text("d")))))
	value := func(v ...any) *connect.Structure { return &connect.Structure{Schema: source, Values: v} }
	micros := named(connect.KindInt64, "io.debezium.time.MicroTimestamp")
	variable := record("io.debezium.data.VariableScaleDecimal", member("scale", of(connect.KindInt32)), member("value", of(connect.KindBytes)))
	for _, c := range []struct {
		name   string
		schema string
		source *connect.Schema
		value  any
		want   string
	}{
		{"struct", order, source, value(true, int64(1), connect.Text("x")), "\x02\x02\x02x\x01"},
		{"default in the place of null", order, source, value(true, int64(1), nil), "\x02\x02\x02d\x01"},
		{"declared default where null is not taken", order, source, value(nil, int64(1), connect.Text("x")), "\x02\x02\x02x\x00"},
		{"struct by its name", `["null",{"type":"record","name":"a.B","fields":[{"name":"x","type":"int"}]},{"type":"record","name":"a.C","fields":[{"name":"x","type":"int"}]}]`,
			record("a.C", member("x", of(connect.KindInt32))), &connect.Structure{Schema: record("a.C", member("x", of(connect.KindInt32))), Values: []any{int64(1)}}, "\x04\x02"},
		{"integer as a double", `"double"`, of(connect.KindInt64), int64(-2), "\x00\x00\x00\x00\x00\x00\x00\xc0"},
		{"float", `"float"`, of(connect.KindFloat), float32(1), "\x00\x00\x80\x3f"},
		{"float as a double", `"double"`, of(connect.KindFloat), float32(-2), "\x00\x00\x00\x00\x00\x00\x00\xc0"},
		{"null where null is taken behind a default", `{"type":"record","name":"r","fields":[{"name":"x","type":["int","null"],"default":1}]}`,
			record("r", member("x", optional(of(connect.KindInt32)))), &connect.Structure{Schema: record("r", member("x", optional(of(connect.KindInt32)))), Values: []any{nil}}, "\x02"},
		{"map of times as a record", `{"type":"record","name":"r","fields":[{"name":"k","type":` + logical("long", "timestamp-micros") + `}]}`,
			mapOf(named(connect.KindInt64, "io.debezium.time.Timestamp")), connect.Map{{Key: connect.Text("k"), Value: int64(1)}}, "\xd0\x0f"},
		{"double that is no number as a float", `"float"`, of(connect.KindDouble), math.NaN(), "\x00\x00\xc0\x7f"},
		{"double as a float that holds it", `"float"`, of(connect.KindDouble), 1.0, "\x00\x00\x80\x3f"},
		{"bytes at the top", `"bytes"`, of(connect.KindBytes), connect.Buffer{1}, "\x01"},
		{"bytes", `["bytes"]`, of(connect.KindBytes), connect.ByteArray{1}, "\x00\x02\x01"},
		{"decimal", dec, decimal("2", ""), connect.Decimal{Unscaled: big.NewInt(100), Scale: 2}, "\x02\x02\x64"},
		{"decimal of another scale", dec, decimal("3", ""), connect.Decimal{Unscaled: big.NewInt(1000), Scale: 3}, "\x02\x02\x64"},
		{"decimal as text", dec, of(connect.KindString), connect.Text("1.00"), "\x02\x02\x64"},
		{"integer as a decimal", dec, of(connect.KindInt32), int64(1), "\x02\x02\x64"},
		{"decimal of any scale", dec, variable, &connect.Structure{Schema: variable, Values: []any{int64(1), connect.ByteArray{0xF6}}}, "\x02\x02\x9c"},
		{"micros cut to millis", logical("long", "timestamp-millis"), micros, int64(-1), "\x01"},
		{"micros", logical("long", "timestamp-micros"), micros, int64(1), "\x02"},
		{"micros without a logical type", `"long"`, micros, int64(1), "\x02"},
		{"millis as micros", logical("long", "timestamp-micros"), named(connect.KindInt64, "io.debezium.time.Timestamp"), int64(1), "\xd0\x0f"},
		{"days as millis", logical("long", "timestamp-millis"), named(connect.KindInt32, "io.debezium.time.Date"), int64(1), "\x80\xf0\xb2\x52"},
		{"connect's date", logical("int", "date"), named(connect.KindInt32, dateName), connect.Date{Millis: connect.MillisPerDay, DayOnly: true}, "\x02"},
		{"connect's date as a number", `"int"`, named(connect.KindInt32, dateName), connect.Date{Millis: connect.MillisPerDay, DayOnly: true}, "\x02"},
		{"connect's time in micros", logical("long", "time-micros"), named(connect.KindInt32, timeName), connect.Date{Millis: 1}, "\xd0\x0f"},
		{"nanos as a time of day", logical("int", "time-millis"), named(connect.KindInt64, "io.debezium.time.NanoTime"), int64(1_999_999), "\x02"},
		{"a zoned timestamp", logical("long", "timestamp-micros"), named(connect.KindString, "io.debezium.time.ZonedTimestamp"), connect.Text("1970-01-01T00:00:00.000001Z"), "\x02"},
		{"an ISO date", logical("int", "date"), named(connect.KindString, "io.debezium.time.IsoDate"), connect.Text("1970-01-02Z"), "\x02"},
		{"a number without a unit", logical("long", "timestamp-millis"), of(connect.KindInt64), int64(1), "\x02"},
		{"map as a record", `{"type":"record","name":"r","fields":[{"name":"k","type":"long"}]}`, mapOf(of(connect.KindInt64)), connect.Map{{Key: connect.Text("k"), Value: int64(1)}}, "\x02"},
		{"map without a schema", `{"type":"record","name":"r","fields":[{"name":"k","type":"long"}]}`, nil, connect.Map{{Key: connect.Text("k"), Value: int64(1)}}, "\x02"},
		{"map", `{"type":"map","values":` + logical("long", "timestamp-micros") + `}`, mapOf(named(connect.KindInt64, "io.debezium.time.Timestamp")),
			connect.Map{{Key: connect.Text("k"), Value: int64(1)}}, "\x02\x02k\xd0\x0f\x00"},
		{"array", `{"type":"array","items":` + logical("long", "timestamp-micros") + `}`, listOf(named(connect.KindInt64, "io.debezium.time.Timestamp")),
			[]any{int64(1)}, "\x02\xd0\x0f\x00"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := parsed(t, c.schema).Append([]byte("before"), c.source, c.value)
			require.NoError(t, err)
			require.Equal(t, "before"+c.want, string(got))
		})
	}
}

func TestDeclared_AppendKeepsNullsAndFindsScrubbedNames(t *testing.T) {
	s := record("", member("a-b", optional(withDefault(of(connect.KindString), connect.Text("d")))))
	d := parsed(t, `{"type":"record","name":"r","fields":[{"name":"a_b","type":["null","string"]}]}`)
	v := &connect.Structure{Schema: s, Values: []any{nil}}
	_, err := d.Append(nil, s, v)
	require.ErrorContains(t, err, `member "a-b" is not in the schema`)
	d.Options = Options{Scrub: true, KeepNulls: true}
	got, err := d.Append(nil, s, v)
	require.NoError(t, err)
	require.Equal(t, "\x00", string(got))
}

func TestDeclared_AppendRefusesWhatTheSchemaDoesNotTake(t *testing.T) {
	for _, c := range []struct {
		name   string
		schema string
		source *connect.Schema
		value  any
		want   string
	}{
		{"text as bytes", `"bytes"`, of(connect.KindString), connect.Text("AQI="), "a text where the schema has bytes"},
		{"decimal as bytes", `"bytes"`, decimal("1", ""), connect.Decimal{Unscaled: big.NewInt(1)}, "a decimal where the schema has bytes"},
		{"time of day as a timestamp", `{"type":"long","logicalType":"timestamp-micros"}`, named(connect.KindInt64, "io.debezium.time.MicroTime"), int64(1), "a number where the schema has long (timestamp-micros)"},
		{"infinite timestamp in micros", `{"type":"long","logicalType":"timestamp-micros"}`, named(connect.KindInt64, "io.debezium.time.Timestamp"), int64(9223372036825200000), "a number where the schema has long (timestamp-micros)"},
		{"double as a float", `"float"`, of(connect.KindDouble), 0.1, "a double that a float does not hold"},
		{"integer as a float", `"float"`, of(connect.KindInt64), int64(1<<24 + 1), "an integer that float does not hold"},
		{"long as an int", `"int"`, of(connect.KindInt64), int64(math.MaxInt64), "out of the range of int"},
		{"null without a default", `{"type":"record","name":"r","fields":[{"name":"x","type":"int"}]}`,
			record("r", member("x", optional(of(connect.KindInt32)))), &connect.Structure{Schema: record("r", member("x", optional(of(connect.KindInt32)))), Values: []any{nil}},
			"member x: null where the schema has int"},
		{"struct as a map", `{"type":"map","values":"int"}`, record("a"), &connect.Structure{Schema: record("a")}, "a struct a where the schema has map"},
		{"member", order, record("a", member("extra", of(connect.KindBool))), &connect.Structure{Schema: record("a", member("extra", of(connect.KindBool))), Values: []any{true}},
			`member "extra" is not in the schema of record shop.Order`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := parsed(t, c.schema).Append(nil, c.source, c.value)
			require.ErrorContains(t, err, c.want)
			var value *connect.ValueError
			require.ErrorAs(t, err, &value)
		})
	}
}

func TestParse_WritesDefaultsOfAllTypes(t *testing.T) {
	for _, c := range []struct{ schema, def, want string }{
		{`"null"`, `null`, ""},
		{`"boolean"`, `true`, "\x01"},
		{`"int"`, `-1`, "\x01"},
		{`"long"`, `9223372036854775807`, "\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"},
		{`"double"`, `"NaN"`, "\x00\x00\x00\x00\x00\x00\xf8\x7f"},
		{`"float"`, `0.5`, "\x00\x00\x00\x3f"},
		{`"double"`, `0.5`, "\x00\x00\x00\x00\x00\x00\xe0\x3f"},
		{`"string"`, `"ä"`, "\x04ä"},
		{`"bytes"`, `"\u00ff"`, "\x02\xff"},
		{`{"type":"fixed","name":"f","size":2}`, `"\u00ff\u0000"`, "\xff\x00"},
		{`{"type":"enum","name":"e","symbols":["A","B"]}`, `"B"`, "\x02"},
		{`{"type":"array","items":"int"}`, `[1,2]`, "\x04\x02\x04\x00"},
		{`{"type":"array","items":"int"}`, `[]`, "\x00"},
		{`{"type":"map","values":"int"}`, `{"b":1,"a":2}`, "\x04\x02a\x04\x02b\x02\x00"},
		{`["int","null"]`, `1`, "\x00\x02"},
		{`["null","int"]`, `null`, "\x00"},
		{`["null","int"]`, `1`, "\x02\x02"},
		{`{"type":"record","name":"s","fields":[{"name":"x","type":"int"},{"name":"y","type":"int","default":3}]}`, `{"x":1}`, "\x02\x06"},
	} {
		d := parsed(t, `{"type":"record","name":"r","fields":[{"name":"m","type":`+c.schema+`,"default":`+c.def+`}]}`)
		got, err := d.AppendJSON([]byte{}, []byte(`{}`))
		require.NoError(t, err)
		require.Equal(t, c.want, string(got), c.schema)
	}
}

func TestParse_ResolvesReferencesInAnyOrder(t *testing.T) {
	const (
		money = `{"type":"record","name":"Money","namespace":"shop","fields":[{"name":"cents","type":"long"}]}`
		line  = `{"type":"record","name":"Line","namespace":"shop","fields":[{"name":"price","type":"Money"}]}`
		whole = `{"type":"record","name":"Lines","namespace":"shop","fields":[{"name":"lines","type":{"type":"array","items":"shop.Line"}},{"name":"sum","type":"shop.Money"}]}`
	)
	for _, references := range [][]string{{money, line}, {line, money}} {
		got, err := parsed(t, whole, references...).AppendJSON(nil, []byte(`{"lines":[{"price":{"cents":1}}],"sum":{"cents":2}}`))
		require.NoError(t, err)
		require.Equal(t, "\x02\x02\x00\x04", string(got))
	}
	_, err := Parse(whole, line)
	require.ErrorContains(t, err, "read a reference of the Avro schema: member price of record shop.Line: type \"Money\" is not defined, neither in the schema nor in a reference")
}

// Java's Avro and the registry take such a schema, and Debezium makes such: a topic's hyphens in a
// namespace, letters of any script, a record without a namespace inside of one that has one.
func TestParse_TakesWhatJavaTakes(t *testing.T) {
	d := parsed(t, `{"type":"record","name":"Value","namespace":"my-shop.order","fields":[
		{"name":"größe","type":{"type":"record","name":"payload","namespace":"","fields":[{"name":"next","type":["null","payload"],"default":null}]}},
		{"name":"again","type":"payload"},
		{"name":"own","type":["null","Value"],"default":null},
		{"name":"kind","type":{"type":"string","logicalType":"none of Avro's"}}]}`)
	require.Equal(t, "my-shop.order.Value", d.Record())
	got, err := d.AppendJSON(nil, []byte(`{"größe":{"next":{}},"again":{},"kind":"k"}`))
	require.NoError(t, err)
	require.Equal(t, "\x02\x00\x00\x00\x02k", string(got))
	for _, text := range []string{`["null","int"]`, `{"type":"fixed","name":"f","size":1}`} {
		require.Empty(t, parsed(t, text).Record())
	}
}

func TestDeclared_EqualComparesWhatValuesDependOn(t *testing.T) {
	const text = `{"type":"record","name":"a.R","fields":[{"name":"x","type":["null","a.R"],"default":null},
		{"name":"l","type":{"type":"array","items":{"type":"enum","name":"E","symbols":["A","B"]}}},{"name":"i","type":"int","default":1},
		{"name":"f","type":{"type":"fixed","name":"F","size":2}},{"name":"d","type":{"type":"bytes","logicalType":"decimal","precision":3,"scale":1}}]}`
	edited := func(old, new string) *Declared {
		require.Contains(t, text, old)
		return parsed(t, strings.ReplaceAll(text, old, new))
	}
	d := parsed(t, text)
	require.True(t, d.Equal(edited(`{"type":"record","name":"a.R","fields":`, `{"doc":"of it","type":"record","namespace":"a","connect.name":"x","name":"R","fields":`)))
	require.True(t, d.Equal(edited(`"a.R"]`, `"R"]`)))
	for old, new := range map[string]string{
		`"a.R"`: `"b.R"`, `"name":"i"`: `"name":"j"`, `"default":1`: `"default":2`, `,"default":1`: ``, `"A","B"`: `"B","A"`, `"size":2`: `"size":3`,
		`"scale":1`: `"scale":2`, `"precision":3`: `"precision":4`, `"logicalType"`: `"other"`, `["null","a.R"]`: `["null","a.R","int"]`,
		`{"type":"array","items":`: `{"type":"map","values":`, `"name":"i","type":"int"`: `"name":"i","type":"long"`,
	} {
		require.False(t, d.Equal(edited(old, new)), "%s is %s", old, new)
	}
	require.False(t, parsed(t, `{"type":"array","items":"int"}`).Equal(parsed(t, `{"type":"array","items":"long"}`)))
}

func TestParse_FindsNames(t *testing.T) {
	d := parsed(t, `{"type":"record","name":"x.R","fields":[
		{"name":"a","type":{"type":"fixed","name":"x.a.b","size":1}},
		{"name":"b","type":{"type":"fixed","name":"a.b","size":2}},
		{"name":"c","type":"a.b"},
		{"name":"d","type":{"type":"a.b","logicalType":"decimal","precision":4}},
		{"name":"e","type":{"type":{"type":"a.b"}}}]}`)
	got, err := d.AppendJSON(nil, []byte(`{"a":"AQ==","b":"AQI=","c":"AwQ=","d":"BQY=","e":"Bwg="}`))
	require.NoError(t, err)
	require.Equal(t, "\x01\x01\x02\x03\x04\x05\x06\x07\x08", string(got))
}

func TestParse_SaysWhatIsWrong(t *testing.T) {
	member := func(schema, def string) string {
		return `{"type":"record","name":"a","fields":[{"name":"x","type":` + schema + `,"default":` + def + `}]}`
	}
	for text, want := range map[string]string{
		``:                             "read the Avro schema: it is no JSON",
		`{"type":"record"`:             "read the Avro schema: it is no JSON",
		`"int" "int"`:                  "something follows the schema",
		`5`:                            "5 is no schema",
		`{"type":"record","name":"a"}`: "record a has no array of fields",
		`{"type":"record","name":"a-b","fields":[]}`:                                                  `Avro takes no record of the name "a-b"`,
		`{"type":"record","fields":[]}`:                                                               `Avro takes no record of the name ""`,
		`{"type":"record","name":"a","fields":[{"type":"int"}]}`:                                      `record a: Avro takes no member of the name ""`,
		`{"type":"record","name":"a","fields":[{"name":"x"}]}`:                                        "member x of record a: null is no schema",
		`{"type":"record","name":"a","fields":[1]}`:                                                   "record a: Avro takes no member",
		`{"type":"record","name":"a","fields":[{"name":"x","type":"int"},{"name":"x","type":"int"}]}`: "record a has two members x",
		`[{"type":"fixed","name":"a","size":1},{"type":"enum","name":"a","symbols":[]}]`:              "enum a is defined twice",
		`"shop.Order"`:                                              `type "shop.Order" is not defined`,
		`{"type":"array"}`:                                          "array: null is no schema",
		`["int","int"]`:                                             "a union with a second int",
		`["int",["null"]]`:                                          "a union with a second [null], or with another union",
		`{"type":"fixed","name":"f","size":-1}`:                     "fixed f has no size",
		`{"type":"fixed","name":"f","size":1048577}`:                "fixed f has no size, or one that is too large",
		`{"type":"fixed","name":"f","size":1e9}`:                    "fixed f has no size",
		`{"type":"enum","name":"e"}`:                                "enum e has no array of symbols",
		`{"type":"enum","name":"e","symbols":[1]}`:                  `enum e: Avro takes no symbol of the name ""`,
		member(`"int"`, `"1"`):                                      "default of member x of record a: it is no value of int",
		member(`"int"`, `3000000000`):                               "it is no value of int",
		member(`"int"`, `1.5`):                                      "it is no value of int",
		member(`"bytes"`, `"Ā"`):                                    "it is no value of bytes",
		member(`["null","int"]`, `"x"`):                             "it is no value of [null int]",
		member(`{"type":"fixed","name":"f","size":2}`, `"abc"`):     "it is no value of fixed f",
		member(`{"type":"enum","name":"e","symbols":["A"]}`, `"B"`): "it is no value of enum e",
		member(`{"type":"record","name":"b","fields":[{"name":"y","type":"int"}]}`, `{}`):         "default of member x of record a: member y is missing",
		member(`{"type":"record","name":"b","fields":[{"name":"y","type":"int"}]}`, `{"y":null}`): "member y: it is no value of int",
		member(`{"type":"array","items":"int"}`, `[true]`):                                        "it is no value of int",
	} {
		_, err := Parse(text)
		require.ErrorContains(t, err, want, text)
	}
}
