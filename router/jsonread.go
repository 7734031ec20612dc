package router

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

// jsonKind is the kind of a JSON value.
type jsonKind uint8

const (
	jsonNull jsonKind = iota + 1
	jsonBool
	jsonNumber
	jsonString
	jsonArray
	jsonObject
)

// jsonNode is a JSON value with its source text.
type jsonNode struct {
	kind    jsonKind
	raw     []byte // as it stands in the source
	text    text   // of a string, decoded; lone surrogates as three bytes
	members []jsonMember
	places  map[string]int // of the members, by name, where they are many
	items   []*jsonNode
}

type jsonMember struct {
	name text
	node *jsonNode
}

// manyMembers is from how many on a table finds them sooner than a look at each.
const manyMembers = 16

// get finds a member by name.
func (n *jsonNode) get(name string) *jsonNode {
	if i := n.place(name); i >= 0 {
		return n.members[i].node
	}
	return nil
}

// place is that of a member, or -1.
func (n *jsonNode) place(name string) int {
	if n.places != nil {
		if i, ok := n.places[name]; ok {
			return i
		}
		return -1
	}
	for i := range n.members {
		if string(n.members[i].name) == name {
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

var errJSON = errors.New("no valid JSON")

// parseJSON reads one value. As Jackson's tree reader it ignores what follows it, and of a member that is given twice the
// first place and the last value count.
func parseJSON(b []byte) (*jsonNode, error) {
	p := jsonReader{in: b}
	p.blanks()
	return p.value(0)
}

type jsonReader struct {
	in  []byte
	pos int
}

func (p *jsonReader) fail() error { return fmt.Errorf("%w at byte %d", errJSON, p.pos) }

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

func (p *jsonReader) value(depth int) (*jsonNode, error) {
	if depth > maxJSONDepth {
		return nil, p.fail()
	}
	start := p.pos
	n := &jsonNode{}
	var err error
	switch c := p.peek(); {
	case c == '{':
		err = p.object(n, depth)
	case c == '[':
		err = p.array(n, depth)
	case c == '"':
		n.kind = jsonString
		n.text, err = p.str()
	case c == '-' || c >= '0' && c <= '9':
		n.kind = jsonNumber
		err = p.number()
	default:
		err = p.word(n)
	}
	n.raw = p.in[start:p.pos]
	return n, err
}

func (p *jsonReader) word(n *jsonNode) error {
	for _, w := range [...]struct {
		s string
		k jsonKind
	}{{"true", jsonBool}, {"false", jsonBool}, {"null", jsonNull}} {
		if end := p.pos + len(w.s); end <= len(p.in) && string(p.in[p.pos:end]) == w.s && p.ends(end) {
			n.kind = w.k
			p.pos = end
			return nil
		}
	}
	return p.fail()
}

// ends tells whether a number or word may end here.
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

func (p *jsonReader) object(n *jsonNode, depth int) error {
	n.kind = jsonObject
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

func (n *jsonNode) set(name text, v *jsonNode) {
	if i := n.place(alias(name)); i >= 0 {
		n.members[i].node = v
		return
	}
	n.members = append(n.members, jsonMember{name, v})
	switch at := len(n.members); {
	case at == manyMembers:
		n.places = make(map[string]int, 2*manyMembers)
		for i := range n.members {
			n.places[alias(n.members[i].name)] = i
		}
	case at > manyMembers:
		n.places[alias(name)] = at - 1
	}
}

func (p *jsonReader) array(n *jsonNode, depth int) error {
	n.kind = jsonArray
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
func (p *jsonReader) str() (text, error) {
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
		return text(p.in[start : p.pos-1 : p.pos-1]), nil
	}
	out := append(text{}, p.in[start:p.pos]...)
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
func appendUTF16(out text, u uint16) text {
	n := len(out)
	if u >= 0xDC00 && u <= 0xDFFF && n >= 3 && out[n-3] == 0xED && out[n-2] >= 0xA0 && out[n-2] < 0xB0 {
		high := rune(out[n-2]&0x0F)<<6 | rune(out[n-1]&0x3F)
		return utf8.AppendRune(out[:n-3], 0x10000+high<<10+rune(u-0xDC00))
	}
	if u >= 0xD800 && u <= 0xDFFF {
		return append(out, 0xE0|byte(u>>12), 0x80|byte(u>>6)&0x3F, 0x80|byte(u)&0x3F)
	}
	return utf8.AppendRune(out, rune(u))
}
