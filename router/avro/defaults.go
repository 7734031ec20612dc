package avro

import (
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/postrider/postrider/router/connect"
)

// appendDefault writes a default as JSON: bytes are a text of the characters 0 to 255. A float is
// written with the digits of a double where it is the default of a member, as Java's Avro has it.
func (o *Options) appendDefault(dst []byte, s *connect.Schema, v any, wide bool) []byte {
	switch v := v.(type) {
	case nil:
		return append(dst, "null"...)
	case bool:
		return strconv.AppendBool(dst, v)
	case int64:
		return strconv.AppendInt(dst, v, 10)
	case float32:
		if wide {
			return appendNumber(dst, float64(v))
		}
		return appendNumber(dst, v)
	case float64:
		return appendNumber(dst, v)
	case connect.Text:
		return appendQuoted(dst, v)
	case connect.Date:
		n, _ := dateNumber(s, v)
		return strconv.AppendInt(dst, n, 10)
	case connect.Decimal:
		return appendLatin1(dst, v.TwosComplement())
	case connect.Buffer:
		return appendLatin1(dst, v)
	case connect.ByteArray:
		return appendLatin1(dst, v)
	case []any:
		dst = append(dst, '[')
		for i, item := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = o.appendDefault(dst, s.Items, item, wide)
		}
		return append(dst, ']')
	case connect.Map:
		dst = append(dst, '{')
		for i, e := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendQuoted(dst, e.Key), ':')
			dst = o.appendDefault(dst, s.Items, e.Value, wide)
		}
		return append(dst, '}')
	case *connect.Structure:
		dst = append(dst, '{')
		for i, f := range s.Fields {
			if i > 0 {
				dst = append(dst, ',')
			}
			name, _ := o.member(f.Name)
			dst = append(appendQuoted(dst, []byte(name)), ':')
			dst = o.appendDefault(dst, f.Schema, v.Values[i], wide)
		}
		return append(dst, '}')
	}
	return append(dst, "null"...)
}

// appendNumber writes a float with Java's digits; one that is not finite is a text, as Jackson has
// it.
func appendNumber(dst []byte, v any) []byte {
	e := connect.NewEncoder(connect.Converter{Format: "json"}, false)
	text, _ := e.Value(nil, nil, v) // no number is refused
	return append(dst, text...)
}

func appendLatin1(dst, b []byte) []byte {
	text := make([]byte, 0, len(b))
	for _, c := range b {
		text = utf8.AppendRune(text, rune(c))
	}
	return appendQuoted(dst, text)
}

// defaultFits reports whether Avro takes a default for a member: it has to be of the first type of
// each union, and JSON has no numbers that are not finite. What does not fit is in connect.default
// alone. Java's Avro takes more in a schema that it writes, which other libraries then do not
// read: an item that is optional in the default of an array, and the text "NaN".
func defaultFits(s *connect.Schema, v any) bool {
	if v == nil {
		return s.Optional && nullIndex(s) == 0
	}
	if s.Optional && nullIndex(s) == 0 {
		return false
	}
	switch v := v.(type) {
	case float32:
		return !math.IsNaN(float64(v)) && !math.IsInf(float64(v), 0)
	case float64:
		return !math.IsNaN(v) && !math.IsInf(v, 0)
	case []any:
		for _, item := range v {
			if !defaultFits(s.Items, item) {
				return false
			}
		}
	case connect.Map:
		for _, e := range v {
			if !defaultFits(s.Items, e.Value) {
				return false
			}
		}
	case *connect.Structure:
		for i, f := range s.Fields {
			if !defaultFits(f.Schema, v.Values[i]) {
				return false
			}
		}
	}
	return true
}
