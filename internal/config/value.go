package config

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/secret"
)

// setText sets a key to what stands in an environment variable or a flag. Lists are separated by commas.
// Errors say what was expected, and never repeat a secret.
func (r ref) setText(s string) error {
	switch r.kind {
	case boolean, optionalBoolean:
		if s == "true" || s == "false" {
			return r.setValue(s == "true")
		}
	case integer:
		if n, err := strconv.ParseInt(s, 10, 64); err == nil {
			return r.setValue(n)
		}
	case float:
		if f, err := strconv.ParseFloat(s, 64); err == nil {
			return r.setValue(f)
		}
	case size:
		if n, err := strconv.ParseInt(s, 10, 64); err == nil {
			return r.setValue(n)
		}
		return r.setValue(s)
	case list:
		var items []any
		for item := range strings.SplitSeq(s, ",") {
			if item = strings.TrimSpace(item); item != "" {
				items = append(items, item)
			}
		}
		return r.setValue(items)
	default:
		return r.setValue(s)
	}
	return fmt.Errorf("expected %s, got %q", r.kind.expected(), s)
}

// setValue sets a key to a value as the TOML library decodes it.
func (r ref) setValue(v any) error {
	var ok bool
	switch r.kind {
	case text:
		var s string
		if s, ok = v.(string); ok {
			r.field.SetString(s)
		}
	case secretText:
		var s string
		if s, ok = v.(string); ok && r.file {
			r.field.Set(reflect.ValueOf(secret.File(s)))
		} else if ok {
			r.field.Set(reflect.ValueOf(secret.Of(s)))
		}
	case boolean:
		var b bool
		if b, ok = r.boolOf(v); ok {
			r.field.SetBool(b)
		}
	case optionalBoolean:
		var b bool
		if b, ok = r.boolOf(v); ok {
			r.field.Set(reflect.ValueOf(&b))
		}
	case integer:
		var n int64
		if n, ok = v.(int64); ok {
			return r.setInt(n)
		}
	case float:
		switch f := v.(type) {
		case float64:
			r.field.SetFloat(f)
			ok = true
		case int64:
			r.field.SetFloat(float64(f))
			ok = true
		}
	case size:
		switch n := v.(type) {
		case int64:
			return r.setInt(n)
		case string:
			bytes, err := parseSize(n)
			if err != nil {
				return err
			}
			return r.setInt(bytes)
		}
	case duration:
		var s string
		if s, ok = v.(string); ok {
			d, err := time.ParseDuration(s)
			if err != nil {
				return fmt.Errorf("expected %s, got %q", r.kind.expected(), s)
			}
			r.field.SetInt(int64(d))
		}
	case list:
		return r.setList(v)
	}
	if !ok {
		return r.wrongType(v)
	}
	return nil
}

// boolOf takes "true" for true in [router]: lines pasted from a connector are quoted without a look at their type.
func (r ref) boolOf(v any) (b, ok bool) {
	if r.ofRouter() && (v == "true" || v == "false") {
		return v == "true", true
	}
	b, ok = v.(bool)
	return b, ok
}

func (r ref) setInt(n int64) error {
	if r.field.OverflowInt(n) {
		return fmt.Errorf("%d is out of range", n)
	}
	r.field.SetInt(n)
	return nil
}

func (r ref) setList(v any) error {
	items, ok := v.([]any)
	if !ok {
		return r.wrongType(v)
	}
	out := reflect.MakeSlice(r.field.Type(), len(items), len(items))
	for i, item := range items {
		s, ok := item.(string)
		if !ok {
			if r.private() {
				return fmt.Errorf("expected %s, but item %d is none", r.kind.expected(), i+1)
			}
			return fmt.Errorf("expected %s, but item %d is %s", r.kind.expected(), i+1, describe(item, r.masked))
		}
		out.Index(i).SetString(s)
	}
	r.field.Set(out)
	return nil
}

func (r ref) wrongType(v any) error {
	switch {
	case r.kind == secretText:
		return errors.New("expected a string in quotes")
	case r.private():
		return fmt.Errorf("expected %s, got something else, which is not shown here, since it may be a secret", r.kind.expected())
	}
	err := fmt.Errorf("expected %s, got %s", r.kind.expected(), describe(v, r.masked))
	if s, ok := v.(string); ok && r.kind == list {
		err = fmt.Errorf("%w; write [%q]", err, r.masked(s))
	}
	return err
}

// describe names a TOML value in an error; shown is its text as it may be printed, nil: not at all.
func describe(v any, shown func(string) string) string {
	switch v := v.(type) {
	case string:
		if shown == nil {
			return "a string"
		}
		return fmt.Sprintf("the string %q", shown(v))
	case int64:
		return fmt.Sprintf("the integer %d", v)
	case float64:
		return fmt.Sprintf("the number %v", v)
	case bool:
		return fmt.Sprintf("%t", v)
	case []any:
		return "a list"
	case map[string]any:
		return "a table"
	default:
		return fmt.Sprintf("a date or time (%v)", v)
	}
}

// String is the value as TOML, with what may be a secret masked. Empty: the key is not set and has no default.
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

// value is the value as JSON has it, with what may be a secret masked; sizes and durations as they are written. nil: the key is not set and has no default.
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

// quote writes a string as TOML: literal where it would need escapes, as regular expressions do.
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

var sizeUnits = []struct {
	suffix string
	bytes  int64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// ParseSize reads a size as the configuration has it: "16MiB", in bytes.
func ParseSize(s string) (int64, error) { return parseSize(s) }

// parseSize reads "16MiB". Units of MB are refused: PostgreSQL means 1024 * 1024 by them, most others 1000 * 1000.
func parseSize(s string) (int64, error) {
	wrong := fmt.Errorf("expected %s (B, KiB, MiB, GiB, TiB), got %q", size.expected(), s)
	for _, u := range sizeUnits {
		number, ok := strings.CutSuffix(s, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
		if err != nil || n < 0 || n > math.MaxInt64/u.bytes {
			return 0, wrong
		}
		return n * u.bytes, nil
	}
	return 0, wrong
}

// FormatSize writes bytes as a configuration file would: "16MiB".
func FormatSize(n int64) string {
	for _, u := range sizeUnits {
		if n != 0 && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.suffix
		}
	}
	return "0B"
}

// FormatDuration writes a duration as a configuration file would: "1m", not "1m0s".
func FormatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
