package avro

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"strconv"

	"github.com/postrider/postrider/router/connect"
)

// Append appends the Avro binary form of a value of the schema. As Confluent's serializer does, it
// writes bytes at the top as they are, without their length; bytes that are optional have one.
// What a null at the top becomes is the caller's matter: AvroConverter writes a record without a
// value. Errors are connect.Unwritable's; dst is then worth nothing.
func (s *Schema) Append(dst []byte, v any) ([]byte, error) {
	if s.source == nil {
		return appendAnything(dst, v)
	}
	w := writer{s.options}
	if s.source.Kind == connect.KindBytes && !s.source.Optional {
		b, err := bytesOf(s.source, v)
		return append(dst, b...), err
	}
	return w.value(dst, s.source, v)
}

// writer writes values by their Connect schema alone, from which the Avro schema is made. An
// encoder by the Avro schema would want a map for each struct, and would search the unions of each
// value.
type writer struct{ Options }

func (w *writer) value(dst []byte, s *connect.Schema, v any) ([]byte, error) {
	if s.Optional {
		null := nullIndex(s)
		if v == nil {
			return appendLong(dst, int64(null)), nil
		}
		dst = appendLong(dst, int64(1-null))
	}
	switch v := v.(type) {
	case nil:
		return dst, errNull()
	case connect.Text:
		if s.Kind == connect.KindString {
			return w.text(dst, s, v)
		}
	case bool:
		if s.Kind == connect.KindBool {
			return appendBool(dst, v), nil
		}
	case int64, connect.Date:
		n, err := integer(s, v)
		return appendLong(dst, n), err
	case float32:
		if s.Kind == connect.KindFloat {
			return appendFloat(dst, v), nil
		}
	case float64:
		if s.Kind == connect.KindDouble {
			return appendDouble(dst, v), nil
		}
	case connect.Decimal, connect.Buffer, connect.ByteArray:
		b, err := bytesOf(s, v)
		return appendBytes(dst, b), err
	case []any:
		if s.Kind == connect.KindArray {
			return w.items(dst, s, v)
		}
	case connect.Map:
		if s.Kind == connect.KindMap {
			return w.entries(dst, s, v)
		}
	case *connect.Structure:
		if s.Kind == connect.KindStruct && s.SameFields(v.Schema) {
			return w.members(dst, s, v)
		}
	}
	return dst, connect.Mismatch(s)
}

func (w *writer) items(dst []byte, s *connect.Schema, v []any) ([]byte, error) {
	return appendBlock(dst, v, func(dst []byte, i int, item any) ([]byte, error) {
		dst, err := w.value(dst, s.Items, item)
		return dst, connect.WithinMember(err, strconv.Itoa(i))
	})
}

// entries writes a map in the order that it has.
func (w *writer) entries(dst []byte, s *connect.Schema, v connect.Map) ([]byte, error) {
	return appendBlock(dst, v, func(dst []byte, _ int, e connect.Entry) ([]byte, error) {
		dst, err := w.value(appendText(dst, e.Key), s.Items, e.Value)
		return dst, connect.WithinMember(err, string(e.Key))
	})
}

// appendBlock writes the items of an array, or the entries of a map, as one block.
func appendBlock[T any](dst []byte, items []T,
	write func(dst []byte, i int, item T) ([]byte, error)) (_ []byte, err error) {
	if len(items) > 0 {
		dst = appendLong(dst, int64(len(items)))
	}
	for i, item := range items {
		if dst, err = write(dst, i, item); err != nil {
			return dst, err
		}
	}
	return append(dst, 0), nil
}

func (w *writer) members(dst []byte, s *connect.Schema, v *connect.Structure) (_ []byte,
	err error) {
	for i, f := range s.Fields {
		if dst, err = w.value(dst, f.Schema, w.memberOf(v, i, f)); err != nil {
			return dst, connect.WithinMember(err, f.Name)
		}
	}
	return dst, nil
}

// memberOf is a member, or in the place of null its default, as Connect reads a struct.
func (o *Options) memberOf(v *connect.Structure, i int, f *connect.Field) any {
	if member := v.Values[i]; member != nil || o.KeepNulls {
		return member
	}
	return f.Schema.Def
}

