package avro

import (
	"bytes"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"testing"
	"time"

	hamba "github.com/hamba/avro/v2"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/postrider/postrider/router/connect"
)

// schemas draws Connect schemas in which structs appear again.
type schemas struct {
	structs []*source
	names   int
	scrub   bool
}

func (g *schemas) draw(t *rapid.T, depth int) *source {
	kinds := []func() *source{
		func() *source { return of(connect.KindString) },
		func() *source { return named(connect.KindString, "io.debezium.data.Uuid") },
		func() *source { return of(connect.KindBool) },
		func() *source { return of(connect.KindInt16) },
		func() *source { return of(connect.KindInt32) },
		func() *source { return of(connect.KindInt64) },
		func() *source { return named(connect.KindInt64, "io.debezium.time.MicroTimestamp") },
		func() *source { return of(connect.KindFloat) },
		func() *source { return of(connect.KindDouble) },
		func() *source { return of(connect.KindBytes) },
		func() *source { return named(connect.KindInt32, dateName) },
		func() *source { return named(connect.KindInt32, timeName) },
		func() *source { return named(connect.KindInt64, timestampName) },
		func() *source {
			scale := rapid.IntRange(0, 5).Draw(t, "scale")
			precision := ""
			if rapid.Bool().Draw(t, "has a precision") {
				precision = strconv.Itoa(rapid.IntRange(max(scale, 1), 30).Draw(t, "precision"))
			}
			return decimal(strconv.Itoa(scale), precision)
		},
	}
	scalars := len(kinds)
	if depth > 0 {
		kinds = append(kinds,
			func() *source { return listOf(g.draw(t, depth-1)) },
			func() *source { return mapOf(g.draw(t, depth-1)) },
			func() *source { return g.structure(t, depth) },
			func() *source { return g.structure(t, depth) },
			func() *source {
				if len(g.structs) == 0 {
					return g.structure(t, depth)
				}
				return rapid.SampledFrom(g.structs).Draw(t, "struct again")
			})
	}
	i := rapid.IntRange(0, len(kinds)-1).Draw(t, "kind")
	s := *kinds[i]()
	if i < scalars && rapid.IntRange(0, 3).Draw(t, "has a default") == 0 {
		s.Def = value(t, &s)
	}
	s.Optional = rapid.Bool().Draw(t, "optional")
	return &s
}

func (g *schemas) structure(t *rapid.T, depth int) *source {
	s := record("")
	if rapid.IntRange(0, 3).Draw(t, "has a name") > 0 {
		g.names++
		s.Name = fmt.Sprintf("ns%d.Name%d", rapid.IntRange(0, 2).Draw(t, "namespace"), g.names)
		if g.scrub {
			s.Name = "my-" + s.Name + rapid.StringMatching(`[ a-zä-]{0,3}`).Draw(t, "end of the name")
		}
		s.Version, s.Doc = "2", rapid.StringN(0, 3, -1).Draw(t, "doc")
	}
	for i := range rapid.IntRange(0, 4).Draw(t, "members") {
		name := "m" + strconv.Itoa(i)
		if g.scrub {
			name = strconv.Itoa(i) + rapid.String().Draw(t, "name")
		}
		s.Fields = append(s.Fields, member(name, g.draw(t, depth-1)))
	}
	if s.Name != "" {
		g.structs = append(g.structs, s)
	}
	return s
}

// value draws a value of a schema that is not null.
func value(t *rapid.T, s *source) any {
	integer := func(low, high int64) int64 { return rapid.Int64Range(low, high).Draw(t, "integer") }
	switch s.Name {
	case dateName:
		return connect.Date{Millis: integer(math.MinInt32, math.MaxInt32) * millisPerDay, DayOnly: true}
	case timeName:
		return connect.Date{Millis: integer(0, millisPerDay)}
	case timestampName:
		return connect.Date{Millis: integer(-1<<50, 1<<50)}
	case decimalName:
		precision, err := strconv.Atoi(orElse(parameter(s, "connect.decimal.precision"), "64"))
		require.NoError(t, err)
		scale, err := strconv.Atoi(parameter(s, "scale"))
		require.NoError(t, err)
		digits := rapid.StringMatching(`-?[0-9]{1,`+strconv.Itoa(precision)+`}`).Draw(t, "digits")
		unscaled, ok := new(big.Int).SetString(digits, 10)
		require.True(t, ok)
		return connect.Decimal{Unscaled: unscaled, Scale: scale}
	}
	switch s.Kind {
	case connect.KindString:
		text := rapid.String().Draw(t, "text")
		if rapid.IntRange(0, 9).Draw(t, "lone surrogate") == 0 {
			text += "\xED\xA0\x80"
		}
		return connect.Text(text)
	case connect.KindBool:
		return rapid.Bool().Draw(t, "boolean")
	case connect.KindInt16:
		return integer(math.MinInt16, math.MaxInt16)
	case connect.KindInt32:
		return integer(math.MinInt32, math.MaxInt32)
	case connect.KindInt64:
		return integer(math.MinInt64, math.MaxInt64)
	case connect.KindFloat:
		return math.Float32frombits(rapid.Uint32().Draw(t, "float"))
	case connect.KindDouble:
		return math.Float64frombits(rapid.Uint64().Draw(t, "double"))
	case connect.KindBytes:
		b := rapid.SliceOfN(rapid.Byte(), 0, 8).Draw(t, "bytes")
		if rapid.Bool().Draw(t, "buffer") {
			return connect.Buffer(b)
		}
		return connect.ByteArray(b)
	case connect.KindArray:
		out := make([]any, rapid.IntRange(0, 3).Draw(t, "length"))
		for i := range out {
			out[i] = valueOrNull(t, s.Items)
		}
		return out
	case connect.KindMap:
		out := connect.Map{}
		for i := range rapid.IntRange(0, 3).Draw(t, "entries") {
			key := strconv.Itoa(i) + rapid.String().Draw(t, "key")
			out = append(out, connect.Entry{Key: connect.Text(key), Value: valueOrNull(t, s.Items)})
		}
		return out
	}
	out := &connect.Structure{Schema: s, Values: make([]any, len(s.Fields))}
	for i, f := range s.Fields {
		if f.Schema.Def == nil || rapid.Bool().Draw(t, "has a value") {
			out.Values[i] = valueOrNull(t, f.Schema)
		}
	}
	return out
}

