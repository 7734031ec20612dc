package config

import (
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/secret"
)

// String is the value as TOML, with secrets masked. Empty: the key is not set and has no default.
func (k key) String() string {
	switch v := k.value().(type) {
	case nil:
		return ""
	case string:
		return quote(v)
	case []string:
		items := make([]string, len(v))
		for i := range v {
			items[i] = quote(v[i])
		}
		return "[" + strings.Join(items, ", ") + "]"
	default:
		return fmt.Sprint(v)
	}
}

// value is the value for JSON, with secrets masked; sizes and durations are text. nil: the key is
// not set and has no default.
func (k key) value() any {
	switch k.kind {
	case text:
		if k.field.String() == "" {
			return nil
		}
		return k.masked(k.field.String())
	case secretText:
		return maskSecret(k.field.Interface().(secret.Secret))
	case optionalBoolean:
		if k.field.IsNil() {
			return nil
		}
		return k.field.Elem().Bool()
	case size:
		return FormatSize(k.field.Int())
	case duration:
		return FormatDuration(time.Duration(k.field.Int()))
	case list:
		items := make([]string, k.field.Len())
		for i := range items {
			items[i] = k.masked(k.field.Index(i).String())
		}
		return items
	default:
		return k.field.Interface()
	}
}

// quote writes a string as TOML, as a literal one if it has escapes, as in regular expressions.
func quote(s string) string {
	plain := strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) < 0
	if plain && strings.ContainsAny(s, `\"`) && !strings.Contains(s, "'") {
		return "'" + s + "'"
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < ' ' || r == 0x7f:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
