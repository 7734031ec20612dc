package protobuf

import (
	"encoding/binary"
	"math"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/postrider/postrider/router/connect"
)

// front is what the framing has after the id, before a message with a name and with places in the
// file: those of the messages around it, and its own. Confluent's is the number of the places and
// the places, or a single zero for the first message of a file; Apicurio's is a message with the
// name in its field 1, after its length.
func (o Options) front(name string, places ...int) []byte {
	if o.NamesMessage {
		ref := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), name)
		return protowire.AppendBytes(nil, ref)
	}
	if len(places) == 1 && places[0] == 0 {
		return []byte{0}
	}
	dst := binary.AppendVarint(nil, int64(len(places)))
	for _, place := range places {
		dst = binary.AppendVarint(dst, int64(place))
	}
	return dst
}

// Append appends which message it is and the message of a value of the schema. What a null at the
// top becomes is the caller's matter: ProtobufConverter writes a record without a value. Errors
// are connect.Unwritable's; dst is then worth nothing.
func (s *Schema) Append(dst []byte, v any) ([]byte, error) {
	dst = append(dst, s.front...)
	if s.top == nil {
		b, err := wrapped(s.source, v)
		return append(dst, b...), err
	}
	return s.members(dst, s.top, s.source, v)
}

// members appends the fields of a struct.
func (s *Schema) members(dst []byte, m *message, source *connect.Schema, v any) ([]byte, error) {
	structure, ok := v.(*connect.Structure)
	if !ok || !source.SameFields(structure.Schema) {
		return dst, connect.Mismatch(source)
	}
	var err error
	for i, f := range m.fields {
		value := structure.Values[i]
		if value == nil && !s.options.KeepNulls {
			value = source.Fields[i].Schema.Def
		}
		if dst, err = s.field(dst, f, protowire.Number(i+1), value); err != nil {
			return dst, connect.WithinMember(err, source.Fields[i].Name)
		}
	}
	return dst, nil
}

func (s *Schema) field(dst []byte, f *field, n protowire.Number, v any) (_ []byte, err error) {
	switch v := v.(type) {
	case nil:
		return dst, nil
	case connect.Map:
		return s.entries(dst, f, n, v)
	case []any:
		if f.label != "repeated" {
			return dst, connect.Mismatch(f.source)
		}
		return s.items(dst, f, n, v)
	}
	return s.single(dst, f, n, v, f.label == "optional")
}

// items appends an array. Numbers and bools are packed, as they are by default in proto3.
func (s *Schema) items(dst []byte, f *field, n protowire.Number, items []any) (_ []byte,
	err error) {
	if len(items) == 0 {
		return dst, nil
	}
	if f.message == nil && f.write == nil && f.wire != protowire.BytesType {
		var packed []byte
		for i, item := range items {
			if packed, _, err = scalarValue(packed, f.source, item); err != nil {
				return dst, connect.WithinMember(err, strconv.Itoa(i))
			}
		}
		return protowire.AppendBytes(protowire.AppendTag(dst, n, protowire.BytesType), packed), nil
	}
	for i, item := range items {
		if dst, err = s.single(dst, f, n, item, true); err != nil {
			return dst, connect.WithinMember(err, strconv.Itoa(i))
		}
	}
	return dst, nil
}

// entries appends a map in the order that it has.
func (s *Schema) entries(dst []byte, f *field, n protowire.Number, entries connect.Map) (_ []byte,
	err error) {
	if f.source.Kind != connect.KindMap {
		return dst, connect.Mismatch(f.source)
	}
	for _, e := range entries {
		var b []byte
		for i, v := range []any{e.Key, e.Value} {
			if b, err = s.field(b, f.message.fields[i], protowire.Number(i+1), v); err != nil {
				return dst, connect.WithinMember(err, string(e.Key))
			}
		}
		dst = protowire.AppendBytes(protowire.AppendTag(dst, n, protowire.BytesType), b)
	}
	return dst, nil
}

// single appends a value that is no array. A zero is left out, unless the field is optional or an
// item.
func (s *Schema) single(dst []byte, f *field, n protowire.Number, v any, zeros bool) ([]byte,
	error) {
	var b []byte
	var err error
	switch {
	case v == nil:
		return dst, connect.Unwritable("have the application leave it out", "Protobuf has no null in "+
			"an array")
	case f.message != nil:
		b, err = s.members(nil, f.message, f.source, v)
	case f.write != nil:
		b, err = f.write(f.source, v)
	default:
		b, zero, err := scalarValue(nil, f.source, v)
		if zero && !zeros || err != nil {
			return dst, err
		}
		return append(protowire.AppendTag(dst, n, f.wire), b...), nil
	}
	return protowire.AppendBytes(protowire.AppendTag(dst, n, protowire.BytesType), b), err
}

// wrapped is the message of a wrapper.
func wrapped(s *connect.Schema, v any) ([]byte, error) {
	b, zero, err := scalarValue(nil, s, v)
	if zero || err != nil {
		return nil, err
	}
	return append(protowire.AppendTag(nil, 1, scalars[s.Kind].wire), b...), nil
}

// scalarValue appends a value without its tag, and reports whether it is the zero of its type. The
// zero of float and double is that with all bits zero alone.
func scalarValue(dst []byte, s *connect.Schema, v any) (_ []byte, zero bool, err error) {
	switch v := v.(type) {
	case connect.Text:
		if s.Kind == connect.KindString {
			return protowire.AppendBytes(dst, connect.AppendEncoded(nil, v)), len(v) == 0, nil
		}
	case connect.Buffer:
		if s.Kind == connect.KindBytes {
			return protowire.AppendBytes(dst, v), len(v) == 0, nil
		}
	case connect.ByteArray:
		if s.Kind == connect.KindBytes {
			return protowire.AppendBytes(dst, v), len(v) == 0, nil
		}
	case bool:
		if s.Kind == connect.KindBool {
			return protowire.AppendVarint(dst, protowire.EncodeBool(v)), !v, nil
		}
	case int64:
		low, high := int64(math.MinInt64), int64(math.MaxInt64)
		switch s.Kind {
		case connect.KindInt16:
			low, high = math.MinInt16, math.MaxInt16
		case connect.KindInt32:
			low, high = math.MinInt32, math.MaxInt32
		case connect.KindInt64:
		default:
			return dst, false, connect.Mismatch(s)
		}
		if v < low || v > high {
			return dst, false, connect.Unwritable("", "a number out of the range of %s", s.Kind)
		}
		return protowire.AppendVarint(dst, uint64(v)), v == 0, nil //nolint:gosec // two's complement
	case float32:
		if s.Kind == connect.KindFloat {
			bits := math.Float32bits(v)
			return protowire.AppendFixed32(dst, bits), bits == 0, nil
		}
	case float64:
		if s.Kind == connect.KindDouble {
			bits := math.Float64bits(v)
			return protowire.AppendFixed64(dst, bits), bits == 0, nil
		}
	}
	return dst, false, connect.Mismatch(s)
}
