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

// unread are types whose literals Debezium does not read; a function's neutral value it takes.
var unread = map[string]bool{"money": true, "timetz": true}

// defaultValue reads a column's default from its expression; nil: none, or none that can be known.
func defaultValue(expression string, t *Type, c *codec) any {
	if expression == "" || t.Kind == "d" || strings.HasPrefix(expression, "NULL::") {
		return nil
	}
	placeholder, known := neutral[t.Name]
	literal := expression
	switch m := literalDefault.FindStringSubmatch(expression); {
	case functionDefault.MatchString(expression):
		if !known {
			return nil
		}
		literal = placeholder
	case !known && t.Kind != "e" && t.Name != "xml", unread[t.Name], t.Name == "numeric" && t.Mod < 0:
		return nil
	case m != nil:
		literal = strings.ReplaceAll(m[1], "''", "'")
	}
	if t.Name == "timestamptz" && strings.HasSuffix(literal, "infinity") {
		return nil
	}
	if t.Name == "numeric" { // with as many digits behind the point as the column has, as the server writes it in a row
		if d, err := parseDecimal([]byte(literal)); err == nil {
			literal = string(d.withScale(numericScale(t.Mod)).appendText(nil))
		}
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
