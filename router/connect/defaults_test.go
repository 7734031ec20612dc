package connect

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What stands for NULL in Debezium's records, by the expression that the catalogue has.
func TestDefaultValue_IsWhatDebeziumReads(t *testing.T) {
	const scaled = 10<<16 + 2 + 4 // numeric(10,2)
	for _, c := range []struct {
		oid        uint32
		mod        int32
		expression string
		change     func(*Handling)
		want       string
	}{
		{23, -1, "5", nil, "5"},
		{25, -1, "'it''s'::text", nil, `"it's"`},
		{25, -1, "('a'::text || 'b'::text)", nil, `"a"`},
		{25, -1, "NULL::text", nil, "null"},
		{25, -1, "lower('ABC'::text)", nil, `""`},
		{25, -1, "SESSION_USER", nil, `"SESSION_USER"`},
		{23, -1, "length('abc'::text)", nil, "0"},
		{23, -1, "(1 + 1)", nil, "null"},
		{16, -1, "true", nil, "true"},
		{16, -1, "(random() < (0)::double precision)", nil, "false"},
		{3802, -1, "jsonb_build_object('a', 1)", nil, `"{}"`},
		{1082, -1, "CURRENT_DATE", nil, "0"},
		{1114, -1, "now()", nil, "0"},
		{1184, -1, "now()", nil, `"1970-01-01T00:00:00.000000Z"`},
		// Decimals have the digits of their scale; those without a scale and those that are no number have no default.
		{1700, scaled, "12.3", nil, `"BM4="`},
		{1700, scaled, "'-0.5'::numeric", nil, `"zg=="`},
		{1700, scaled, "12.3", func(c *Handling) { c.DecimalHandling = "string" }, `"12.30"`},
		{1700, scaled, "3", func(c *Handling) { c.DecimalHandling = "string" }, `"3.00"`},
		{1700, scaled, "12.3", func(c *Handling) { c.DecimalHandling = "double" }, "12.3"},
		{1700, scaled, "'NaN'::numeric", nil, "null"},
		{1700, -1, "12.30", nil, "null"},
		{701, -1, "'NaN'::double precision", nil, `"NaN"`},
		// At the edge of what a type can hold defaults are read in another way than rows.
		{1114, -1, "'infinity'::timestamp without time zone", nil, "-9223372036853775810"},
		{1184, -1, "'infinity'::timestamp with time zone", nil, "null"},
		{1082, -1, "'infinity'::date", nil, "169560311"},
		{1083, 0, "'24:00:00'::time without time zone", func(c *Handling) { c.TimePrecision = "adaptive" }, "86399999"},
		// Types whose defaults Debezium does not read.
		{790, -1, "'$1.00'::money", nil, "null"},
		{17, -1, `'\x00'::bytea`, nil, "null"},
		{869, -1, "'10.0.0.1'::inet", nil, "null"},
		{600, -1, "point((0)::double precision, (0)::double precision)", nil, "null"},
	} {
		cfg := Handling{
			DecimalHandling: "precise", BinaryHandling: "bytes", TimePrecision: "adaptive",
			IntervalHandling: "numeric", HstoreHandling: "json", MoneyDigits: 2,
		}
		if c.change != nil {
			c.change(&cfg)
		}
		typ := Builtin(c.oid, c.mod)
		reads, err := CodecOf(typ, &cfg)
		require.NoError(t, err)
		require.Equal(t, c.want, string(PlainJSON.append(nil, DefaultValue(c.expression, typ, &reads))), "%s %s", typ.Name, c.expression)
	}
}
