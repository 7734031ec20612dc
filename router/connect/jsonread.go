package connect

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

// jsonKind is the kind of a JSON value.
type jsonKind uint8

const (
	JSONNull jsonKind = iota + 1
	JSONBool
	JSONNumber
	JSONString
	JSONArray
	JSONObject
)

// JSONNode is a JSON value with its source text.
type JSONNode struct {
	Kind    jsonKind
	Raw     []byte // as it stands in the source
	Text    Text   // of a string, decoded; lone surrogates as three bytes
	Members []jsonMember
	places  map[string]int // of the members, by name, where they are many
	items   []*JSONNode
}

type jsonMember struct {
	Name Text
	Node *JSONNode
}

// manyMembers is from how many on a table finds them sooner than a look at each.
const manyMembers = 16

// get finds a member by name.
func (n *JSONNode) get(name string) *JSONNode {
	if i := n.place(name); i >= 0 {
		return n.Members[i].Node
	}
	return nil
}

// place is that of a member, or -1.
func (n *JSONNode) place(name string) int {
	if n.places != nil {
		if i, ok := n.places[name]; ok {
			return i
		}
		return -1
	}
	for i := range n.Members {
		if string(n.Members[i].Name) == name {
			return i
		}
	}
	return -1
}

// Jackson's limits.
const (
	maxJSONDepth  = 1000
	maxJSONNumber = 1000   // digits
	maxJSONName   = 50_000 // characters
)

var ErrJSON = errors.New("no valid JSON")

// ParseJSON reads one value. As Jackson's tree reader it ignores what follows it, and of a member
// that is given twice the first place and the last value count.
func ParseJSON(b []byte) (*JSONNode, error) {
	p := jsonReader{in: b}
	p.blanks()
	return p.value(0)
}

type jsonReader struct {
	in  []byte
	pos int
}

func (p *jsonReader) fail() error { return fmt.Errorf("%w at byte %d", ErrJSON, p.pos) }

func (p *jsonReader) blanks() {
	for p.pos < len(p.in) {
		switch p.in[p.pos] {
		case ' ', '\t', '\n', '\r':
			p.pos++
		default:
			return
		}
	}
}

func (p *jsonReader) peek() byte {
	if p.pos < len(p.in) {
		return p.in[p.pos]
	}
	return 0
}

// next takes a byte; 0 at the end.
func (p *jsonReader) next() byte {
	c := p.peek()
	p.pos = min(p.pos+1, len(p.in))
	return c
}

func (p *jsonReader) value(depth int) (*JSONNode, error) {
	if depth > maxJSONDepth {
		return nil, p.fail()
	}
	start := p.pos
	n := &JSONNode{}
	var err error
	switch c := p.peek(); {
	case c == '{':
		err = p.object(n, depth)
	case c == '[':
		err = p.array(n, depth)
	case c == '"':
		n.Kind = JSONString
		n.Text, err = p.str()
	case c == '-' || c >= '0' && c <= '9':
		n.Kind = JSONNumber
		err = p.number()
	default:
		err = p.word(n)
	}
	n.Raw = p.in[start:p.pos]
	return n, err
}

func (p *jsonReader) word(n *JSONNode) error {
	for _, w := range [...]struct {
		s string
		k jsonKind
	}{{"true", JSONBool}, {"false", JSONBool}, {"null", JSONNull}} {
		if end := p.pos + len(w.s); end <= len(p.in) && string(p.in[p.pos:end]) == w.s &&
			p.ends(end) {
			n.Kind = w.k
			p.pos = end
			return nil
		}
	}
	return p.fail()
}

// ends reports whether a number or word may end here.
func (p *jsonReader) ends(at int) bool {
	if at >= len(p.in) {
		return true
	}
	switch p.in[at] {
	case ' ', '\t', '\n', '\r', ',', ']', '}', ':':
		return true
	}
	return false
}

func (p *jsonReader) digits() bool {
	start := p.pos
	for c := p.peek(); c >= '0' && c <= '9'; c = p.peek() {
		p.pos++
	}
	return p.pos > start
}

func (p *jsonReader) number() error {
	start := p.pos
	if p.peek() == '-' {
		p.pos++
	}
	if p.peek() == '0' {
		p.pos++
	} else if !p.digits() {
		return p.fail()
	}
	if p.peek() == '.' {
		p.pos++
		if !p.digits() {
			return p.fail()
		}
	}
	if c := p.peek(); c == 'e' || c == 'E' {
		p.pos++
		if c := p.peek(); c == '+' || c == '-' {
			p.pos++
		}
		if !p.digits() {
			return p.fail()
		}
	}
	if !p.ends(p.pos) || digitsIn(p.in[start:p.pos]) > maxJSONNumber {
		return p.fail()
	}
	return nil
}

