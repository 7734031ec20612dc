package config

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/ratelimit"
	"github.com/postrider/postrider/internal/secret"
	"github.com/postrider/postrider/internal/units"
)

// kind is how a key is written and read.
type kind int

const (
	text kind = iota
	boolean
	optionalBoolean // nil: not given
	integer
	float
	size // bytes, "16MiB"
	duration
	list
	rateText   // "5000 rows/s"
	topicRates // a list of tables: [[relay.rate]]
	secretText
	secretFile // the name of its file
)

// kinds describe what is expected in errors and in the JSON Schema.
var kinds = [...]struct{ expected, schemaType, pattern string }{
	text:            {"a string", "string", ""},
	boolean:         {"true or false", "boolean", ""},
	optionalBoolean: {"true or false", "boolean", ""},
	integer:         {"an integer", "integer", ""},
	float:           {"a number", "number", ""},
	size:            {`a size such as "16MiB"`, "string", `^[0-9]+ ?(B|KiB|MiB|GiB|TiB)$`},
	duration: {`a duration such as "10s"`, "string",
		`^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`},
	list: {"a list of strings", "array", ""},
	rateText: {`a rate such as "5000 rows/s"`, "string",
		`^(none|[0-9]+ ?(rows|B|KiB|MiB|GiB|TiB)/s(, ?[0-9]+ ?(rows|B|KiB|MiB|GiB|TiB)/s)?)$`},
	topicRates: {"a list of tables, each a [[relay.rate]] with topics and max_rate", "array", ""},
	secretText: {"a string", "string", ""},
	secretFile: {"a string", "string", ""},
}

func (k kind) expected() string { return kinds[k].expected }

func kindOf(t reflect.Type, options string) (kind, bool) {
	switch {
	case t == reflect.TypeFor[secret.Secret]():
		return secretText, true
	case t == reflect.TypeFor[time.Duration]():
		return duration, true
	case t == reflect.TypeFor[*bool]():
		return optionalBoolean, true
	case t == reflect.TypeFor[ratelimit.Rate]():
		return rateText, true
	case t == reflect.TypeFor[[]ratelimit.TopicRate]():
		return topicRates, true
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.String:
		return list, true
	case t.Kind() == reflect.String:
		return text, true
	case t.Kind() == reflect.Bool:
		return boolean, true
	case t.Kind() == reflect.Float64:
		return float, true
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Int64 && options == "size":
		return size, true
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Int64:
		return integer, true
	}
	return 0, false
}

func (k key) boolean() bool { return k.kind == boolean || k.kind == optionalBoolean }

// setText sets a key to the text of an environment variable or a flag. Commas separate the items
// of a list. No error repeats a secret.
func (k key) setText(s string) error {
	var v any = s
	var err error
	switch k.kind {
	case boolean, optionalBoolean:
		v = s == "true"
		if s != "true" && s != "false" {
			err = strconv.ErrSyntax
		}
	case integer:
		v, err = strconv.ParseInt(s, 10, 64)
	case float:
		v, err = strconv.ParseFloat(s, 64)
	case size:
		if n, notPlain := strconv.ParseInt(s, 10, 64); notPlain == nil {
			v = n
		}
	case list:
		items := []any{}
		for item := range strings.SplitSeq(s, ",") {
			if item = strings.TrimSpace(item); item != "" {
				items = append(items, item)
			}
		}
		v = items
	case topicRates:
		return k.setTopicRatesText(s)
	}
	if err != nil {
		return fmt.Errorf("expected %s, got %q", k.kind.expected(), s)
	}
	return k.setValue(v)
}

