package router

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router/connect"
)

// written is a value as JSON, of a column of that type.
func written(t *testing.T, typ *connect.Type, value string, change func(*Config)) string {
	t.Helper()
	rel := outbox()
	rel.Columns[4].TypeOID, rel.Columns[4].TypeMod = typ.OID, typ.Mod
	cfg := DefaultConfig()
	if change != nil {
		change(&cfg)
	}
	r, err := New([]Config{cfg}, Format{Key: "string", Value: "json", Headers: "simple"}, Options{Describe: func(uint32, uint32) (*Table, error) {
		return &Table{Columns: []tableColumn{{Name: "payload", Type: *typ}}}, nil
	}})
	require.NoError(t, err)
	m, err := r.Route(insert(rel, baseID, "User", "k", "T", value))
	if err != nil {
		return "error: " + err.Error()
	}
	return string(m.Value)
}

// With strict_types a value is what Debezium has, even where that is less than the row had.
func TestRoute_KeepsValuesThatDebeziumLoses(t *testing.T) {
	array := func(name string) *connect.Type {
		return &connect.Type{OID: 50000, Name: "_" + name, Kind: "b", Mod: -1, Elem: &connect.Type{OID: 50001, Name: name, Kind: "b", Mod: -1}}
	}
	for what, c := range map[string]struct {
		typ          *connect.Type
		value        string
		ours, strict string
		change       func(*Config)
	}{
		"name":               {connect.Builtin(19, -1), "n", `"n"`, "null", nil},
		"times in an array":  {array("time"), "{20:52:59.123456}", "[75179123456]", "[75179123000]", nil},
		"bits in an array":   {&connect.Type{OID: 50000, Name: "_bit", Kind: "b", Mod: 3, Elem: &connect.Type{OID: 1560, Name: "bit", Kind: "b"}}, "{101}", `["BQ=="]`, "null", nil},
		"NaN in an array":    {array("numeric"), "{NaN}", "[null]", "null", nil},
		"too far for nanos":  {connect.Builtin(1114, -1), "9999-12-31 23:59:59", "error: ", "null", func(c *Config) { c.TimePrecision = "nanoseconds" }},
		"infinite interval":  {connect.Builtin(1186, -1), "-infinity", "-9223372036854775808", "0", nil},
		"infinite timestamp": {connect.Builtin(1114, -1), "infinity", `"infinity"`, `"+292278994-08-16T23:00:00Z"`, func(c *Config) { c.TimePrecision = "isostring" }},
		"end of the day":     {connect.Builtin(1083, -1), "24:00:00", `"24:00:00Z"`, `"00:00:00Z"`, func(c *Config) { c.TimePrecision = "isostring" }},
	} {
		t.Run(what, func(t *testing.T) {
			change := func(strict bool) func(*Config) {
				return func(cfg *Config) {
					if cfg.StrictTypes = strict; c.change != nil {
						c.change(cfg)
					}
				}
			}
			require.Contains(t, written(t, c.typ, c.value, change(false)), c.ours)
			require.Equal(t, c.strict, written(t, c.typ, c.value, change(true)))
		})
	}
}

func TestRoute_WritesTypesAsDebeziumDoes(t *testing.T) {
	hstore := &connect.Type{OID: 50002, Name: "hstore", Kind: "b", Mod: -1}
	for what, c := range map[string]struct {
		typ         *connect.Type
		value, want string
		change      func(*Config)
	}{
		"hstore in the order of a HashMap": {hstore, `"a"=>"2", "b"=>"1", "cc"=>"3"`, `"{\"cc\":\"3\",\"a\":\"2\",\"b\":\"1\"}"`, nil},
		"bits without zeros in front":      {&connect.Type{OID: 1560, Name: "bit", Kind: "b", Mod: 12}, "000000000001", `"AQ=="`, nil},
		"no bits":                          {&connect.Type{OID: 1560, Name: "bit", Kind: "b", Mod: 12}, "000000000000", `""`, nil},
		"one varying bit":                  {&connect.Type{OID: 1562, Name: "varbit", Kind: "b", Mod: 1}, "1", "true", nil},
		"a line":                           {connect.Builtin(628, -1), "{1,2,3}", `{"a":1.0,"b":2.0,"c":3.0}`, nil},
		"an open path": {connect.Builtin(602, -1), "[(0,0),(1,1)]",
			`{"wkb":"AQIAAAACAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAPA/AAAAAAAA8D8=","srid":null,"extensions":{"type":"path","closed":"false"}}`, nil},
		"a polygon is closed": {connect.Builtin(604, -1), "((0,0),(1,1),(2,0))",
			`{"wkb":"AQMAAAABAAAABAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAADwPwAAAAAAAPA/AAAAAAAAAEAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","srid":null,"extensions":{"type":"polygon"}}`, nil},
		"money rounded":            {connect.Builtin(790, -1), "$1,000.15", `"JxI="`, func(c *Config) { c.MoneyDigits = 1 }},
		"a debt":                   {connect.Builtin(790, -1), "-$1,234,567.89", `"-1234567.89"`, func(c *Config) { c.DecimalHandling = "string" }},
		"a number beyond a double": {connect.Builtin(1700, -1), "1" + string(make400()), `"Infinity"`, func(c *Config) { c.DecimalHandling = "double" }},
		"the last timestamp":       {connect.Builtin(1114, -1), "294276-12-31 23:59:59.999999", "-9223372036853775810", nil},
		"a millisecond infinity":   {connect.Builtin(1114, 3), "infinity", "9223372036825200000", nil},
		"an unknown type in hex":   {&connect.Type{OID: 3220, Name: "pg_lsn", Kind: "b", Mod: -1}, "0/0", `"302f30"`, func(c *Config) { c.IncludeUnknown, c.BinaryHandling = true, "hex" }},
	} {
		require.Equal(t, c.want, written(t, c.typ, c.value, c.change), what)
	}
}

