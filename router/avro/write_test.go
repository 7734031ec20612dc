package avro

import (
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/router/connect"
)

// The bytes are written by hand, by Avro's specification.
func TestAppend_WritesAvroBinary(t *testing.T) {
	pair := record("p", member("a", optional(of(connect.KindInt32))), member("b", withDefault(optional(of(connect.KindString)), connect.Text("d"))))
	pairOf := func(a, b any) *connect.Structure {
		return &connect.Structure{Schema: pair, Values: []any{a, b}}
	}
	for _, c := range []struct {
		name    string
		options Options
		schema  *source
		value   any
		want    string
	}{
		{"text", usual, of(connect.KindString), connect.Text("häß"), "\x0ahäß"},
		{"no text", usual, of(connect.KindString), connect.Text(""), "\x00"},
		{"lone surrogate", usual, of(connect.KindString), connect.Text("a\xED\xA0\x80b"), "\x06a?b"},
		{"text with the first byte of a surrogate", usual, of(connect.KindString), connect.Text("힐"), "\x06힐"},
		{"true", usual, of(connect.KindBool), true, "\x01"},
		{"false", usual, of(connect.KindBool), false, "\x00"},
		{"int16", usual, of(connect.KindInt16), int64(-1), "\x01"},
		{"int32", usual, of(connect.KindInt32), int64(64), "\x80\x01"},
		{"int64", usual, of(connect.KindInt64), int64(math.MinInt64), "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"},
		{"float", usual, of(connect.KindFloat), float32(1), "\x00\x00\x80\x3f"},
		{"float that is no number", usual, of(connect.KindFloat), math.Float32frombits(0xFFC00001), "\x00\x00\xc0\x7f"},
		{"double", usual, of(connect.KindDouble), -2.0, "\x00\x00\x00\x00\x00\x00\x00\xc0"},
		{"double that is no number", usual, of(connect.KindDouble), math.NaN(), "\x00\x00\x00\x00\x00\x00\xf8\x7f"},
		{"bytes at the top", usual, of(connect.KindBytes), connect.Buffer{1, 2}, "\x01\x02"},
		{"decimal at the top", usual, decimal("2", "10"), connect.Decimal{Unscaled: big.NewInt(-256), Scale: 2}, "\xff\x00"},
		{"optional bytes at the top", usual, optional(of(connect.KindBytes)), connect.ByteArray{1, 2}, "\x02\x04\x01\x02"},
		{"no optional bytes", usual, optional(of(connect.KindBytes)), nil, "\x00"},
		{"null behind a default", usual, withDefault(optional(of(connect.KindInt32)), int64(5)), nil, "\x02"},
		{"value before null", usual, withDefault(optional(of(connect.KindInt32)), int64(5)), int64(1), "\x00\x02"},
		{"date", usual, named(connect.KindInt32, dateName), connect.Date{Millis: -connect.MillisPerDay, DayOnly: true}, "\x01"},
		{"time", usual, named(connect.KindInt32, timeName), connect.Date{Millis: connect.MillisPerDay}, "\x80\xf0\xb2\x52"},
		{"timestamp", usual, named(connect.KindInt64, timestampName), connect.Date{Millis: 1}, "\x02"},
		{"array", usual, listOf(optional(of(connect.KindString))), []any{connect.Text("a"), nil}, "\x04\x02\x02a\x00\x00"},
		{"empty array", usual, listOf(of(connect.KindString)), []any{}, "\x00"},
		{"map", usual, mapOf(of(connect.KindInt32)), connect.Map{{Key: connect.Text("k"), Value: int64(1)}}, "\x02\x02k\x02\x00"},
		{"empty map", usual, mapOf(of(connect.KindInt32)), connect.Map{}, "\x00"},
		{"struct", usual, pair, pairOf(int64(1), connect.Text("x")), "\x02\x02\x00\x02x"},
		{"default in the place of null", usual, pair, pairOf(nil, nil), "\x00\x00\x02d"},
		{"null that stays", Options{KeepNulls: true}, pair, pairOf(nil, nil), "\x00\x02"},
		{"optional struct", usual, optional(pair), pairOf(nil, nil), "\x02\x00\x00\x02d"},
		{"no schema", usual, nil, connect.Text("[]"), "\x00\x00\x00\x00\x00\x00\x02\x04[]\x00\x00"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := must(t, c.options, c.schema).Append([]byte("before"), c.value)
			require.NoError(t, err)
			require.Equal(t, "before"+c.want, string(got))
		})
	}
}

