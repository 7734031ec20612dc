package config

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/secret"
)

// setText sets a key to the text of an environment variable or a flag. Commas separate the items
// of a list. No error repeats a secret.
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
	switch r.kind {
	case text:
		return setAs(r, v, r.field.SetString)
	case secretText:
		return setAs(r, v, func(s string) {
			value := secret.Of(s)
			if r.file {
				value = secret.File(s)
			}
			r.field.Set(reflect.ValueOf(value))
		})
	case boolean:
		return setAs(r, r.unquoted(v), r.field.SetBool)
	case optionalBoolean:
		return setAs(r, r.unquoted(v), func(b bool) { r.field.Set(reflect.ValueOf(&b)) })
	case float:
		if n, ok := v.(int64); ok {
			v = float64(n)
		}
		return setAs(r, v, r.field.SetFloat)
	case size:
		if s, ok := v.(string); ok {
			bytes, err := ParseSize(s)
			if err != nil {
				return err
			}
			v = bytes
		}
		return r.setInt(v)
	case integer:
		return r.setInt(v)
	case duration:
		if s, ok := v.(string); ok {
			d, err := time.ParseDuration(s)
			if err != nil {
				return fmt.Errorf("expected %s, got %q", r.kind.expected(), s)
			}
			r.field.SetInt(int64(d))
			return nil
		}
	case list:
		return r.setList(v)
	}
	return r.wrongType(v)
}

// setAs calls set if v has its type.
func setAs[T any](r ref, v any, set func(T)) error {
	t, ok := v.(T)
	if !ok {
		return r.wrongType(v)
	}
	set(t)
	return nil
}

// unquoted is true for "true" in [router]: lines pasted from a connector's configuration quote
// everything.
func (r ref) unquoted(v any) any {
	if r.ofRouter() && (v == "true" || v == "false") {
		return v == "true"
	}
	return v
}

func (r ref) setInt(v any) error {
	n, ok := v.(int64)
	switch {
	case !ok:
		return r.wrongType(v)
	case r.field.OverflowInt(n):
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
			return fmt.Errorf("expected %s, but item %d is %s", r.kind.expected(), i+1,
				describe(item, r.masked))
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
		return fmt.Errorf("expected %s, got something else, which is not shown here, since it may be "+
			"a secret",
			r.kind.expected())
	}
	err := fmt.Errorf("expected %s, got %s", r.kind.expected(), describe(v, r.masked))
	if s, ok := v.(string); ok && r.kind == list {
		err = fmt.Errorf("%w; write [%q]", err, r.masked(s))
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
		return fmt.Sprintf("%t", v)
	case []any:
		return "a list"
	case map[string]any:
		return "a table"
	default:
		return fmt.Sprintf("a date or time (%v)", v)
	}
}
