package connect

import (
	"encoding/base64"
	"math"
	"strconv"
	"strings"
	"time"
	"unsafe"
)

// Text is a string; lone surrogates in it are three bytes each.
type Text []byte

// Buffer is a ByteBuffer of Java: columns of type bytea and of unknown types.
type Buffer []byte

// ByteArray is a byte[] of Java: bit strings and members of Debezium's structs.
type ByteArray []byte

// Date is a java.util.Date, which Debezium makes with time.precision.mode=connect.
type Date struct {
	Millis  int64
	DayOnly bool
}

// Map is a map with keys of text, in the order in which it is written.
type Map []Entry

// Entry is an entry of a Map.
type Entry struct {
	Key   Text
	Value any
}

// Structure is a struct of Connect.
type Structure struct {
	Schema *Schema
	Values []any // one per field
}

// bytesOf gives the bytes of a value that is nothing but bytes in Java.
func bytesOf(v any) ([]byte, bool) {
	switch v := v.(type) {
	case Buffer:
		return v, true
	case ByteArray:
		return v, true
	}
	return nil, false
}

// notation is how values are written as text.
type notation struct {
	leaf  func(dst []byte, v any) []byte // a value that has none inside
	quote func(dst, s []byte) []byte     // text, and the name of a member

	comma, colon, open string // of arrays and maps, of members, before the members of a struct
	sparse             bool   // structs have no members that are null
}

var (
	PlainJSON   = &notation{appendJSONLeaf, AppendJSONString, ",", ":", "{", false}
	numericJSON = &notation{appendNumericLeaf, AppendJSONString, ",", ":", "{", false}
	headerText  = &notation{appendHeaderLeaf, appendHeaderString, ",", ":", "{", false}
	// StringConverter's, which is Java's toString; bytes, for which Java has no text, are in Base64.
	plainText = &notation{appendTextLeaf, AppendEncoded, ", ", "=", "Struct{", true}
	javaText  = &notation{appendJavaLeaf, AppendEncoded, ", ", "=", "Struct{", true}
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
				dst = append(dst, n.comma...)
			}
			dst = n.append(dst, e)
		}
		return append(dst, ']')
	case Map:
		dst = append(dst, '{')
		for i, e := range v {
			if i > 0 {
				dst = append(dst, n.comma...)
			}
			dst = append(n.quote(dst, e.Key), n.colon...)
			dst = n.append(dst, e.Value)
		}
		return append(dst, '}')
	case *Structure:
		dst = append(dst, n.open...)
		start := len(dst)
		for i, f := range v.Schema.Fields {
			if n.sparse && v.Values[i] == nil {
				continue
			}
			if len(dst) > start {
				dst = append(dst, ',')
			}
			name := unsafe.Slice(unsafe.StringData(f.Name), len(f.Name))
			dst = append(n.quote(dst, name), n.colon...)
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
	case Decimal:
		return appendBase64String(dst, v.TwosComplement())
	case Buffer:
		return appendBase64String(dst, v)
	case ByteArray:
		return appendBase64String(dst, v)
	case Date:
		if v.DayOnly {
			return strconv.AppendInt(dst, floorDiv(v.Millis, MillisPerDay), 10)
		}
		return strconv.AppendInt(dst, v.Millis, 10)
	}
	panic("router: value of unknown kind")
}

func appendNumericLeaf(dst []byte, v any) []byte {
	if d, ok := v.(Decimal); ok {
		return d.appendText(dst)
	}
	return appendJSONLeaf(dst, v)
}

// appendHeaderLeaf writes a value inside of another as SimpleHeaderConverter does.
func appendHeaderLeaf(dst []byte, v any) []byte {
	switch v := v.(type) {
	case float32:
		return appendJavaFloat(dst, v)
	case float64:
		return appendJavaDouble(dst, v)
	case Date:
		return v.appendISO(dst)
	}
	return appendNumericLeaf(dst, v)
}

func appendTextLeaf(dst []byte, v any) []byte {
	if d, ok := v.(Date); ok {
		return d.appendJava(dst)
	}
	if b, ok := bytesOf(v); ok {
		return base64.StdEncoding.AppendEncode(dst, b)
	}
	return appendHeaderLeaf(dst, v)
}

func appendJavaLeaf(dst []byte, v any) []byte {
	switch v := v.(type) {
	case Buffer:
		n := strconv.Itoa(len(v))
		return append(dst, "java.nio.HeapByteBuffer[pos=0 lim="+n+" cap="+n+"]"...)
	case ByteArray:
		return append(dst, "[B@0"...)
	}
	return appendTextLeaf(dst, v)
}

// AppendEncoded writes text to UTF-8, where Java has a question mark for a lone surrogate.
func AppendEncoded(dst, s []byte) []byte {
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

// Scrub replaces what is not valid in a name as Confluent's converters do: by what URLs have for
// it, with underscores in the place of their signs. A name that begins with one of the characters
// of refused gets an x before it.
func Scrub(name, refused string) string {
	const upperHex = "0123456789ABCDEF"
	var out strings.Builder
	for i, c := range AppendEncoded(nil, []byte(name)) {
		if i == 0 && strings.IndexByte(refused, c) >= 0 {
			out.WriteByte('x')
		}
		switch {
		case c == '_', c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
			out.WriteByte(c)
		case strings.IndexByte(" .-*", c) >= 0:
			out.WriteByte('_')
		default: // as %2F
			out.Write([]byte{'_', upperHex[c>>4], upperHex[c&15]})
		}
	}
	return out.String()
}

// appendHeaderValue writes a value as SimpleHeaderConverter does: text and bytes bare at the top,
// quoted inside.
func appendHeaderValue(dst []byte, v any) []byte {
	if t, ok := v.(Text); ok {
		return AppendEncoded(dst, t)
	}
	if b, ok := bytesOf(v); ok {
		return base64.StdEncoding.AppendEncode(dst, b)
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

// Calendar is the day of a date in Java's calendar, which is the Julian one before 15 October 1582
// and counts years before Christ from one.
func (d Date) Calendar() (year int64, month time.Month, day int64) {
	t := time.UnixMilli(d.Millis).UTC()
	year, month, day = int64(t.Year()), t.Month(), int64(t.Day())
	if reform := time.Date(1582, 10, 15, 0, 0, 0, 0, time.UTC); t.Before(reform) {
		year, month, day = julianFromDays(floorDiv(d.Millis, MillisPerDay))
	}
	if year <= 0 {
		year = 1 - year
	}
	return year, month, day
}

// appendJava writes a date as java.util.Date prints it.
func (d Date) appendJava(dst []byte) []byte {
	t := time.UnixMilli(d.Millis).UTC()
	year, month, day := d.Calendar()
	dst = t.AppendFormat(dst, "Mon ")
	dst = append(dst, month.String()[:3]...)
	dst = appendPadded(append(dst, ' '), day, 2)
	dst = t.AppendFormat(dst, " 15:04:05 UTC ")
	return strconv.AppendInt(dst, year, 10)
}

// appendISO chooses the form by the time alone, as Connect does: a time before the second day
// of 1970 looks like a time of day, midnights like a date.
func (d Date) appendISO(dst []byte) []byte {
	layout := "2006-01-02T15:04:05.000Z"
	switch {
	case d.Millis < MillisPerDay:
		layout = "15:04:05.000Z"
	case d.Millis%MillisPerDay == 0:
		layout = "2006-01-02"
	}
	return time.UnixMilli(d.Millis).UTC().AppendFormat(dst, layout)
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// Alias is the bytes as a string, without a copy: it is good for as long as they do not change.
func Alias(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
