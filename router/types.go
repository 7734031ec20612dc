package router

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

// codec turns PostgreSQL's text of one type into a Connect value.
type codec struct {
	schema schema                    // of the type alone: optional and default belong to the column
	read   func([]byte) (any, error) // nil: the text itself is the value
	number bool                      // an integer whose text is written as it is in every format
}

// unsupported is a type that Debezium leaves out of its rows.
type unsupportedTypeError struct{ name string }

func (e *unsupportedTypeError) Error() string { return "type " + e.name + " has no mapping" }

func textCodec(name string) codec {
	c := codec{schema: schema{kind: kindString, name: name}}
	if name != "" {
		c.schema.version = "1"
	}
	return c
}

func integerCodec(k kind) codec {
	return codec{schema: schema{kind: k}, number: true, read: func(b []byte) (any, error) {
		return strconv.ParseInt(string(b), 10, 64)
	}}
}

func named(k kind, name string, read func([]byte) (any, error)) codec {
	return codec{schema: schema{kind: k, name: name, version: "1"}, read: read}
}

// codecOf finds the mapping of a type under the configured handling modes.
func codecOf(t *Type, cfg *Config) (codec, error) {
	switch {
	case t.Kind == "d" && t.Base != nil:
		return codecOf(t.Base, cfg)
	case t.Kind == "e":
		c := textCodec("io.debezium.data.Enum")
		c.schema.params = []parameter{{"allowed", strings.Join(t.Labels, ",")}}
		return c, nil
	case t.Elem != nil:
		return arrayCodec(t, cfg)
	}
	switch t.Name {
	case "text", "varchar", "bpchar", "char", "name", "citext", "inet", "cidr", "macaddr", "macaddr8",
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
		return integerCodec(kindInt16), nil
	case "int4":
		return integerCodec(kindInt32), nil
	case "int8", "oid":
		return integerCodec(kindInt64), nil
	case "bool":
		return codec{schema: schema{kind: kindBool}, read: readBool}, nil
	case "float4":
		return codec{schema: schema{kind: kindFloat}, read: func(b []byte) (any, error) {
			v, err := strconv.ParseFloat(string(b), 32)
			return float32(v), err
		}}, nil
	case "float8":
		return codec{schema: schema{kind: kindDouble}, read: readDouble}, nil
	case "bytea":
		return binaryCodec(cfg.BinaryHandling, decodeBytea), nil
	case "numeric":
		return numericCodec(t.Mod, cfg.DecimalHandling), nil
	case "money":
		return moneyCodec(cfg.DecimalHandling, int(cfg.MoneyDigits)), nil
	case "date":
		return dateCodec(cfg.TimePrecision), nil
	case "time":
		return timeCodec(precision(t.Mod), cfg.TimePrecision, cfg.StrictTypes), nil
	case "timestamp":
		return timestampCodec(precision(t.Mod), cfg.TimePrecision, cfg.StrictTypes), nil
	case "timetz":
		return named(kindString, "io.debezium.time.ZonedTime", readTimeTZ), nil
	case "timestamptz":
		return timestampTZCodec(precision(t.Mod)), nil
	case "interval":
		return intervalCodec(cfg.IntervalHandling, cfg.StrictTypes), nil
	case "bit", "varbit":
		return bitCodec(t), nil
	case "hstore":
		return hstoreCodec(cfg.HstoreHandling), nil
	case "point", "box", "circle", "lseg", "path", "polygon", "line":
		return geometryCodec(t.Name), nil
	}
	if cfg.IncludeUnknown {
		return binaryCodec(cfg.BinaryHandling, func(b []byte) ([]byte, error) { return b, nil }), nil
	}
	return codec{}, &unsupportedTypeError{t.Name}
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
		"base64": base64.StdEncoding.AppendEncode, "base64-url-safe": base64.URLEncoding.AppendEncode, "hex": hex.AppendEncode,
	}[mode]
	if encode != nil {
		return codec{schema: schema{kind: kindString}, read: func(b []byte) (any, error) {
			raw, err := read(b)
			return text(encode(nil, raw)), err
		}}
	}
	return codec{schema: schema{kind: kindBytes}, read: func(b []byte) (any, error) {
		raw, err := read(b)
		return buffer(raw), err
	}}
}

const decimalName = "org.apache.kafka.connect.data.Decimal"

func numericCodec(mod int32, mode string) codec {
	scale := numericScale(mod)
	switch mode {
	case "string":
		return codec{schema: schema{kind: kindString}, read: func(b []byte) (any, error) { return readNumericText(b, mod >= 4, scale) }}
	case "double":
		return codec{schema: schema{kind: kindDouble}, read: readDouble}
	}
	if mod < 4 {
		return codec{schema: schema{kind: kindStruct, name: "io.debezium.data.VariableScaleDecimal", version: "1",
			doc: "Variable scaled decimal", fields: variableScaleFields}, read: readVariableScale}
	}
	return codec{
		schema: schema{kind: kindBytes, name: decimalName, version: "1", params: []parameter{
			{"scale", strconv.Itoa(scale)}, {"connect.decimal.precision", strconv.Itoa(int(mod-4) >> 16)}}},
		read: func(b []byte) (any, error) {
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

// readNumericText gives the text, with all digits of the scale if there is one: a default may have fewer.
func readNumericText(b []byte, scaled bool, scale int) (any, error) {
	switch string(b) {
	case "NaN":
		return text("NAN"), nil
	case "Infinity":
		return text("POSITIVE_INFINITY"), nil
	case "-Infinity":
		return text("NEGATIVE_INFINITY"), nil
	}
	_, fraction, _ := bytes.Cut(b, []byte{'.'})
	if !scaled || len(fraction) >= scale {
		return text(b), nil
	}
	out := append(make([]byte, 0, len(b)+scale+1), b...)
	if len(fraction) == 0 {
		out = append(out, '.')
	}
	return text(append(out, bytes.Repeat([]byte{'0'}, scale-len(fraction))...)), nil
}

var (
	variableScaleFields = []*field{{"scale", requiredInt32}, {"value", requiredBytes}}
	variableScaleSchema = &schema{kind: kindStruct, fields: variableScaleFields}
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
	return &structure{variableScaleSchema, []any{int64(d.scale), byteArray(d.twosComplement())}}, nil
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
		return codec{schema: schema{kind: kindString}, read: func(b []byte) (any, error) { return text(plain(b)), nil }}
	case "double":
		return codec{schema: schema{kind: kindDouble}, read: func(b []byte) (any, error) { return readDouble(plain(b)) }}
	}
	return codec{
		schema: schema{kind: kindBytes, name: decimalName, version: "1", params: []parameter{{"scale", strconv.Itoa(digits)}}},
		read: func(b []byte) (any, error) {
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
		return codec{schema: schema{kind: kindBool}, read: func(b []byte) (any, error) { return string(b) == "1", nil }}
	}
	length := t.Mod
	if length < 0 {
		length = math.MaxInt32
	}
	return codec{
		schema: schema{kind: kindBytes, name: "io.debezium.data.Bits", version: "1", params: []parameter{{"length", strconv.Itoa(int(length))}}},
		read: func(b []byte) (any, error) {
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
		return codec{schema: schema{kind: kindMap, items: optionalString}, read: func(b []byte) (any, error) { return parseHstore(b) }}
	}
	return named(kindString, "io.debezium.data.Json", func(b []byte) (any, error) {
		m, err := parseHstore(b)
		if err != nil {
			return nil, err
		}
		return text(plainJSON.append(nil, m)), nil
	})
}
