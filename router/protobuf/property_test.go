package protobuf

import (
	"context"
	"math/big"
	"testing"
	"time"

	"github.com/bufbuild/protocompile"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
	"pgregory.net/rapid"

	"github.com/postrider/postrider/router/connect"
	"github.com/postrider/postrider/router/connect/connecttest"
)

// Each message is read by Go's library, with the text of the schema compiled anew, as what was written.
func TestAppend_IsReadByAnotherDecoder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		form := rapid.IntRange(0, 2).Draw(t, "nulls")
		o := Options{Optional: form == 1, Wrappers: form == 2, KeepNulls: rapid.Bool().Draw(t, "keep nulls")}
		g := connecttest.Schemas{Finite: true, Messages: true}
		s := g.Struct(t, 3)
		v := g.Value(t, s)
		made, err := New(s, o)
		require.NoError(t, err)
		data, err := made.Append(nil, v)
		if hasNullItem(v) {
			require.ErrorContains(t, err, "no null in an array")
			return
		}
		require.NoError(t, err)
		require.Equal(t, byte(0), data[0])

		sources := map[string]string{"top.proto": withMeta(made.Text())}
		compiler := protocompile.Compiler{Resolver: protocompile.WithStandardImports(protocompile.CompositeResolver{
			&protocompile.SourceResolver{Accessor: protocompile.SourceAccessorFromMap(sources)}, protocompile.ResolverFunc(known)})}
		linked, err := compiler.Compile(context.Background(), "top.proto")
		require.NoError(t, err, made.Text())
		m := dynamicpb.NewMessage(linked[0].Messages().Get(0))
		require.NoError(t, proto.Unmarshal(data[1:], m))
		again, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		require.NoError(t, err)
		require.Equal(t, again, data[1:], "another library writes the same bytes")
		require.Equal(t, made.Record(), string(m.Descriptor().FullName()))
		sameMessage(t, s, o, v.(*connect.Structure), m)
	})
}

func hasNullItem(v any) bool {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			if item == nil || hasNullItem(item) {
				return true
			}
		}
	case connect.Map:
		for _, e := range v {
			if hasNullItem(e.Value) {
				return true
			}
		}
	case *connect.Structure:
		for _, member := range v.Values {
			if hasNullItem(member) {
				return true
			}
		}
	}
	return false
}

func sameMessage(t *rapid.T, s *connect.Schema, o Options, want *connect.Structure, got protoreflect.Message) {
	require.Empty(t, got.GetUnknown())
	fields := got.Descriptor().Fields()
	require.Equal(t, len(s.Fields), fields.Len())
	for i, f := range s.Fields {
		v := want.Values[i]
		if v == nil && !o.KeepNulls {
			v = f.Schema.Def
		}
		field := fields.Get(i)
		require.Equal(t, f.Name, string(field.Name()))
		require.Equal(t, protoreflect.FieldNumber(i+1), field.Number())
		sameField(t, f.Schema, o, v, got, field)
	}
}

func sameField(t *rapid.T, s *connect.Schema, o Options, want any, in protoreflect.Message, field protoreflect.FieldDescriptor) {
	got := in.Get(field)
	switch want := want.(type) {
	case nil:
		require.True(t, field.IsList() && got.List().Len() == 0 || !in.Has(field), "a null is not sent")
	case []any:
		require.Equal(t, len(want), got.List().Len())
		for i, item := range want {
			sameSingle(t, s.Items, o, item, got.List().Get(i), field)
		}
	case connect.Map:
		require.Equal(t, len(want), got.List().Len())
		for i, e := range want {
			entry := got.List().Get(i).Message()
			members := entry.Descriptor().Fields()
			require.Equal(t, string(e.Key), entry.Get(members.ByName("key")).String())
			sameField(t, s.Items, o, e.Value, entry, members.ByName("value"))
		}
	default:
		if field.HasPresence() {
			require.True(t, in.Has(field), "a zero is told from a null")
		}
		sameSingle(t, s, o, want, got, field)
	}
}

func sameSingle(t *rapid.T, s *connect.Schema, o Options, want any, got protoreflect.Value, field protoreflect.FieldDescriptor) {
	member := func(name string) protoreflect.Value {
		m := got.Message()
		return m.Get(m.Descriptor().Fields().ByName(protoreflect.Name(name)))
	}
	switch want := want.(type) {
	case *connect.Structure:
		sameMessage(t, s, o, want, got.Message())
		return
	case connect.Decimal:
		require.Equal(t, int64(want.Scale), member("scale").Int())
		b := member("value").Bytes()
		n := new(big.Int).SetBytes(b)
		if len(b) > 0 && b[0]&0x80 != 0 { // two's complement
			n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(len(b)*8))) //nolint:gosec // short
		}
		require.Zero(t, want.Unscaled.Cmp(n))
		return
	case connect.Date:
		at := time.UnixMilli(want.Millis).UTC()
		switch s.Name {
		case connecttest.Date:
			require.Equal(t, at, time.Date(int(member("year").Int()), time.Month(member("month").Int()), int(member("day").Int()), 0, 0, 0, 0, time.UTC))
		case connecttest.Time:
			read := time.Duration(member("hours").Int())*time.Hour + time.Duration(member("minutes").Int())*time.Minute +
				time.Duration(member("seconds").Int())*time.Second + time.Duration(member("nanos").Int())
			require.Equal(t, time.Duration(want.Millis)*time.Millisecond, read)
		default:
			require.Equal(t, at, time.Unix(member("seconds").Int(), member("nanos").Int()).UTC())
		}
		return
	}
	if field.Message() != nil { // a wrapper
		got = member("value")
	}
	switch want := want.(type) {
	case connect.Text:
		require.Equal(t, string(want), got.String())
	case bool:
		require.Equal(t, want, got.Bool())
	case int64:
		require.Equal(t, want, got.Int())
	case float32:
		require.Equal(t, float64(want), got.Float())
	case float64:
		require.Equal(t, want, got.Float())
	case connect.Buffer:
		require.Equal(t, append([]byte{}, want...), append([]byte{}, got.Bytes()...))
	case connect.ByteArray:
		require.Equal(t, append([]byte{}, want...), append([]byte{}, got.Bytes()...))
	default:
		t.Fatalf("a value of type %T", want)
	}
}
