package connect

import (
	"cmp"
	"fmt"
	"slices"
	"unicode/utf16"
)

// parseArray reads PostgreSQL's text of an array; the delimiter is a comma for all types but box.
// A nil element is NULL. Elements that are arrays themselves are nil too, as Debezium has them.
func parseArray(b []byte, delimiter byte) ([][]byte, error) {
	bad := func() error { return fmt.Errorf("%q is no array", b) }
	if len(b) > 0 && b[0] == '[' { // explicit bounds: [2:3]={a,b}
		for i, c := range b {
			if c == '=' {
				b = b[i+1:]
				break
			}
		}
	}
	if len(b) < 2 || b[0] != '{' || b[len(b)-1] != '}' {
		return nil, bad()
	}
	in := b[1 : len(b)-1]
	elements := [][]byte{}
	for i := 0; i < len(in); {
		switch in[i] {
		case '{':
			depth, quoted := 0, false
			for ; i < len(in); i++ {
				switch c := in[i]; {
				case c == '\\':
					i++
				case c == '"':
					quoted = !quoted
				case c == '{' && !quoted:
					depth++
				case c == '}' && !quoted:
					depth--
				}
				if depth == 0 && !quoted {
					i++
					break
				}
			}
			elements = append(elements, nil)
		case '"':
			e := []byte{}
			i++
			for ; i < len(in) && in[i] != '"'; i++ {
				if in[i] == '\\' {
					i++
				}
				if i < len(in) {
					e = append(e, in[i])
				}
			}
			i++
			elements = append(elements, e)
		default:
			e := []byte{}
			escaped := false
			for ; i < len(in) && in[i] != delimiter; i++ {
				if in[i] == '\\' && i+1 < len(in) {
					escaped = true
					i++
				}
				e = append(e, in[i])
			}
			if !escaped && string(e) == "NULL" {
				e = nil
			}
			elements = append(elements, e)
		}
		if i < len(in) {
			if in[i] != delimiter {
				return nil, bad()
			}
			i++
		}
	}
	return elements, nil
}

// parseHstore reads "a"=>"1", "b"=>NULL. The members come in the order of Java's HashMap, as in
// Debezium.
func parseHstore(b []byte) (mapping, error) {
	m := mapping{}
	i := 0
	quoted := func() (Text, bool) {
		if i >= len(b) || b[i] != '"' {
			return nil, false
		}
		s := Text{}
		for i++; i < len(b) && b[i] != '"'; i++ {
			if b[i] == '\\' && i+1 < len(b) {
				i++
			}
			s = append(s, b[i])
		}
		i++
		return s, true
	}
	for i < len(b) {
		key, ok := quoted()
		if !ok || i+2 > len(b) || string(b[i:i+2]) != "=>" {
			return nil, fmt.Errorf("%q is no hstore", b)
		}
		i += 2
		var value any
		if s, ok := quoted(); ok {
			value = s
		} else if i+4 <= len(b) && string(b[i:i+4]) == "NULL" {
			i += 4
		} else {
			return nil, fmt.Errorf("%q is no hstore", b)
		}
		m = append(m, entry{key, value})
		for i < len(b) && (b[i] == ',' || b[i] == ' ') {
			i++
		}
	}
	m.hashOrder()
	return m, nil
}

// hashOrder sorts the members as Java's HashMap has them: by bucket, of which there are enough to
// be three quarters full, and then in the order in which they were put there.
func (m mapping) hashOrder() {
	buckets := uint32(16)
	for len(m) > int(buckets)*3/4 {
		buckets *= 2
	}
	bucket := func(key Text) uint32 {
		h := uint32(0)
		for _, unit := range utf16.Encode([]rune(string(key))) {
			h = 31*h + uint32(unit)
		}
		return (h ^ h>>16) & (buckets - 1)
	}
	slices.SortStableFunc(m, func(a, b entry) int {
		return cmp.Compare(bucket(a.key),
			bucket(b.key))
	})
}
