package router

import (
	"regexp"
	"strings"
)

// A default that calls a function has no value before it is called: Debezium takes a neutral one instead.
var (
	functionDefault = regexp.MustCompile(`^\(?[A-Za-z0-9_.]+\(.*\)`)
	literalDefault  = regexp.MustCompile(`'((?:[^']|'')*)'`)
)

// neutral is the text that stands for a function, by type. Types that are not listed have no default.
var neutral = map[string]string{
	"bit": "0", "varbit": "0", "bool": "f", "bpchar": "", "varchar": "", "text": "", "date": "1970-01-01", "time": "00:00:00",
	"timestamp": "1970-01-01 00:00:00", "timestamptz": "1970-01-01 00:00:00+00", "timetz": "00:00:00+00", "interval": "00:00:00",
	"int2": "0", "int4": "0", "int8": "0", "float4": "0", "float8": "0", "numeric": "0", "money": "0",
	"uuid": "00000000-0000-0000-0000-000000000000", "json": "{}", "jsonb": "{}",
}

// defaultValue reads a column's default from its expression; nil: none, or none that can be known.
func defaultValue(expression string, t *Type, c *codec) any {
	placeholder, known := neutral[t.Name]
	if expression == "" || !known || t.Kind == "d" || strings.HasPrefix(expression, "NULL::") {
		return nil
	}
	literal := expression
	switch m := literalDefault.FindStringSubmatch(expression); {
	case functionDefault.MatchString(expression):
		literal = placeholder
	case m != nil:
		literal = strings.ReplaceAll(m[1], "''", "'")
	}
	if c.read == nil {
		return text(literal)
	}
	switch t.Name {
	case "bool":
		return literal == "t" || strings.EqualFold(literal, "true")
	case "timestamp", "timestamptz", "date", "time", "timetz":
		if strings.HasPrefix(literal, "CURRENT_") || strings.HasPrefix(literal, "LOCALTIME") {
			literal = placeholder
		}
	}
	v, err := c.read([]byte(literal))
	if err != nil {
		return nil
	}
	return v
}
