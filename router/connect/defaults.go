package connect

import (
	"math"
	"regexp"
	"strings"
)

// A default that calls a function has no value before it is called: Debezium takes a neutral one
// instead.
var (
	functionDefault = regexp.MustCompile(`^\(?[A-Za-z0-9_.]+\(.*\)`)
	literalDefault  = regexp.MustCompile(`'((?:[^']|'')*)'`)
)

// neutral is the text that stands for a function, by type. Types that are not listed have no
// default.
var neutral = map[string]string{
	"bit": "0", "varbit": "0", "bool": "f", "bpchar": "", "varchar": "", "text": "",
	"date": "1970-01-01", "time": "00:00:00",
	"timestamp": "1970-01-01 00:00:00", "timestamptz": "1970-01-01 00:00:00+00",
	"timetz": "00:00:00+00", "interval": "00:00:00",
	"int2": "0", "int4": "0", "int8": "0", "float4": "0", "float8": "0", "numeric": "0",
	"money": "0",
	"uuid":  "00000000-0000-0000-0000-000000000000", "json": "{}", "jsonb": "{}",
}

// clocks are defaults that are functions although they have no parentheses.
var clocks = map[string]bool{"current_timestamp": true, "current_time": true, "current_date": true,
	"localtime": true, "localtimestamp": true}

// unread are types whose literals Debezium does not read; a function's neutral value it takes.
var unread = map[string]bool{"money": true, "timetz": true}

// DefaultValue reads a column's default from its expression; nil: none, or none that can be known.
func DefaultValue(expression string, t *Type, c *codec) any {
	if expression == "" || t.Kind == "d" || strings.HasPrefix(expression, "NULL::") {
		return nil
	}
	placeholder, known := neutral[t.Name]
	literal := expression
	switch m := literalDefault.FindStringSubmatch(expression); {
	case functionDefault.MatchString(expression), clocks[strings.ToLower(expression)]:
		if !known {
			return nil
		}
		literal = placeholder
	case !known && t.Kind != "e" && t.Name != "xml", unread[t.Name], t.Name == "numeric" &&
		t.Mod < 0:
		return nil
	case m != nil:
		literal = strings.ReplaceAll(m[1], "''", "'")
	}
	if t.Name == "timestamptz" && strings.HasSuffix(literal, "infinity") {
		return nil
	}
	if c.Read == nil {
		return Text(literal)
	}
	if t.Name == "bool" {
		return literal == "t" || strings.EqualFold(literal, "true")
	}
	v, err := c.Read([]byte(literal))
	// Connect takes no struct as a default
	if _, isStruct := v.(*Structure); err != nil || isStruct {
		return nil
	}
	return boundary(literal, c, v)
}

// boundary is what Debezium makes of a literal at the edge of what its type can hold: it reads
// defaults in another way than rows, where infinity is the last nanosecond of the year 999999999,
// and the end of a day the nanosecond before it.
func boundary(literal string, c *codec, v any) any {
	switch {
	case c.Schema.Name == "io.debezium.time.MicroTimestamp" && literal == "infinity":
		return wrap(math.MaxInt64, 999_999)
	case c.Schema.Name == "io.debezium.time.Date" && literal == "infinity":
		return int64(169_560_311) // the days of that year, as far as 32 bits hold them
	case c.Schema.Name == "io.debezium.time.Date" && literal == "-infinity":
		return int64(-170_999_002)
	case strings.HasPrefix(literal, "24:00:00"):
		if n, ok := v.(int64); ok {
			return n - 1
		}
	}
	return v
}
