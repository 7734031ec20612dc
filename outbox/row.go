package outbox

import (
	"slices"
	"strconv"
)

// row is the columns of an event with their values, as a JSON object. It is no map since each
// transaction pays for it.
type row []cell

type cell struct {
	column string
	value  any // nil: null
}

// set gives a column its value, in the place of the one that it has.
func (r *row) set(column string, value any) {
	if i := r.index(column); i >= 0 {
		(*r)[i].value = value
		return
	}
	*r = append(*r, cell{column, value})
}

// get is nil for a column without a value.
func (r row) get(column string) any {
	if i := r.index(column); i >= 0 {
		return r[i].value
	}
	return nil
}

func (r row) index(column string) int {
	return slices.IndexFunc(r, func(c cell) bool { return c.column == column })
}

func (r row) appendJSON(dst []byte) ([]byte, error) {
	var err error
	for i, c := range r {
		separator := byte(',')
		if i == 0 {
			separator = '{'
		}
		dst = append(appendString(append(dst, separator), c.column), ':')
		if dst, err = appendValue(dst, c.value); err != nil {
			return nil, err
		}
	}
	if len(r) == 0 {
		dst = append(dst, '{')
	}
	return append(dst, '}'), nil
}

func appendValue(dst []byte, value any) ([]byte, error) {
	switch v := value.(type) {
	case string:
		return appendString(dst, v), nil
	case int64:
		return strconv.AppendInt(dst, v, 10), nil
	case map[string]any:
		if len(v) == 0 {
			return append(dst, "{}"...), nil
		}
	}
	encoded, err := marshalJSON(value)
	return append(dst, encoded...), err
}

// appendString appends a JSON string. Most have nothing to escape but quotes and backslashes.
func appendString(dst []byte, s string) []byte {
	for i := range len(s) {
		if s[i] < ' ' || s[i] >= 0x7f {
			encoded, _ := marshalJSON(s) // a string always has a form
			return append(dst, encoded...)
		}
	}
	dst = append(dst, '"')
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			dst = append(dst, '\\')
		}
		dst = append(dst, s[i])
	}
	return append(dst, '"')
}