// setValue sets a key to a value as the TOML library decodes it.
func (k key) setValue(v any) error {
	var err error
	switch s, isText := v.(string); {
	case k.kind == list:
		if items, ok := v.([]any); ok {
			return k.setList(items)
		}
	case k.kind == duration && isText:
		if v, err = time.ParseDuration(s); err != nil {
			return fmt.Errorf("expected %s, got %q", k.kind.expected(), s)
		}
	case k.kind == duration:
		return k.wrongType(v)
	case k.kind == size && isText:
		if v, err = units.ParseSize(s); err != nil {
			return err
		}
	case k.kind == rateText && isText:
		if v, err = ratelimit.Parse(s); err != nil {
			return err
		}
	case k.kind == topicRates:
		return k.setTopicRates(v)
	case k.kind == secretText && isText:
		v = secret.Of(s)
	case k.kind == secretFile && isText:
		v = secret.File(s)
	case k.ofRouter() && k.boolean() && (s == "true" || s == "false"):
		v = s == "true" // lines pasted from a connector's configuration quote everything
	}
	if n, ok := v.(int64); ok && k.kind == float {
		v = float64(n)
	}
	if b, ok := v.(bool); ok && k.kind == optionalBoolean {
		v = &b
	}
	value, to := reflect.ValueOf(v), k.field.Type()
	switch {
	case value.CanInt() && k.field.CanInt():
		if k.field.OverflowInt(value.Int()) {
			return fmt.Errorf("%d is out of range", v)
		}
	case value.Kind() != to.Kind() || !value.CanConvert(to):
		return k.wrongType(v)
	}
	k.field.Set(value.Convert(to))
	return nil
}

func (k key) setList(items []any) error {
	out := reflect.MakeSlice(k.field.Type(), len(items), len(items))
	for i, item := range items {
		s, ok := item.(string)
		switch {
		case ok:
			out.Index(i).SetString(s)
		case k.private():
			return fmt.Errorf("expected %s, but item %d is none", k.kind.expected(), i+1)
		default:
			return fmt.Errorf("expected %s, but item %d is %s", k.kind.expected(), i+1,
				describe(item, k.masked))
		}
	}
	k.field.Set(out)
	return nil
}

func (k key) wrongType(v any) error {
	switch {
	case k.secret():
		return errors.New("expected a string in quotes")
	case k.private():
		return fmt.Errorf("expected %s, got something else, which is not shown here, since it may be "+
			"a secret", k.kind.expected())
	}
	err := fmt.Errorf("expected %s, got %s", k.kind.expected(), describe(v, k.masked))
	if s, ok := v.(string); ok && k.kind == list {
		err = fmt.Errorf("%w; write [%q]", err, k.masked(s))
	}
	return err
}

// describe is a TOML value in an error; shown makes its text printable, nil: the text is not
// shown.
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
		return strconv.FormatBool(v)
	case []any:
		return "a list"
	case map[string]any:
		return "a table"
	}
	return fmt.Sprintf("a date or time (%v)", v)
}

// String is the value as TOML, with secrets masked. Empty: the key is not set and has no default.
func (k key) String() string {
	switch v := k.value().(type) {
	case nil:
		return ""
	case string:
		return quote(v)
	case []string:
		return quoteList(v)
	case []topicRateValue:
		return topicRatesText(v)
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
	case secretText, secretFile:
		return maskSecret(k.field.Interface().(secret.Secret))
	case optionalBoolean:
		if k.field.IsNil() {
			return nil
		}
		return k.field.Elem().Bool()
	case size:
		return units.FormatSize(k.field.Int())
	case duration:
		return units.FormatDuration(time.Duration(k.field.Int()))
	case rateText:
		return k.field.Interface().(ratelimit.Rate).String()
	case topicRates:
		return topicRatesValue(k.field.Interface().([]ratelimit.TopicRate))
	case list:
		items := make([]string, k.field.Len())
		for i := range items {
			items[i] = k.masked(k.field.Index(i).String())
		}
		return items
	}
	return k.field.Interface()
}

func quoteList(list []string) string {
	items := make([]string, len(list))
	for i := range list {
		items[i] = quote(list[i])
	}
	return "[" + strings.Join(items, ", ") + "]"
}

// quote writes a string as TOML, as a literal one if it has escapes, as in regular expressions.
func quote(s string) string {
	control := func(r rune) bool { return r < ' ' || r == 0x7f }
	plain := !strings.ContainsFunc(s, control)
	if plain && strings.ContainsAny(s, `\"`) && !strings.Contains(s, "'") {
		return "'" + s + "'"
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case control(r):
			fmt.Fprintf(&b, `\u%04X`, r)
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			fallthrough
		default:
			b.WriteRune(r)
		}
	}
	return b.String() + `"`
}