func digitsIn(number []byte) (n int) {
	for _, c := range number {
		if c >= '0' && c <= '9' {
			n++
		}
	}
	return n
}

func (p *jsonReader) object(n *JSONNode, depth int) error {
	n.Kind = JSONObject
	p.pos++
	p.blanks()
	if p.peek() == '}' {
		p.pos++
		return nil
	}
	for {
		p.blanks()
		if p.peek() != '"' {
			return p.fail()
		}
		name, err := p.str()
		if err != nil {
			return err
		}
		if len(name) > maxJSONName && utf8.RuneCount(name) > maxJSONName {
			return p.fail()
		}
		p.blanks()
		if p.peek() != ':' {
			return p.fail()
		}
		p.pos++
		p.blanks()
		v, err := p.value(depth + 1)
		if err != nil {
			return err
		}
		n.set(name, v)
		p.blanks()
		c := p.next()
		if c == '}' {
			return nil
		}
		if c != ',' {
			return p.fail()
		}
	}
}

func (n *JSONNode) set(name Text, v *JSONNode) {
	if i := n.place(sameBytes(name)); i >= 0 {
		n.Members[i].Node = v
		return
	}
	n.Members = append(n.Members, jsonMember{name, v})
	switch at := len(n.Members); {
	case at == manyMembers:
		n.places = make(map[string]int, 2*manyMembers)
		for i := range n.Members {
			n.places[sameBytes(n.Members[i].Name)] = i
		}
	case at > manyMembers:
		n.places[sameBytes(name)] = at - 1
	}
}

func (p *jsonReader) array(n *JSONNode, depth int) error {
	n.Kind = JSONArray
	p.pos++
	p.blanks()
	if p.peek() == ']' {
		p.pos++
		return nil
	}
	for {
		p.blanks()
		v, err := p.value(depth + 1)
		if err != nil {
			return err
		}
		n.items = append(n.items, v)
		p.blanks()
		c := p.next()
		if c == ']' {
			return nil
		}
		if c != ',' {
			return p.fail()
		}
	}
}

// str reads a quoted text.
func (p *jsonReader) str() (Text, error) {
	p.pos++
	start := p.pos
	for p.pos < len(p.in) && p.in[p.pos] != '"' && p.in[p.pos] != '\\' {
		if p.in[p.pos] < 0x20 {
			return nil, p.fail()
		}
		p.pos++
	}
	if p.peek() == '"' {
		p.pos++
		return Text(p.in[start : p.pos-1 : p.pos-1]), nil
	}
	out := append(Text{}, p.in[start:p.pos]...)
	for p.pos < len(p.in) {
		c := p.in[p.pos]
		p.pos++
		switch {
		case c == '"':
			return out, nil
		case c < 0x20:
			return nil, p.fail()
		case c != '\\':
			out = append(out, c)
			continue
		}
		e := p.next()
		switch e {
		case '"', '\\', '/':
			out = append(out, e)
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			u, ok := p.hex4()
			if !ok {
				return nil, p.fail()
			}
			out = appendUTF16(out, u)
		default:
			return nil, p.fail()
		}
	}
	return nil, p.fail()
}

func (p *jsonReader) hex4() (uint16, bool) {
	if p.pos+4 > len(p.in) {
		return 0, false
	}
	var u uint16
	for _, c := range p.in[p.pos : p.pos+4] {
		u <<= 4
		switch {
		case c >= '0' && c <= '9':
			u |= uint16(c - '0')
		case c >= 'a' && c <= 'f':
			u |= uint16(c - 'a' + 10)
		case c >= 'A' && c <= 'F':
			u |= uint16(c - 'A' + 10)
		default:
			return 0, false
		}
	}
	p.pos += 4
	return u, true
}

// appendUTF16 adds one unit of UTF-16; a low surrogate joins the high one before it.
func appendUTF16(out Text, u uint16) Text {
	n := len(out)
	if u >= 0xDC00 && u <= 0xDFFF && n >= 3 && out[n-3] == 0xED && out[n-2] >= 0xA0 &&
		out[n-2] < 0xB0 {
		high := rune(out[n-2]&0x0F)<<6 | rune(out[n-1]&0x3F)
		return utf8.AppendRune(out[:n-3], 0x10000+high<<10+rune(u-0xDC00))
	}
	if u >= 0xD800 && u <= 0xDFFF {
		return append(out, 0xE0|byte(u>>12), 0x80|byte(u>>6)&0x3F, 0x80|byte(u)&0x3F)
	}
	return utf8.AppendRune(out, rune(u))
}
