package router

import (
	"encoding/base64"
	"encoding/hex"
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
		return byteaCodec(cfg.BinaryHandling), nil
	case "numeric":
		return numericCodec(t.Mod, cfg.DecimalHandling), nil
	case "money":
		return moneyCodec(cfg.DecimalHandling), nil
	case "date":
		return dateCodec(cfg.TimePrecision), nil
	case "time":
		return timeCodec(precision(t.Mod), cfg.TimePrecision), nil
	case "timestamp":
		return timestampCodec(precision(t.Mod), cfg.TimePrecision), nil
	case "timetz":
		return named(kindString, "io.debezium.time.ZonedTime", readTimeTZ), nil
	case "timestamptz":
		return timestampTZCodec(precision(t.Mod)), nil
	case "interval":
		return intervalCodec(cfg.IntervalHandling), nil
	case "bit", "varbit":
		return bitCodec(t), nil
	case "hstore":
		return hstoreCodec(cfg.HstoreHandling), nil
	case "point", "box", "circle":
		return geometryCodec(t.Name), nil
	}
	if cfg.IncludeUnknown {
		return codec{schema: schema{kind: kindBytes}, read: func(b []byte) (any, error) { return buffer(b), nil }}, nil
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

func readDouble(b []byte) (any, error) { return strconv.ParseFloat(string(b), 64) }

// decodeBytea reads the hex form; the escape form does not occur, since the session asks for hex.
func decodeBytea(b []byte) ([]byte, error) {
	if len(b) < 2 || b[0] != '\\' || b[1] != 'x' {
		return nil, fmt.Errorf("%.20q is no bytea in hex form", b)
	}
	out := make([]byte, hex.DecodedLen(len(b)-2))
	_, err := hex.Decode(out, b[2:])
	return out, err
}

func byteaCodec(mode string) codec {
	asText := func(encode func([]byte) []byte) codec {
		return codec{schema: schema{kind: kindString}, read: func(b []byte) (any, error) {
			raw, err := decodeBytea(b)
			return text(encode(raw)), err
		}}
	}
	switch mode {
	case "base64":
		return asText(func(b []byte) []byte { return base64.StdEncoding.AppendEncode(nil, b) })
	case "base64-url-safe":
		return asText(func(b []byte) []byte { return base64.URLEncoding.AppendEncode(nil, b) })
	case "hex":
		return asText(func(b []byte) []byte { return hex.AppendEncode(nil, b) })
	}
	return codec{schema: schema{kind: kindBytes}, read: func(b []byte) (any, error) {
		raw, err := decodeBytea(b)
		return buffer(raw), err
	}}
}

const decimalName = "org.apache.kafka.connect.data.Decimal"

func numericCodec(mod int32, mode string) codec {
	switch mode {
	case "string":
		return codec{schema: schema{kind: kindString}, read: readNumericText}
	case "double":
		return codec{schema: schema{kind: kindDouble}, read: readDouble}
	}
	if mod < 4 {
		return codec{schema: schema{kind: kindStruct, name: "io.debezium.data.VariableScaleDecimal", version: "1",
			doc: "Variable scaled decimal", fields: variableScaleFields}, read: readVariableScale}
	}
	scale := numericScale(mod)
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

func readNumericText(b []byte) (any, error) {
	switch string(b) {
	case "NaN":
		return text("NAN"), nil
	case "Infinity":
		return text("POSITIVE_INFINITY"), nil
	case "-Infinity":
		return text("NEGATIVE_INFINITY"), nil
	}
	return text(b), nil
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

func moneyCodec(mode string) codec {
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
		schema: schema{kind: kindBytes, name: decimalName, version: "1", params: []parameter{{"scale", "2"}}},
		read: func(b []byte) (any, error) {
			d, err := parseDecimal(plain(b))
			if err != nil {
				return nil, err
			}
			return d.withScale(2), nil
		},
	}
}

// What Debezium makes of a date that is infinite.
const (
	dateInfinity      = 2146033979
	dateMinusInfinity = -2147472691
)

func dateCodec(mode string) codec {
	days := func(b []byte) (int64, error) {
		m, err := parseMoment(b)
		switch m.infinity {
		case 1:
			m.days = dateInfinity
		case -1:
			m.days = dateMinusInfinity
		}
		return m.days, err
	}
	switch mode {
	case "connect":
		return named(kindInt32, "org.apache.kafka.connect.data.Date", func(b []byte) (any, error) {
			d, err := days(b)
			return date{d * 86_400_000, true}, err
		})
	case "isostring":
		return named(kindString, "io.debezium.time.IsoDate", func(b []byte) (any, error) {
			d, err := days(b)
			return text(append(appendDate(nil, d), 'Z')), err
		})
	}
	return named(kindInt32, "io.debezium.time.Date", func(b []byte) (any, error) {
		d, err := days(b)
		return d, err
	})
}

func timeCodec(digits int, mode string) codec {
	clock := func(scale func(int64) any) func([]byte) (any, error) {
		return func(b []byte) (any, error) {
			v, err := parseClock(string(b))
			return scale(v), err
		}
	}
	switch {
	case mode == "connect":
		return named(kindInt32, "org.apache.kafka.connect.data.Time", clock(func(v int64) any { return date{v / 1000, false} }))
	case mode == "isostring":
		return named(kindString, "io.debezium.time.IsoTime", clock(func(v int64) any { return text(append(appendClock(nil, v, -1), 'Z')) }))
	case mode == "nanoseconds":
		return named(kindInt64, "io.debezium.time.NanoTime", clock(func(v int64) any { return v * 1000 }))
	case mode == "adaptive" && digits <= 3:
		return named(kindInt32, "io.debezium.time.Time", clock(func(v int64) any { return v / 1000 }))
	}
	return named(kindInt64, "io.debezium.time.MicroTime", clock(func(v int64) any { return v }))
}

func timestampCodec(digits int, mode string) codec {
	read := func(finite func(m moment) any) func([]byte) (any, error) {
		return func(b []byte) (any, error) {
			m, err := parseMoment(b)
			switch {
			case err != nil:
				return nil, err
			case m.infinity > 0:
				return int64(math.MaxInt64), nil
			case m.infinity < 0:
				return int64(math.MinInt64), nil
			}
			return finite(m), nil
		}
	}
	adaptive := mode == "adaptive" || mode == "adaptive_time_microseconds"
	switch {
	case mode == "connect":
		return named(kindInt64, "org.apache.kafka.connect.data.Timestamp", func(b []byte) (any, error) {
			v, err := read(func(m moment) any { return floorDiv(m.epochMicros(), 1000) })(b)
			if err != nil {
				return nil, err
			}
			return date{v.(int64), false}, nil
		})
	case mode == "isostring":
		return named(kindString, "io.debezium.time.IsoTimestamp", func(b []byte) (any, error) {
			m, err := parseMoment(b)
			if err != nil || m.infinity != 0 {
				return text(b), err
			}
			out := append(appendDate(nil, m.days), 'T')
			return text(append(appendClock(out, m.micros, -1), 'Z')), nil
		})
	case mode == "nanoseconds":
		return named(kindInt64, "io.debezium.time.NanoTimestamp", read(func(m moment) any { return m.epochMicros() * 1000 }))
	case adaptive && digits <= 3:
		return named(kindInt64, "io.debezium.time.Timestamp", read(func(m moment) any { return floorDiv(m.epochMicros(), 1000) }))
	}
	return named(kindInt64, "io.debezium.time.MicroTimestamp", read(func(m moment) any { return m.epochMicros() }))
}

func timestampTZCodec(digits int) codec {
	return named(kindString, "io.debezium.time.ZonedTimestamp", func(b []byte) (any, error) {
		m, err := parseMoment(b)
		if err != nil || m.infinity != 0 {
			return text(b), err
		}
		out := append(appendDate(make([]byte, 0, 32), m.days), 'T')
		return text(append(appendClock(out, m.micros, digits), 'Z')), nil
	})
}

func readTimeTZ(b []byte) (any, error) {
	v, err := parseClock(string(b))
	if err != nil {
		return nil, err
	}
	v -= floorDiv(v, microsPerDay) * microsPerDay
	return text(append(appendClock(nil, v, -1), 'Z')), nil
}

func intervalCodec(mode string) codec {
	if mode == "string" {
		return named(kindString, "io.debezium.time.Interval", func(b []byte) (any, error) {
			v, err := parseInterval(b)
			return text(v.appendISO(nil)), err
		})
	}
	return named(kindInt64, "io.debezium.time.MicroDuration", func(b []byte) (any, error) {
		v, err := parseInterval(b)
		return v.total(), err
	})
}

// bitCodec: one bit is a boolean, more are bytes with the lowest bits first.
func bitCodec(t *Type) codec {
	if t.Name == "bit" && t.Mod <= 1 {
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
			return out, nil
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

func arrayCodec(t *Type, cfg *Config) (codec, error) {
	elem := *t.Elem
	elem.Mod = t.Mod
	e, err := codecOf(&elem, cfg)
	if err != nil {
		return codec{}, err
	}
	items := e.schema
	items.optional = elem.Kind != "e"
	return codec{schema: schema{kind: kindArray, items: &items}, read: func(b []byte) (any, error) {
		parts, err := parseArray(b)
		if err != nil {
			return nil, err
		}
		out := make([]any, len(parts))
		for i, p := range parts {
			switch {
			case p == nil:
			case e.read == nil:
				out[i] = text(p)
			default:
				if out[i], err = e.read(p); err != nil {
					return nil, err
				}
			}
		}
		return out, nil
	}}, nil
}