func (w *writer) text(dst []byte, s *connect.Schema, v connect.Text) ([]byte, error) {
	if !w.isEnum(s) {
		return appendText(dst, v), nil
	}
	i := slices.Index(symbols(s), string(v))
	if i < 0 {
		return dst, connect.Unwritable("", "a text that is no symbol of the enum")
	}
	return appendLong(dst, int64(i)), nil
}

// integer is the number that is written for a value of an integer schema.
func integer(s *connect.Schema, v any) (n int64, err error) {
	switch v := v.(type) {
	case connect.Date:
		if n, err = dateNumber(s, v); err != nil {
			return 0, err
		}
	case int64:
		switch n = v; s.Name {
		case dateName, timeName, timestampName:
			return 0, connect.Mismatch(s)
		}
	}
	low, high := int64(math.MinInt64), int64(math.MaxInt64)
	switch s.Kind {
	case connect.KindInt16:
		low, high = math.MinInt16, math.MaxInt16
	case connect.KindInt32:
		low, high = math.MinInt32, math.MaxInt32
	case connect.KindInt64:
	default:
		return 0, connect.Mismatch(s)
	}
	if n < low || n > high {
		return 0, connect.Unwritable("", "%d is out of the range of %s", n, s.Kind)
	}
	return n, nil
}

// dateNumber is the number behind one of Connect's dates: days, or milliseconds.
func dateNumber(s *connect.Schema, v connect.Date) (int64, error) {
	switch {
	case s.Name == dateName && s.Kind == connect.KindInt32 && v.Millis%connect.MillisPerDay == 0:
		return v.Millis / connect.MillisPerDay, nil
	case s.Name == timeName && s.Kind == connect.KindInt32:
		if v.Millis < 0 || v.Millis > connect.MillisPerDay {
			return 0, connect.Unwritable("", "%d ms is no time of day", v.Millis)
		}
		return v.Millis, nil
	case s.Name == timestampName && s.Kind == connect.KindInt64:
		return v.Millis, nil
	}
	return 0, connect.Mismatch(s)
}

// bytesOf is what is written for a value of a schema of bytes.
func bytesOf(s *connect.Schema, v any) ([]byte, error) {
	logical := s.Name == connect.DecimalName
	switch v := v.(type) {
	case nil:
		return nil, errNull()
	case connect.Buffer:
		if s.Kind == connect.KindBytes && !logical {
			return v, nil
		}
	case connect.ByteArray:
		if s.Kind == connect.KindBytes && !logical {
			return v, nil
		}
	case connect.Decimal:
		if s.Kind != connect.KindBytes || !logical {
			break
		}
		if scale := cmp.Or(parameter(s, "scale"), "0"); scale != strconv.Itoa(v.Scale) {
			return nil, connect.Unwritable("", "a decimal with %d digits behind the point, where "+
				"the schema has %s", v.Scale, scale)
		}
		return v.TwosComplement(), nil
	}
	return nil, connect.Mismatch(s)
}

// appendLong writes an int or a long: Avro's integers are those of encoding/binary.
func appendLong(dst []byte, n int64) []byte { return binary.AppendVarint(dst, n) }

func appendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, 1)
	}
	return append(dst, 0)
}

// appendFloat and appendDouble write the one NaN that Java has, whatever bits it came with.
func appendFloat(dst []byte, v float32) []byte {
	bits := math.Float32bits(v)
	if v != v {
		bits = 0x7FC00000
	}
	return binary.LittleEndian.AppendUint32(dst, bits)
}

func appendDouble(dst []byte, v float64) []byte {
	bits := math.Float64bits(v)
	if v != v {
		bits = 0x7FF8000000000000
	}
	return binary.LittleEndian.AppendUint64(dst, bits)
}

func appendBytes(dst, b []byte) []byte {
	return append(appendLong(dst, int64(len(b))), b...)
}

// appendText writes text, with a question mark for a lone surrogate, as Java does.
func appendText(dst []byte, t connect.Text) []byte {
	if bytes.IndexByte(t, 0xED) >= 0 { // the first byte of each surrogate
		t = connect.AppendEncoded(nil, t)
	}
	return appendBytes(dst, t)
}

func errNull() error {
	return connect.Unwritable(`where it is a number that is not finite, set `+
		`router.decimal.handling.mode to "string" or "double"`, "null for what is required")
}
