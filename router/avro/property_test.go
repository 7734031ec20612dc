package avro

import (
	"bytes"
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	hamba "github.com/hamba/avro/v2"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/postrider/postrider/router/connect"
	"github.com/postrider/postrider/router/connect/connecttest"
)

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
		g := connecttest.Schemas{AnyNames: o.Scrub}
		s := g.Draw(t, 3)
		v := g.ValueOrNull(t, s)
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
