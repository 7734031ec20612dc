package connect

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Handling is the options of Debezium's connector that decide how values are written.
type Handling struct {
	DecimalHandling, BinaryHandling, TimePrecision, IntervalHandling, HstoreHandling string

	IncludeUnknown bool // types without a mapping as bytes
	MoneyDigits    int
	StrictTypes    bool // as Debezium takes them
}

// codec turns PostgreSQL's text of one type into a Connect value.
type codec struct {
	// of the type alone: optional and default belong to the column
	Schema Schema
	Read   func([]byte) (any, error) // nil: the text itself is the value
	Number bool                      // an integer whose text is written as it is in every format
}

// UnsupportedTypeError is a type that Debezium leaves out of its rows.
type UnsupportedTypeError struct{ Name string }

func (e *UnsupportedTypeError) Error() string { return "type " + e.Name + " has no mapping" }

func textCodec(name string) codec {
	c := codec{Schema: Schema{Kind: KindString, Name: name}}
	if name != "" {
		c.Schema.Version = "1"
	}
	return c
}

func integerCodec(k Kind) codec {
	return codec{Schema: Schema{Kind: k}, Number: true, Read: func(b []byte) (any, error) {
		return strconv.ParseInt(string(b), 10, 64)
	}}
}

// named is a codec with a schema of a name in version 1, and parameters if it has some.
func named(k Kind, name string, read func([]byte) (any, error), params ...Parameter) codec {
	return codec{Schema: Schema{Kind: k, Name: name, Version: "1", Params: params}, Read: read}
}

// plain is a codec with a schema without a name.
func plain(k Kind, read func([]byte) (any, error)) codec {
	return codec{Schema: Schema{Kind: k}, Read: read}
}

const jsonName = "io.debezium.data.Json"

// textTypes are the types whose text is the value, with the names of their schemas.
var textTypes = map[string]string{
	"text": "", "varchar": "", "bpchar": "", "char": "", "name": "", "citext": "", "inet": "",
	"cidr": "", "macaddr": "", "macaddr8": "", "int4range": "", "int8range": "", "numrange": "",
	"tsrange": "", "tstzrange": "", "daterange": "", "uuid": "io.debezium.data.Uuid",
	"json": jsonName, "jsonb": jsonName, "xml": "io.debezium.data.Xml",
	"ltree": "io.debezium.data.Ltree", "tsvector": "io.debezium.data.Tsvector",
}

// codecs are those of types with one codec.
var codecs = map[string]codec{
	"int2": integerCodec(KindInt16), "int4": integerCodec(KindInt32), "int8": integerCodec(KindInt64),
	"oid": integerCodec(KindInt64), "bool": plain(KindBool, readBool),
	"float4": plain(KindFloat, readFloat), "float8": plain(KindDouble, readDouble),
	"timetz": named(KindString, "io.debezium.time.ZonedTime", readTimeTZ),
}

// codecsOf are those of types whose codec depends on their modifier or on the handling modes.
var codecsOf = map[string]func(t *Type, h *Handling) codec{
	"bytea": byteaCodec, "numeric": numericCodec, "money": moneyCodec, "date": dateCodec,
	"time": timeCodec, "timestamp": timestampCodec, "timestamptz": timestampTZCodec,
	"interval": intervalCodec, "bit": bitCodec, "varbit": bitCodec, "hstore": hstoreCodec,
}