func valueOrNull(t *rapid.T, s *source) any {
	if s.Optional && rapid.IntRange(0, 2).Draw(t, "null") == 0 {
		return nil
	}
	return value(t, s)
}

// tester is a test, or a try of rapid.
type tester interface {
	require.TestingT
	Fatalf(format string, args ...any)
}

// read reads all of the data by the text of a schema, with a decoder that shares nothing with this
// package.
func read(t tester, text string, data []byte) any {
	schema, err := hamba.ParseWithCache(text, "", &hamba.SchemaCache{})
	require.NoError(t, err, text)
	r := hamba.NewReader(bytes.NewReader(append(data, "end"...)), 64)
	got := r.ReadNext(schema)
	rest := make([]byte, len("end"))
	r.Read(rest)
	require.NoError(t, r.Error)
	require.Equal(t, "end", string(rest), "all bytes are those of the value")
	return got
}

// same compares what hamba reads with the value that was written.
func same(t tester, s *source, o Options, want, got any) {
	if want == nil {
		require.Nil(t, got)
		return
	}
	if s.Optional { // hamba has the name of the type around a value of a union
		require.Len(t, got, 1)
		for _, inner := range got.(map[string]any) {
			got = inner
		}
	}
	switch v := want.(type) {
	case connect.Text:
		require.Equal(t, strings.ReplaceAll(string(v), "\xED\xA0\x80", "?"), got)
	case bool:
		require.Equal(t, v, got)
	case int64:
		if s.Kind == connect.KindInt64 {
			require.Equal(t, v, got)
		} else {
			require.Equal(t, int(v), got)
		}
	case float32:
		require.True(t, v == got.(float32) || v != v && math.Float32bits(got.(float32)) == 0x7FC00000)
	case float64:
		require.True(t, v == got.(float64) || v != v && math.Float64bits(got.(float64)) == 0x7FF8000000000000)
	case connect.Buffer:
		require.Equal(t, []byte(v), got)
	case connect.ByteArray:
		require.Equal(t, []byte(v), got)
	case connect.Decimal:
		scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(v.Scale)), nil)
		require.Zero(t, new(big.Rat).SetFrac(v.Unscaled, scale).Cmp(got.(*big.Rat)))
	case connect.Date:
		if s.Name == timeName {
			require.Equal(t, time.Duration(v.Millis)*time.Millisecond, got)
		} else {
			require.Equal(t, time.UnixMilli(v.Millis).UTC(), got)
		}
	case []any:
		require.Len(t, got, len(v))
		for i := range v {
			same(t, s.Items, o, v[i], got.([]any)[i])
		}
	case connect.Map:
		require.Len(t, got, len(v))
		for _, e := range v {
			same(t, s.Items, o, e.Value, got.(map[string]any)[string(e.Key)])
		}
	case *connect.Structure:
		require.Len(t, got, len(v.Values))
		for i, f := range s.Fields {
			written := v.Values[i]
			if written == nil && !o.KeepNulls {
				written = f.Schema.Def
			}
			name, err := o.member(f.Name)
			require.NoError(t, err)
			inner, present := got.(map[string]any)[name]
			require.True(t, present)
			same(t, f.Schema, o, written, inner)
		}
	default:
		t.Fatalf("a value of type %T", want)
	}
}

func TestAppend_IsReadByAnotherDecoder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := Options{MetaData: rapid.Bool().Draw(t, "metadata"), Scrub: rapid.Bool().Draw(t, "scrub")}
		g := schemas{scrub: o.Scrub}
		s := g.draw(t, 3)
		v := valueOrNull(t, s)
		made, err := New(o).Schema(s)
		require.NoError(t, err)
		data, err := made.Append(nil, v)
		require.NoError(t, err)

		declared, err := Parse(made.Text())
		require.NoError(t, err)
		require.Equal(t, made.Record(), declared.Record())
		declared.Options = o
		again, err := declared.Append(nil, s, v)
		require.NoError(t, err)
		require.Equal(t, data, again, "a declared schema that is the same")

		if s.Kind == connect.KindBytes && !s.Optional { // its length is that of the message
			data = appendBytes(nil, data)
		}
		same(t, s, o, v, read(t, made.Text(), data))
	})
}
