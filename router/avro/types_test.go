package avro

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/router/connect"
)

// TestAppend_WritesEveryTypeOfPostgreSQL writes what Debezium makes of each type, optional and with a
// default, in each of the modes that change it.
func TestAppend_WritesEveryTypeOfPostgreSQL(t *testing.T) {
	samples := map[uint32][]string{
		16: {"t"}, 17: {`\x00ff`}, 18: {"c"}, 19: {"name"}, 20: {"-9223372036854775808"}, 21: {"-32768"}, 23: {"2147483647"}, 25: {"ä", ""},
		26: {"4294967295"}, 114: {`{"a": 1}`}, 142: {"<a/>"}, 600: {"(1,2)"}, 601: {"[(1,2),(3,4)]"}, 602: {"[(1,2),(3,4)]"}, 603: {"(3,4),(1,2)"},
		604: {"((1,2),(3,4),(5,6))"}, 628: {"{1,2,3}"}, 650: {"10.0.0.0/8"}, 700: {"1.5", "NaN", "Infinity"}, 701: {"-1e300", "NaN", "-Infinity"},
		718: {"<(1,2),3>"}, 774: {"08:00:2b:01:02:03:04:05"}, 790: {"-$1,234.50"}, 829: {"08:00:2b:01:02:03"}, 869: {"10.0.0.1"}, 1042: {"x  "}, 1043: {"y"},
		1082: {"2024-02-29", "infinity", "0044-03-15 BC"}, 1083: {"24:00:00", "12:34:56.789"}, 1114: {"2024-02-29 12:34:56.789", "infinity"},
		1184: {"2024-02-29 12:34:56.789+00", "-infinity"}, 1186: {"1 year 2 days 03:04:05.678"}, 1266: {"12:34:56.789+02"}, 1560: {"1"}, 1562: {"1010"},
		1700: {"12.50", "-0.01"}, 2950: {"7f2c1f3e-5b0a-4a3d-9f3e-0c7f6f1d2b3a"}, 3614: {"'a':1"}, 3802: {`{"a": 1}`},
		3904: {"[1,2)"}, 3906: {"[1,2)"}, 3908: {"empty"}, 3910: {"empty"}, 3912: {"empty"}, 3926: {"[1,2)"},
		1007: {"{1,NULL}"}, 1009: {`{a,NULL,"b c"}`}, 1231: {"{1.50,NULL}"}, 1115: {`{"2024-02-29 12:34:56"}`},
	}
	types := map[string][]*connect.Type{}
	texts := map[string][]string{}
	for oid, text := range samples {
		mods := []int32{-1}
		switch oid {
		case 1700, 1231:
			mods = append(mods, 4+(10<<16|2))
		case 1083, 1114, 1184:
			mods = append(mods, 3)
		case 1560:
			mods = []int32{1}
		}
		for _, mod := range mods {
			of := connect.Builtin(oid, mod)
			require.NotNil(t, of, oid)
			types[of.Name] = append(types[of.Name], of)
			texts[of.Name] = text
		}
	}
	types["hstore"], texts["hstore"] = []*connect.Type{{Name: "hstore", Kind: "b"}}, []string{`"a"=>"1", "b"=>NULL`}
	types["mood"], texts["mood"] = []*connect.Type{{Name: "mood", Kind: "e", Labels: []string{"sad", "ok"}}}, []string{"ok"}
	modes := []connect.Handling{
		{DecimalHandling: "precise", BinaryHandling: "bytes", TimePrecision: "adaptive", IntervalHandling: "numeric", HstoreHandling: "json", MoneyDigits: 2},
		{DecimalHandling: "double", BinaryHandling: "base64", TimePrecision: "connect", IntervalHandling: "string", HstoreHandling: "map", MoneyDigits: 2},
		{DecimalHandling: "string", BinaryHandling: "hex", TimePrecision: "isostring", IntervalHandling: "numeric", HstoreHandling: "map"},
		{DecimalHandling: "precise", BinaryHandling: "bytes", TimePrecision: "microseconds", IntervalHandling: "numeric", HstoreHandling: "map", StrictTypes: true},
		{DecimalHandling: "precise", BinaryHandling: "bytes", TimePrecision: "adaptive_time_microseconds", IntervalHandling: "numeric", HstoreHandling: "map"},
	}
	write := func(t *testing.T, s *source, v any) {
		whole := record("shop.public.outbox.Value", member("column", s), member("again", optional(s)))
		made := must(t, usual, whole)
		written := &connect.Structure{Schema: whole, Values: []any{v, v}}
		data, err := made.Append(nil, written)
		require.NoError(t, err)
		same(t, whole, usual, written, read(t, made.Text(), data))
	}
	for name, variants := range types {
		t.Run(name, func(t *testing.T) {
			for i := range modes {
				for _, variant := range variants {
					codec, err := connect.CodecOf(variant, &modes[i])
					require.NoError(t, err)
					for _, text := range texts[name] {
						v := any(connect.Text(text))
						if codec.Read != nil {
							v, err = codec.Read([]byte(text))
							require.NoError(t, err)
						}
						write(t, &codec.Schema, v)
						if _, isStruct := v.(*connect.Structure); !isStruct {
							write(t, withDefault(optional(&codec.Schema), v), v)
						}
					}
				}
			}
		})
	}
}
