package router

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseArray_ReadsWhatPostgreSQLWrites(t *testing.T) {
	none := []byte(nil)
	for written, want := range map[string][][]byte{
		"{}":                               {},
		"{a,NULL,b}":                       {[]byte("a"), none, []byte("b")},
		`{"NULL","a b","{}","\\","\"",""}`: {[]byte("NULL"), []byte("a b"), []byte("{}"), []byte(`\`), []byte(`"`), {}},
		`{N\ULL}`:                          {[]byte("NULL")},
		"[2:3]={a,b}":                      {[]byte("a"), []byte("b")},
		`{{a,"}"},{"\"{",d}}`:              {none, none},
		"{{{1},{2}},{{3},{4}}}":            {none, none},
	} {
		got, err := parseArray([]byte(written), ',')
		require.NoError(t, err, written)
		require.Equal(t, want, got, written)
	}
	boxes, err := parseArray([]byte("{(1,1),(0,0);(2,2),(1,1)}"), ';')
	require.NoError(t, err)
	require.Equal(t, [][]byte{[]byte("(1,1),(0,0)"), []byte("(2,2),(1,1)")}, boxes)
	for _, bad := range []string{"", "a", "{a", "[1:2]", `{"a"b}`, "{{a}b}"} {
		_, err := parseArray([]byte(bad), ',')
		require.ErrorContains(t, err, "is no array", bad)
	}
}

// The values are those of Debezium's records.
func TestRoute_WritesArraysAsDebeziumDoes(t *testing.T) {
	array := func(elem *Type, mod int32) *Type {
		return &Type{OID: 50000, Name: "_" + elem.Name, Kind: "b", Mod: mod, Elem: elem}
	}
	strict := func(c *Config) { c.StrictTypes = true }
	mood := &Type{OID: 50001, Name: "mood", Kind: "e", Mod: -1, Labels: []string{"sad", `it's "x"`}}
	for what, c := range map[string]struct {
		typ         *Type
		value, want string
	}{
		"null among numbers":    {array(builtin(23, -1), -1), "{NULL}", "[null]"},
		"numbers in two levels": {array(builtin(23, -1), -1), "{{1,2},{3,4}}", "[null,null]"},
		"decimals of one scale": {array(builtin(1700, -1), 5<<16+2+4), "{-1.00,100.00}", `["nA==","JxA="]`},
		"decimals of no scale": {array(builtin(1700, -1), -1), "{1.10,1000000000000000000000000000000,NULL}",
			`[{"scale":1,"value":"Cw=="},{"scale":0,"value":"DJ8snNBGdO3qQAAAAA=="},null]`},
		"a time without fraction": {array(builtin(1083, -1), -1), "{20:52:59,20:52:59.12}", "[75179000000,75179120000]"},
		"a time of four digits":   {array(builtin(1083, -1), -1), "{20:52:59.1234}", "[75179123000]"},
		"values of an enum":       {array(mood, -1), `{"it's \"x\""}`, `["it's \"x\""]`},
		"null among enum values":  {array(mood, -1), "{NULL}", "null"},
	} {
		require.Equal(t, c.want, written(t, c.typ, c.value, strict), what)
	}
}

func TestCodecOf_SeparatesBoxesBySemicolons(t *testing.T) {
	c, err := codecOf(&Type{Name: "_box", Kind: "b", Mod: -1, Elem: builtin(603, -1)}, &Config{})
	require.NoError(t, err)
	v, err := c.read([]byte("{(1,1),(0,0);(2,2),(1,1)}"))
	require.NoError(t, err)
	require.Len(t, v, 2)
}

func TestCodecOf_ArraysHaveTheItemsThatDebeziumGivesThem(t *testing.T) {
	array := func(oid uint32) *Type { return &Type{Name: "_", Kind: "b", Mod: -1, Elem: builtin(oid, -1)} }
	strict := &Config{StrictTypes: true}
	for oid, optional := range map[uint32]bool{23: true, oidText: true, 2950: true, 3614: false} { // the last: tsvector
		c, err := codecOf(array(oid), strict)
		require.NoError(t, err)
		require.Equal(t, optional, c.schema.items.optional, builtinTypes[oid])
	}
	for _, oid := range []uint32{790, 19, 1186, 142, 600} { // money, name, interval, xml, point
		var unsupported *unsupportedTypeError
		_, err := codecOf(array(oid), &Config{StrictTypes: true, IncludeUnknown: true})
		require.ErrorAs(t, err, &unsupported, builtinTypes[oid])
		_, err = codecOf(array(oid), &Config{})
		require.NoError(t, err, "%s: ours without strict_types", builtinTypes[oid])
	}
}

func TestParseHstore_HasTheOrderOfAHashMap(t *testing.T) {
	m, err := parseHstore([]byte(`"b"=>"1", "cc"=>NULL, "a"=>"\"\\"`))
	require.NoError(t, err)
	require.Equal(t, mapping{{text("cc"), nil}, {text("a"), text(`"\`)}, {text("b"), text("1")}}, m)

	// "q" shares the bucket of "a" among 16; 13 members are in 32, where it has one behind all others.
	many := mapping{{key: text("q")}}
	for c := byte('a'); c <= 'l'; c++ {
		many = append(many, entry{key: text{c}})
	}
	few := append(mapping{}, many[:3]...)
	few.hashOrder()
	require.Equal(t, []string{"q", "a", "b"}, keysOf(few))
	many.hashOrder()
	require.Equal(t, []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "q"}, keysOf(many))

	for _, bad := range []string{"a", `"a"`, `"a"=>`, `"a"=>NUL`} {
		_, err := parseHstore([]byte(bad))
		require.ErrorContains(t, err, "is no hstore", bad)
	}
}

func keysOf(m mapping) (keys []string) {
	for _, e := range m {
		keys = append(keys, string(e.key))
	}
	return keys
}