// CodecOf finds the mapping of a type under the configured handling modes.
func CodecOf(t *Type, h *Handling) (codec, error) {
	switch {
	case t.Kind == "d" && t.Base != nil:
		return CodecOf(t.Base, h)
	case t.Kind == "e":
		c := textCodec("io.debezium.data.Enum")
		c.Schema.Params = []Parameter{{"allowed", strings.Join(t.Labels, ",")}}
		return c, nil
	case t.Elem != nil:
		return arrayCodec(t, h)
	}
	if name, isText := textTypes[t.Name]; isText {
		return textCodec(name), nil
	}
	if c, known := codecs[t.Name]; known {
		return c, nil
	}
	if of, known := codecsOf[t.Name]; known {
		return of(t, h), nil
	}
	if g, known := geometries[t.Name]; known {
		return codec{Schema: *g.schema, Read: func(b []byte) (any, error) {
			n, err := numbers(b, g.numbers)
			if err != nil {
				return nil, err
			}
			return &Structure{g.schema, g.values(n, b)}, nil
		}}, nil
	}
	if h.IncludeUnknown {
		return binaryCodec(h.BinaryHandling, func(b []byte) ([]byte, error) { return b, nil }), nil
	}
	return codec{}, &UnsupportedTypeError{t.Name}
}

func precision(mod int32) int {
	if mod < 0 {
		return 6
	}
	return int(mod)
}

func readBool(b []byte) (any, error) {
	switch string(b) {
	case "t", "true":
		return true, nil
	case "f", "false":
		return false, nil
	}
	return nil, fmt.Errorf("%q is no boolean", b)
}

func readFloat(b []byte) (any, error) {
	v, err := strconv.ParseFloat(string(b), 32)
	return float32(v), err
}

// readDouble reads a number; one that is too large is infinite.
func readDouble(b []byte) (any, error) {
	v, err := strconv.ParseFloat(string(b), 64)
	if errors.Is(err, strconv.ErrRange) {
		err = nil
	}
	return v, err
}

// decodeBytea reads the hex form; the escape form does not occur, since
// the session sets bytea_output to hex.
func decodeBytea(b []byte) ([]byte, error) {
	if len(b) < 2 || b[0] != '\\' || b[1] != 'x' {
		return nil, fmt.Errorf("%.20q is no bytea in hex form", b)
	}
	out := make([]byte, hex.DecodedLen(len(b)-2))
	_, err := hex.Decode(out, b[2:])
	return out, err
}

// binaryModes write bytes as text.
var binaryModes = map[string]func(dst, b []byte) []byte{
	"base64":          base64.StdEncoding.AppendEncode,
	"base64-url-safe": base64.URLEncoding.AppendEncode,
	"hex":             hex.AppendEncode,
}

// binaryCodec writes what is read as bytes, or as text with one of the other modes.
func binaryCodec(mode string, read func([]byte) ([]byte, error)) codec {
	if encode := binaryModes[mode]; encode != nil {
		return plain(KindString, func(b []byte) (any, error) {
			raw, err := read(b)
			return Text(encode(nil, raw)), err
		})
	}
	return plain(KindBytes, func(b []byte) (any, error) {
		raw, err := read(b)
		return Buffer(raw), err
	})
}

func byteaCodec(_ *Type, h *Handling) codec { return binaryCodec(h.BinaryHandling, decodeBytea) }

// DecimalName is Connect's logical type of decimals.
const DecimalName = "org.apache.kafka.connect.data.Decimal"

// notFinite has Debezium's texts for numbers without a decimal form.
var notFinite = map[string]string{
	"NaN": "NAN", "Infinity": "POSITIVE_INFINITY", "-Infinity": "NEGATIVE_INFINITY",
}

// readDecimal reads a number with the form that it gets; one that is not finite has no value.
func readDecimal(form func(Decimal) any) func([]byte) (any, error) {
	return func(b []byte) (any, error) {
		if notFinite[string(b)] != "" {
			return nil, nil
		}
		d, err := parseDecimal(b)
		if err != nil {
			return nil, err
		}
		return form(d), nil
	}
}

