package connect

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
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

// unsupported is a type that Debezium leaves out of its rows.
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

func named(k Kind, name string, read func([]byte) (any, error)) codec {
	return codec{Schema: Schema{Kind: k, Name: name, Version: "1"}, Read: read}
}

// CodecOf finds the mapping of a type under the configured handling modes.
func CodecOf(t *Type, h *Handling) (codec, error) {
	switch {
	case t.Kind == "d" && t.Base != nil:
		return CodecOf(t.Base, h)
	case t.Kind == "e":
		c := textCodec("io.debezium.data.Enum")
		c.Schema.params = []parameter{{"allowed", strings.Join(t.Labels, ",")}}
		return c, nil
	case t.Elem != nil:
		return arrayCodec(t, h)
	}
	switch t.Name {
	case "text", "varchar", "bpchar", "char", "name", "citext", "inet", "cidr", "macaddr",
		"macaddr8",
		"int4range", "int8range", "numrange", "tsrange", "tstzrange", "daterange":
		return textCodec(""), nil
	case "uuid":
		return textCodec("io.debezium.data.Uuid"), nil
	case "json", "jsonb":
		return textCodec("io.debezium.data.Json"), nil
	case "xml":
		return textCodec("io.debezium.data.Xml"), nil
	case "ltree":
		return textCodec("io.debezium.data.Ltree"), nil
	case "tsvector":
		return textCodec("io.debezium.data.Tsvector"), nil
	case "int2":
		return integerCodec(KindInt16), nil
	case "int4":
		return integerCodec(KindInt32), nil
	case "int8", "oid":
		return integerCodec(KindInt64), nil
	case "bool":
		return codec{Schema: Schema{Kind: KindBool}, Read: readBool}, nil
	case "float4":
		return codec{Schema: Schema{Kind: KindFloat}, Read: func(b []byte) (any, error) {
			v, err := strconv.ParseFloat(string(b), 32)
			return float32(v), err
		}}, nil
	case "float8":
		return codec{Schema: Schema{Kind: KindDouble}, Read: readDouble}, nil
	case "bytea":
		return binaryCodec(h.BinaryHandling, decodeBytea), nil
	case "numeric":
		return numericCodec(t.Mod, h.DecimalHandling), nil
	case "money":
		return moneyCodec(h.DecimalHandling, h.MoneyDigits), nil
	case "date":
		return dateCodec(h.TimePrecision), nil
	case "time":
		return timeCodec(precision(t.Mod), h.TimePrecision, h.StrictTypes), nil
	case "timestamp":
		return timestampCodec(precision(t.Mod), h.TimePrecision, h.StrictTypes), nil
	case "timetz":
		return named(KindString, "io.debezium.time.ZonedTime", readTimeTZ), nil
	case "timestamptz":
		return timestampTZCodec(precision(t.Mod)), nil
	case "interval":
		return intervalCodec(h.IntervalHandling, h.StrictTypes), nil
	case "bit", "varbit":
		return bitCodec(t), nil
	case "hstore":
		return hstoreCodec(h.HstoreHandling), nil
	case "point", "box", "circle", "lseg", "path", "polygon", "line":
		return geometryCodec(t.Name), nil
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

// readDouble reads a number; one that is too large is infinite.
func readDouble(b []byte) (any, error) {
	v, err := strconv.ParseFloat(string(b), 64)
	if errors.Is(err, strconv.ErrRange) {
		err = nil
	}
	return v, err
}

// decodeBytea reads the hex form; the escape form does not occur, since the session asks for hex.
func decodeBytea(b []byte) ([]byte, error) {
	if len(b) < 2 || b[0] != '\\' || b[1] != 'x' {
		return nil, fmt.Errorf("%.20q is no bytea in hex form", b)
	}
	out := make([]byte, hex.DecodedLen(len(b)-2))
	_, err := hex.Decode(out, b[2:])
	return out, err
}

// binaryCodec writes what is read as bytes, or as text with one of the other modes.
func binaryCodec(mode string, read func([]byte) ([]byte, error)) codec {
	encode := map[string]func(dst, b []byte) []byte{
		"base64":          base64.StdEncoding.AppendEncode,
		"base64-url-safe": base64.URLEncoding.AppendEncode, "hex": hex.AppendEncode,
	}[mode]
	if encode != nil {
		return codec{Schema: Schema{Kind: KindString}, Read: func(b []byte) (any, error) {
			raw, err := read(b)
			return Text(encode(nil, raw)), err
		}}
	}
	return codec{Schema: Schema{Kind: KindBytes}, Read: func(b []byte) (any, error) {
		raw, err := read(b)
		return buffer(raw), err
	}}
}

const decimalName = "org.apache.kafka.connect.data.Decimal"

func numericCodec(mod int32, mode string) codec {
	scale := numericScale(mod)
	switch mode {
	case "string":
		return codec{Schema: Schema{Kind: KindString},
			Read: func(b []byte) (any, error) { return readNumericText(b, mod >= 4, scale) }}
	case "double":
		return codec{Schema: Schema{Kind: KindDouble}, Read: readDouble}
	}
	if mod < 4 {
		return codec{Schema: Schema{Kind: KindStruct,
			Name: "io.debezium.data.VariableScaleDecimal", Version: "1",
			doc: "Variable scaled decimal", Fields: variableScaleFields}, Read: readVariableScale}
	}
	return codec{
		Schema: Schema{Kind: KindBytes, Name: decimalName, Version: "1", params: []parameter{
			{"scale", strconv.Itoa(scale)}, {"connect.decimal.precision",
				strconv.Itoa(int(mod-4) >> 16)}}},
		Read: func(b []byte) (any, error) {
			if notFinite(b) {
				return nil, nil
			}
			d, err := parseDecimal(b)
			if err != nil {
				return nil, err
			}
			return d.withScale(scale), nil
		},
	}
}

func notFinite(b []byte) bool {
	return string(b) == "NaN" || string(b) == "Infinity" || string(b) == "-Infinity"
}

// readNumericText gives the text, with all digits of the scale if there is one: a default may have
// fewer.
func readNumericText(b []byte, scaled bool, scale int) (any, error) {
	switch string(b) {
	case "NaN":
		return Text("NAN"), nil
	case "Infinity":
		return Text("POSITIVE_INFINITY"), nil
	case "-Infinity":
		return Text("NEGATIVE_INFINITY"), nil
	}
	_, fraction, _ := bytes.Cut(b, []byte{'.'})
	if !scaled || len(fraction) >= scale {
		return Text(b), nil
	}
	out := append(make([]byte, 0, len(b)+scale+1), b...)
	if len(fraction) == 0 {
		out = append(out, '.')
	}
	return Text(append(out, bytes.Repeat([]byte{'0'}, scale-len(fraction))...)), nil
}

var (
	variableScaleFields = []*Field{{"scale", requiredInt32}, {"value", requiredBytes}}
	variableScaleSchema = &Schema{Kind: KindStruct, Fields: variableScaleFields}
)

func readVariableScale(b []byte) (any, error) {
	if notFinite(b) {
		return nil, nil
	}
	d, err := parseDecimal(b)
	if err != nil {
		return nil, err
	}
	d = d.withoutTrailingZeros()
	return &Structure{variableScaleSchema, []any{int64(d.scale), byteArray(d.twosComplement())}},
		nil
}

func moneyCodec(mode string, digits int) codec {
	plain := func(b []byte) []byte {
		out := make([]byte, 0, len(b))
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
	switch mode {
	case "string":
		return codec{Schema: Schema{Kind: KindString},
			Read: func(b []byte) (any, error) { return Text(plain(b)), nil }}
	case "double":
		return codec{Schema: Schema{Kind: KindDouble},
			Read: func(b []byte) (any, error) { return readDouble(plain(b)) }}
	}
	return codec{
		Schema: Schema{Kind: KindBytes, Name: decimalName, Version: "1",
			params: []parameter{{"scale", strconv.Itoa(digits)}}},
		Read: func(b []byte) (any, error) {
			d, err := parseDecimal(plain(b))
			if err != nil {
				return nil, err
			}
			return d.rounded(digits), nil
		},
	}
}

// bitCodec: one bit is a boolean, more are bytes with the lowest bits first, as many as it takes.
func bitCodec(t *Type) codec {
	if t.Mod == 1 || t.Name == "bit" && t.Mod < 0 {
		return codec{Schema: Schema{Kind: KindBool},
			Read: func(b []byte) (any, error) { return string(b) == "1", nil }}
	}
	length := t.Mod
	if length < 0 {
		length = math.MaxInt32
	}
	return codec{
		Schema: Schema{Kind: KindBytes, Name: "io.debezium.data.Bits", Version: "1",
			params: []parameter{{"length", strconv.Itoa(int(length))}}},
		Read: func(b []byte) (any, error) {
			out := make(byteArray, (len(b)+7)/8)
			for i := range b {
				switch b[len(b)-1-i] {
				case '1':
					out[i/8] |= 1 << (i % 8)
				case '0':
				default:
					return nil, fmt.Errorf("%q is no bit string", b)
				}
			}
			return byteArray(bytes.TrimRight(out, "\x00")), nil
		},
	}
}

func hstoreCodec(mode string) codec {
	if mode == "map" {
		return codec{Schema: Schema{Kind: KindMap, items: optionalString},
			Read: func(b []byte) (any, error) { return parseHstore(b) }}
	}
	return named(KindString, "io.debezium.data.Json", func(b []byte) (any, error) {
		m, err := parseHstore(b)
		if err != nil {
			return nil, err
		}
		return Text(PlainJSON.append(nil, m)), nil
	})
}
