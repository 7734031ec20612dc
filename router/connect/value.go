package connect

import (
	"encoding/base64"
	"math"
	"strconv"
	"time"
	"unsafe"
)

// Text is a string; it may hold lone surrogates as three bytes each.
type Text []byte

// buffer is what Java holds as a ByteBuffer: columns of type bytea and of unknown types.
type buffer []byte

// byteArray is what Java holds as a byte[]: bit strings and members of Debezium's structs.
type byteArray []byte

// date is a java.util.Date, which Debezium makes with time.precision.mode=connect.
type date struct {
	ms      int64
	dayOnly bool
}

type mapping []entry

type entry struct {
	key   Text
	value any
}

type Structure struct {
	Schema *Schema
	Values []any // one per field
}

// notation is how values are written in JSON's brackets. JsonConverter and SimpleHeaderConverter
// differ in it alone.
type notation struct {
	leaf  func(dst []byte, v any) []byte // a value that has none inside
	quote func(dst, s []byte) []byte     // text, and the name of a member
}

var (
	PlainJSON   = &notation{appendJSONLeaf, appendJSONString}
	numericJSON = &notation{appendNumericLeaf, appendJSONString} // decimal.format=NUMERIC
	headerText  = &notation{appendHeaderLeaf, appendHeaderString}
)

func (n *notation) append(dst []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(dst, "null"...)
	case Text:
		return n.quote(dst, v)
	case []any:
		dst = append(dst, '[')
		for i, e := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = n.append(dst, e)
		}
		return append(dst, ']')
	case mapping:
		dst = append(dst, '{')
		for i, e := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(n.quote(dst, e.key), ':')
			dst = n.append(dst, e.value)
		}
		return append(dst, '}')
	case *Structure:
		dst = append(dst, '{')
		for i, f := range v.Schema.Fields {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(n.quote(dst, unsafe.Slice(unsafe.StringData(f.Name), len(f.Name))), ':')
			dst = n.append(dst, v.Values[i])
		}
		return append(dst, '}')
	}
	return n.leaf(dst, v)
}

// appendJSONLeaf writes a value that has none inside as JsonConverter does.
func appendJSONLeaf(dst []byte, v any) []byte {
	switch v := v.(type) {
	case bool:
		return strconv.AppendBool(dst, v)
	case int64:
		return strconv.AppendInt(dst, v, 10)
	case float32:
		if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
			return append(appendJavaFloat(append(dst, '"'), v), '"')
		}
		return appendJavaFloat(dst, v)
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return append(appendJavaDouble(append(dst, '"'), v), '"')
		}
		return appendJavaDouble(dst, v)
	case decimal:
		return appendBase64String(dst, v.twosComplement())
	case buffer:
		return appendBase64String(dst, v)
	case byteArray:
		return appendBase64String(dst, v)
	case date:
		if v.dayOnly {
			return strconv.AppendInt(dst, floorDiv(v.ms, 86_400_000), 10)
		}
		return strconv.AppendInt(dst, v.ms, 10)
	}
	panic("router: value of unknown kind")
}

func appendNumericLeaf(dst []byte, v any) []byte {
	if d, ok := v.(decimal); ok {
		return d.appendText(dst)
	}
	return appendJSONLeaf(dst, v)
}

// javaText is how StringConverter prints bytes, for which Java has no text of its own.
type javaText bool