func numericCodec(t *Type, h *Handling) codec {
	mod, mode, scale := t.Mod, h.DecimalHandling, numericScale(t.Mod)
	switch {
	case mode == "string":
		return plain(KindString,
			func(b []byte) (any, error) { return numericText(b, mod >= 4, scale), nil })
	case mode == "double":
		return plain(KindDouble, readDouble)
	case mod < 4:
		read := readDecimal(func(d Decimal) any {
			return &Structure{variableScale, []any{int64(d.Scale), ByteArray(d.TwosComplement())}}
		})
		return codec{Schema: *variableScale,
			Read: func(b []byte) (any, error) { return read(withoutTrailingZeros(b)) }}
	}
	return named(KindBytes, DecimalName,
		readDecimal(func(d Decimal) any { return d.withScale(scale) }),
		Parameter{"scale", strconv.Itoa(scale)},
		Parameter{"connect.decimal.precision", strconv.Itoa(int(mod-4) >> 16)})
}

// numericText gives the text, with all digits of the scale if there is one: a default may have
// fewer.
func numericText(b []byte, scaled bool, scale int) Text {
	if text := notFinite[string(b)]; text != "" {
		return Text(text)
	}
	_, fraction, _ := bytes.Cut(b, []byte{'.'})
	if !scaled || len(fraction) >= scale {
		return Text(b)
	}
	out := slices.Clone(b)
	if len(fraction) == 0 {
		out = append(out, '.')
	}
	return Text(append(out, bytes.Repeat([]byte{'0'}, scale-len(fraction))...))
}

var variableScale = &Schema{Kind: KindStruct, Name: "io.debezium.data.VariableScaleDecimal",
	Version: "1", Doc: "Variable scaled decimal",
	Fields: []*Field{{"scale", requiredInt32}, {"value", requiredBytes}}}

// plainMoney leaves of a text of money what a number has. A negative one may be in parentheses.
func plainMoney(b []byte) (out []byte) {
	for _, c := range b {
		switch {
		case c >= '0' && c <= '9', c == '.':
			out = append(out, c)
		case c == '-' || c == '(':
			out = append([]byte{'-'}, out...)
		}
	}
	return out
}

func moneyCodec(_ *Type, h *Handling) codec {
	switch h.DecimalHandling {
	case "string":
		return plain(KindString, func(b []byte) (any, error) { return Text(plainMoney(b)), nil })
	case "double":
		return plain(KindDouble, func(b []byte) (any, error) { return readDouble(plainMoney(b)) })
	}
	read := readDecimal(func(d Decimal) any { return d.rounded(h.MoneyDigits) })
	return named(KindBytes, DecimalName,
		func(b []byte) (any, error) { return read(plainMoney(b)) },
		Parameter{"scale", strconv.Itoa(h.MoneyDigits)})
}

// bitCodec: one bit is a boolean, more are bytes with the lowest bits first, as many as it takes.
func bitCodec(t *Type, _ *Handling) codec {
	if t.Mod == 1 || t.Name == "bit" && t.Mod < 0 {
		return plain(KindBool, func(b []byte) (any, error) { return string(b) == "1", nil })
	}
	length := t.Mod
	if length < 0 {
		length = math.MaxInt32
	}
	read := func(b []byte) (any, error) {
		out := make(ByteArray, (len(b)+7)/8)
		for i := range b {
			switch b[len(b)-1-i] {
			case '1':
				out[i/8] |= 1 << (i % 8)
			case '0':
			default:
				return nil, fmt.Errorf("%q is no bit string", b)
			}
		}
		return ByteArray(bytes.TrimRight(out, "\x00")), nil
	}
	return named(KindBytes, "io.debezium.data.Bits", read,
		Parameter{"length", strconv.Itoa(int(length))})
}

func hstoreCodec(_ *Type, h *Handling) codec {
	if h.HstoreHandling == "map" {
		return codec{Schema: Schema{Kind: KindMap, Items: optionalString},
			Read: func(b []byte) (any, error) { return parseHstore(b) }}
	}
	return named(KindString, jsonName, func(b []byte) (any, error) {
		m, err := parseHstore(b)
		return Text(PlainJSON.append(nil, m)), err
	})
}
