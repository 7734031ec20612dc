package avro

import (
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/router/connect"
)

// BenchmarkAppend writes an order of eight members and two lines: by its own schema, by a declared
// one, from JSON by a declared one, and as JSON, which is what AvroConverter is used instead of.
func BenchmarkAppend(b *testing.B) {
	line := record("shop.Line", member("sku", of(connect.KindString)), member("count", of(connect.KindInt32)))
	s := record("shop.Order", member("id", of(connect.KindInt64)), member("customer", named(connect.KindString, "io.debezium.data.Uuid")),
		member("note", optional(of(connect.KindString))), member("paid", of(connect.KindBool)), member("weight", of(connect.KindDouble)),
		member("total", decimal("2", "10")), member("at", named(connect.KindInt64, "io.debezium.time.MicroTimestamp")), member("lines", listOf(line)))
	lineOf := func(sku string, n int64) *connect.Structure {
		return &connect.Structure{Schema: line, Values: []any{connect.Text(sku), n}}
	}
	v := &connect.Structure{Schema: s, Values: []any{int64(1234567), connect.Text("7f2c1f3e-5b0a-4a3d-9f3e-0c7f6f1d2b3a"), nil, true, 1.25,
		connect.Decimal{Unscaled: big.NewInt(129900), Scale: 2}, int64(1700000000123456), []any{lineOf("A-1", 1), lineOf("B-2", 12)}}}
	made, err := New(usual).Schema(s)
	require.NoError(b, err)
	declared, err := Parse(made.Text())
	require.NoError(b, err)
	doc := []byte(`{"id":1234567,"customer":"7f2c1f3e-5b0a-4a3d-9f3e-0c7f6f1d2b3a","paid":true,"weight":1.25,"total":1299.00,` +
		`"at":1700000000123456,"lines":[{"sku":"A-1","count":1},{"sku":"B-2","count":12}]}`)
	json := connect.NewEncoder(connect.Converter{Format: "json", Decimals: "NUMERIC"}, false)
	var buffer []byte
	for _, c := range []struct {
		name  string
		write func() ([]byte, error)
	}{
		{"schema", func() ([]byte, error) { return made.Append(buffer[:0], v) }},
		{"declared", func() ([]byte, error) { return declared.Append(buffer[:0], s, v) }},
		{"declared from JSON", func() ([]byte, error) { return declared.AppendJSON(buffer[:0], doc) }},
		{"JSON", func() ([]byte, error) { return json.Value(s, nil, v) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				out, err := c.write()
				if err != nil {
					b.Fatal(err)
				}
				buffer = out
			}
			b.ReportMetric(float64(len(buffer)), "bytes/record")
		})
	}
}