// Debezium reads no name from the stream, and has the empty text where there has to be one.
func TestRoute_HasNoNamesWithStrictTypes(t *testing.T) {
	for notNull, want := range map[bool]string{false: "null", true: `""`} {
		cfg := DefaultConfig()
		cfg.StrictTypes = true
		r, err := New([]Config{cfg}, Format{Key: "string", Value: "json", Headers: "simple"}, Options{Describe: func(uint32, uint32) (*Table, error) {
			return &Table{Columns: []tableColumn{{Name: "payload", NotNull: notNull, Type: *connect.Builtin(19, -1)}}}, nil
		}})
		require.NoError(t, err)
		rel := outbox()
		rel.Columns[4].TypeOID = 19
		m, err := r.Route(insert(rel, baseID, "User", "k", "T", "n"))
		require.NoError(t, err)
		require.Equal(t, want, string(m.Value))
	}
}

func TestRoute_TakesDaysForPartitionsWithStrictTypes(t *testing.T) {
	rel := outbox()
	rel.Columns = append(rel.Columns, replication.Column{Name: "p", TypeOID: 1082, TypeMod: -1})
	place := func(strict bool) func(*Config) {
		return func(c *Config) { c.StrictTypes, c.AdditionalPlacement = strict, "p:partition" }
	}
	ev := insert(rel, baseID, "User", "k", "T", "{}", "1970-01-04")
	m, err := newRouter(t, DefaultFormat(), place(true)).Route(ev)
	require.NoError(t, err)
	require.EqualValues(t, 3, m.Partition)
	_, err = newRouter(t, DefaultFormat(), place(false)).Route(ev)
	require.ErrorContains(t, err, "which is no partition")
}

func make400() []byte {
	zeros := make([]byte, 400)
	for i := range zeros {
		zeros[i] = '0'
	}
	return zeros
}

func TestRoute_PutsAPlaceholderWhereAnUpdateBroughtNoValue(t *testing.T) {
	const other = "d81ae6b7-bf20-57ae-807e-1ed6d1fd3e64"
	for _, c := range []struct {
		oid  uint32
		want string
	}{
		{oidText, `"GONE"`}, {3802, `"GONE"`}, {17, `"R09ORQ=="`}, {1009, `["GONE"]`}, {1007, `[71,79,78,69]`},
		{1231, "error"}, // numeric[]: there is no such number
	} {
		rel := outbox()
		rel.Columns[4].TypeOID = c.oid
		ev := insert(rel, other, "User", "k", "T", "")
		ev.Kind, ev.Values[4] = replication.Update, replication.Unchanged
		ev.Old = insert(rel, baseID, nil, nil, nil, nil).Values
		m, err := newRouter(t, Format{Key: "string", Value: "json", Headers: "simple"}, func(cfg *Config) { cfg.Unavailable = "GONE" }).Route(ev)
		if c.want == "error" {
			require.ErrorContains(t, err, "its value is not in the WAL")
			continue
		}
		require.NoError(t, err)
		require.Equal(t, c.want, string(m.Value))
	}
}

// The values are those of Debezium's records.
func TestRoute_WritesArraysAsDebeziumDoes(t *testing.T) {
	array := func(elem *connect.Type, mod int32) *connect.Type {
		return &connect.Type{OID: 50000, Name: "_" + elem.Name, Kind: "b", Mod: mod, Elem: elem}
	}
	strict := func(c *Config) { c.StrictTypes = true }
	mood := &connect.Type{OID: 50001, Name: "mood", Kind: "e", Mod: -1, Labels: []string{"sad", `it's "x"`}}
	for what, c := range map[string]struct {
		typ         *connect.Type
		value, want string
	}{
		"null among numbers":    {array(connect.Builtin(23, -1), -1), "{NULL}", "[null]"},
		"numbers in two levels": {array(connect.Builtin(23, -1), -1), "{{1,2},{3,4}}", "[null,null]"},
		"decimals of one scale": {array(connect.Builtin(1700, -1), 5<<16+2+4), "{-1.00,100.00}", `["nA==","JxA="]`},
		"decimals of no scale": {array(connect.Builtin(1700, -1), -1), "{1.10,1000000000000000000000000000000,NULL}",
			`[{"scale":1,"value":"Cw=="},{"scale":0,"value":"DJ8snNBGdO3qQAAAAA=="},null]`},
		"a time without fraction": {array(connect.Builtin(1083, -1), -1), "{20:52:59,20:52:59.12}", "[75179000000,75179120000]"},
		"a time of four digits":   {array(connect.Builtin(1083, -1), -1), "{20:52:59.1234}", "[75179123000]"},
		"values of an enum":       {array(mood, -1), `{"it's \"x\""}`, `["it's \"x\""]`},
		"null among enum values":  {array(mood, -1), "{NULL}", "null"},
	} {
		require.Equal(t, c.want, written(t, c.typ, c.value, strict), what)
	}
}