func TestAppend_WritesTheSymbolOfAnEnum(t *testing.T) {
	s := optional(named(connect.KindString, "e", connect.Parameter{Key: enumParameter, Value: "e"},
		connect.Parameter{Key: enumParameter + ".A", Value: "A"}, connect.Parameter{Key: enumParameter + ".B", Value: "B"}))
	made := must(t, Options{Enhanced: true}, s)
	got, err := made.Append(nil, connect.Text("B"))
	require.NoError(t, err)
	require.Equal(t, "\x02\x02", string(got))
	_, err = made.Append(nil, connect.Text("C"))
	require.ErrorContains(t, err, "no symbol of the enum")
}

func TestAppend_RefusesWhatTheSchemaDoesNotTake(t *testing.T) {
	for _, c := range []struct {
		name   string
		schema *source
		value  any
		want   string
	}{
		{"null", of(connect.KindInt32), nil, "null for what is required"},
		{"null at the top of bytes", of(connect.KindBytes), nil, "null for what is required"},
		{"null at the top with a default", withDefault(of(connect.KindInt32), int64(1)), nil, "null for what is required"},
		{"null as an item", listOf(of(connect.KindInt32)), []any{int64(1), nil}, "member 1: null for what is required"},
		{"null in a map", mapOf(of(connect.KindInt32)), connect.Map{{Key: connect.Text("k")}}, "member k: null for what is required"},
		{"int16", of(connect.KindInt16), int64(math.MaxInt16 + 1), "32768 is out of the range of int16"},
		{"int32", of(connect.KindInt32), int64(math.MinInt32 - 1), "-2147483649 is out of the range of int32"},
		{"days", named(connect.KindInt32, dateName), connect.Date{Millis: (math.MaxInt32 + 1) * connect.MillisPerDay, DayOnly: true}, "2147483648 is out of the range of int32"},
		{"half a day", named(connect.KindInt32, dateName), connect.Date{Millis: 1}, "another type"},
		{"time", named(connect.KindInt32, timeName), connect.Date{Millis: -1}, "-1 ms is no time of day"},
		{"time behind the day", named(connect.KindInt32, timeName), connect.Date{Millis: connect.MillisPerDay + 1}, "86400001 ms is no time of day"},
		{"a number as a date", named(connect.KindInt32, dateName), int64(1), "another type than the schema's, int32 org.apache.kafka.connect.data.Date"},
		{"a date as a number", of(connect.KindInt64), connect.Date{Millis: 1}, "another type than the schema's, int64"},
		{"a number as text", of(connect.KindString), int64(1), "another type"},
		{"text as a number", of(connect.KindDouble), connect.Text("1"), "another type"},
		{"bytes as text", of(connect.KindString), connect.Buffer("x"), "another type"},
		{"bytes as a decimal", optional(decimal("1", "")), connect.Buffer("x"), "another type"},
		{"a decimal as bytes", optional(of(connect.KindBytes)), connect.Decimal{Unscaled: big.NewInt(1)}, "another type"},
		{"scale", decimal("1", ""), connect.Decimal{Unscaled: big.NewInt(1), Scale: 2}, "a decimal with 2 digits behind the point, where the schema has 1"},
		{"struct", record("a", member("b", of(connect.KindBool))), &connect.Structure{Schema: record("a"), Values: nil}, "another type"},
		{"member", record("a", member("b", of(connect.KindBool))),
			&connect.Structure{Schema: record("a", member("b", of(connect.KindBool))), Values: []any{connect.Text("t")}}, "member b: a value of another type"},
		{"no schema", nil, int64(1), "a value without a schema that is no text"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := must(t, usual, c.schema).Append(nil, c.value)
			require.ErrorContains(t, err, c.want)
			var value *connect.ValueError
			require.ErrorAs(t, err, &value)
		})
	}
}

func TestAppend_DoesNotPrintWhatItRefuses(t *testing.T) {
	_, err := must(t, usual, record("a", member("b", of(connect.KindBool)))).Append(nil,
		&connect.Structure{Schema: record("a", member("b", of(connect.KindBool))), Values: []any{connect.Text("s3cret")}})
	require.Error(t, err)
	require.False(t, strings.Contains(err.Error(), "s3cret"), err)
}