// append writes a value as Java's toString does, which is what StringConverter writes. Bytes are
// an exception unless Java's own form is asked for: as they are at the top, Base64 inside.
func (j javaText) append(dst []byte, v any, top bool) []byte {
	switch v := v.(type) {
	case nil:
		return append(dst, "null"...)
	case Text:
		return AppendEncoded(dst, v)
	case bool:
		return strconv.AppendBool(dst, v)
	case int64:
		return strconv.AppendInt(dst, v, 10)
	case float32:
		return appendJavaFloat(dst, v)
	case float64:
		return appendJavaDouble(dst, v)
	case decimal:
		return v.appendText(dst)
	case buffer:
		if bool(j) {
			n := strconv.Itoa(len(v))
			return append(dst, "java.nio.HeapByteBuffer[pos=0 lim="+n+" cap="+n+"]"...)
		}
		return appendPlainBytes(dst, v, top)
	case byteArray:
		if bool(j) {
			return append(dst, "[B@0"...)
		}
		return appendPlainBytes(dst, v, top)
	case date:
		return v.appendJava(dst)
	case []any:
		dst = append(dst, '[')
		for i, e := range v {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = j.append(dst, e, false)
		}
		return append(dst, ']')
	case mapping:
		dst = append(dst, '{')
		for i, e := range v {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = AppendEncoded(dst, e.key)
			dst = append(dst, '=')
			dst = j.append(dst, e.value, false)
		}
		return append(dst, '}')
	case *Structure:
		dst = append(dst, "Struct{"...)
		first := true
		for i, f := range v.Schema.Fields {
			if v.Values[i] == nil {
				continue
			}
			if !first {
				dst = append(dst, ',')
			}
			first = false
			dst = append(dst, f.Name...)
			dst = append(dst, '=')
			dst = j.append(dst, v.Values[i], false)
		}
		return append(dst, '}')
	}
	panic("router: value of unknown kind")
}

func appendPlainBytes(dst, b []byte, top bool) []byte {
	if top {
		return append(dst, b...)
	}
	return base64.StdEncoding.AppendEncode(dst, b)
}

// AppendEncoded writes text to UTF-8, where Java has a question mark for a lone surrogate.
func AppendEncoded(dst []byte, s Text) []byte {
	for i := 0; i < len(s); i++ {
		if s[i] == 0xED && i+2 < len(s) && s[i+1] >= 0xA0 {
			dst = append(dst, '?')
			i += 2
			continue
		}
		dst = append(dst, s[i])
	}
	return dst
}

// appendHeaderValue writes a value as SimpleHeaderConverter does: text and bytes bare at the top,
// quoted inside.
func appendHeaderValue(dst []byte, v any) []byte {
	switch v := v.(type) {
	case Text:
		return AppendEncoded(dst, v)
	case buffer:
		return base64.StdEncoding.AppendEncode(dst, v)
	case byteArray:
		return base64.StdEncoding.AppendEncode(dst, v)
	}
	return headerText.append(dst, v)
}

func appendHeaderString(dst, s []byte) []byte {
	dst = append(dst, '"')
	for _, c := range s {
		if c == '"' || c == '\\' {
			dst = append(dst, '\\')
		}
		dst = append(dst, c)
	}
	return append(dst, '"')
}

func appendHeaderLeaf(dst []byte, v any) []byte {
	switch v := v.(type) {
	case float32:
		return appendJavaFloat(dst, v)
	case float64:
		return appendJavaDouble(dst, v)
	case decimal:
		return v.appendText(dst)
	case date:
		return v.appendISO(dst)
	}
	return appendJSONLeaf(dst, v)
}

// appendJava writes a date as java.util.Date prints it: in the Julian calendar before it was
// reformed, and years before Christ without a sign.
func (d date) appendJava(dst []byte) []byte {
	t := time.UnixMilli(d.ms).UTC()
	const reform = -12_219_292_800_000 // 1582-10-15
	if d.ms >= reform {
		dst = t.AppendFormat(dst, "Mon Jan 02 15:04:05 UTC ")
		return strconv.AppendInt(dst, int64(t.Year()), 10)
	}
	day := floorDiv(d.ms, 86_400_000)
	year, month, dom := julianFromDays(day)
	if year <= 0 {
		year = 1 - year
	}
	dst = t.AppendFormat(dst, "Mon ")
	dst = append(dst, time.Month(month).String()[:3]...)
	dst = appendPadded(append(dst, ' '), dom, 2)
	dst = t.AppendFormat(append(dst, ' '), "15:04:05 UTC ")
	return strconv.AppendInt(dst, year, 10)
}

// appendISO chooses the form by the time alone, as Connect does: what lies before the second day
// of 1970 looks like a time of day, midnights like a date.
func (d date) appendISO(dst []byte) []byte {
	t := time.UnixMilli(d.ms).UTC()
	const day = 86_400_000
	switch {
	case d.ms < day:
		return t.AppendFormat(dst, "15:04:05.000Z")
	case d.ms%day == 0:
		return t.AppendFormat(dst, "2006-01-02")
	}
	return t.AppendFormat(dst, "2006-01-02T15:04:05.000Z")
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// sameBytes is the bytes as a string, without a copy.
func sameBytes(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
