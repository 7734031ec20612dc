package connect

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

func TestCodecOf_SeparatesBoxesBySemicolons(t *testing.T) {
	c, err := CodecOf(&Type{Name: "_box", Kind: "b", Mod: -1, Elem: Builtin(603, -1)}, &Handling{})
	require.NoError(t, err)
	v, err := c.Read([]byte("{(1,1),(0,0);(2,2),(1,1)}"))
	require.NoError(t, err)
	require.Len(t, v, 2)
}

func TestCodecOf_ArraysHaveTheItemsThatDebeziumGivesThem(t *testing.T) {
	array := func(oid uint32) *Type { return &Type{Name: "_", Kind: "b", Mod: -1, Elem: Builtin(oid, -1)} }
	strict := &Handling{StrictTypes: true}
	for oid, optional := range map[uint32]bool{23: true, 25: true, 2950: true, 3614: false} { // the last: tsvector
		c, err := CodecOf(array(oid), strict)
		require.NoError(t, err)
		require.Equal(t, optional, c.Schema.Items.Optional, builtinTypes[oid])
	}
	for _, oid := range []uint32{790, 19, 1186, 142, 600} { // money, name, interval, xml, point
		var unsupported *UnsupportedTypeError
		_, err := CodecOf(array(oid), &Handling{StrictTypes: true, IncludeUnknown: true})
		require.ErrorAs(t, err, &unsupported, builtinTypes[oid])
		_, err = CodecOf(array(oid), &Handling{})
		require.NoError(t, err, "%s: ours without strict_types", builtinTypes[oid])
	}
}

func TestParseHstore_HasTheOrderOfAHashMap(t *testing.T) {
	m, err := parseHstore([]byte(`"b"=>"1", "cc"=>NULL, "a"=>"\"\\"`))
	require.NoError(t, err)
	require.Equal(t, Map{{Text("cc"), nil}, {Text("a"), Text(`"\`)}, {Text("b"), Text("1")}}, m)

	// "q" shares the bucket of "a" among 16; 13 members are in 32, where it has one behind all others.
	many := Map{{Key: Text("q")}}
	for c := byte('a'); c <= 'l'; c++ {
		many = append(many, Entry{Key: Text{c}})
	}
	few := append(Map{}, many[:3]...)
	few.hashOrder()
	require.Equal(t, []string{"q", "a", "b"}, keysOf(few))
	many.hashOrder()
	require.Equal(t, []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "q"}, keysOf(many))

	for _, bad := range []string{"a", `"a"`, `"a"=>`, `"a"=>NUL`} {
		_, err := parseHstore([]byte(bad))
		require.ErrorContains(t, err, "is no hstore", bad)
	}
}

func keysOf(m Map) (keys []string) {
	for _, e := range m {
		keys = append(keys, string(e.Key))
	}
	return keys
}
