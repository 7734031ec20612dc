package connect

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"unicode/utf16"
)

// parseArray reads PostgreSQL's text of an array; the delimiter is a comma for all types but box.
// A nil element is NULL. Elements that are arrays themselves are nil too, as Debezium has them.
func parseArray(text []byte, delimiter byte) ([][]byte, error) {
	bad := func() error { return fmt.Errorf("%q is no array", text) }
	b := text
	if len(b) > 0 && b[0] == '[' { // explicit bounds: [2:3]={a,b}
		_, b, _ = bytes.Cut(b, []byte("="))
	}
	if len(b) < 2 || b[0] != '{' || b[len(b)-1] != '}' {
		return nil, bad()
	}
	in := b[1 : len(b)-1]
	elements := [][]byte{}
	for i := 0; i < len(in); i++ {
		var e []byte
		switch in[i] {
		case '{':
			i = endOfArray(in, i)
		case '"':
			e, i = parseQuoted(in, i)
		default:
			e = []byte{}
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
		}
		elements = append(elements, e)
		if i < len(in) && in[i] != delimiter {
			return nil, bad()
		}
	}
	return elements, nil
}

// endOfArray is the place behind the array that begins at i.
func endOfArray(in []byte, i int) int {
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
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return i
}

// parseQuoted reads a text whose opening quote is at i; end is the place behind the closing one.
func parseQuoted(in []byte, i int) (text []byte, end int) {
	text = []byte{}
	for i++; i < len(in) && in[i] != '"'; i++ {
		if in[i] == '\\' {
			i++
		}
		if i < len(in) {
			text = append(text, in[i])
		}
	}
	return text, i + 1
}

// parseHstore reads "a"=>"1", "b"=>NULL. The members come in the order of Java's HashMap, as in
// Debezium.
func parseHstore(b []byte) (Map, error) {
	m := Map{}
	bad := func() error { return fmt.Errorf("%q is no hstore", b) }
	for i := 0; i < len(b); {
		if b[i] != '"' {
			return nil, bad()
		}
		var member Entry
		member.Key, i = parseQuoted(b, i)
		rest, found := bytes.CutPrefix(b[min(i, len(b)):], []byte("=>"))
		i += 2
		switch {
		case !found:
			return nil, bad()
		case bytes.HasPrefix(rest, []byte("NULL")):
			i += 4
		case bytes.HasPrefix(rest, []byte{'"'}):
			var value Text
			value, i = parseQuoted(b, i)
			member.Value = value
		default:
			return nil, bad()
		}
		m = append(m, member)
		for i < len(b) && (b[i] == ',' || b[i] == ' ') {
			i++
		}
	}
	m.hashOrder()
	return m, nil
}

// hashOrder sorts the members as Java's HashMap has them: by bucket, of which there are enough to
// be three quarters full, and then in the order in which they were put there.
func (m Map) hashOrder() {
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
	slices.SortStableFunc(m,
		func(a, b Entry) int { return cmp.Compare(bucket(a.Key), bucket(b.Key)) })
}
