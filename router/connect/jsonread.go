package connect

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// jsonKind is the kind of a JSON value.
type jsonKind uint8

// The kinds.
const (
	JSONNull jsonKind = iota + 1
	jsonBool
	jsonNumber
	JSONString
	jsonArray
	JSONObject
)

// jsonNode is a JSON value with its source text.
type jsonNode struct {
	Kind    jsonKind
	Raw     []byte // as it stands in the source
	Text    Text   // of a string, decoded; lone surrogates as three bytes
	Members []jsonMember
	places  map[string]int // of the members, by name, where they are many
	items   []*jsonNode
}

type jsonMember struct {
	Name Text
	Node *jsonNode
}

// Value is the JSON value as values of Connect, with objects as a Map. Numbers, of which JSON has
// one kind only, are json.Number.
func (n *jsonNode) Value() any {
	switch n.Kind {
	case jsonBool:
		return n.Raw[0] == 't'
	case jsonNumber:
		return json.Number(n.Raw)
	case JSONString:
		return n.Text
	case jsonArray:
		out := make([]any, len(n.items))
		for i, item := range n.items {
			out[i] = item.Value()
		}
		return out
	case JSONObject:
		out := make(Map, len(n.Members))
		for i, m := range n.Members {
			out[i] = Entry{m.Name, m.Node.Value()}
		}
		return out
	}
	return nil
}

// manyMembers is from how many on a table finds them sooner than a look at each.
const manyMembers = 16

// get finds a member by name.
func (n *jsonNode) get(name string) *jsonNode {
	if i := n.place(name); i >= 0 {
		return n.Members[i].Node
	}
	return nil
}

// place is that of a member, or -1.
func (n *jsonNode) place(name string) int {
	if n.places == nil {
		return slices.IndexFunc(n.Members, func(m jsonMember) bool { return string(m.Name) == name })
	}
	if i, ok := n.places[name]; ok {
		return i
	}
	return -1
}

// set adds a member, or replaces the value of the one of that name.
func (n *jsonNode) set(name Text, v *jsonNode) {
	if i := n.place(Alias(name)); i >= 0 {
		n.Members[i].Node = v
		return
	}
	n.Members = append(n.Members, jsonMember{name, v})
	if len(n.Members) == manyMembers {
		n.places = make(map[string]int, 2*manyMembers)
		for i := range n.Members {
			n.places[Alias(n.Members[i].Name)] = i
		}
	} else if n.places != nil {
		n.places[Alias(name)] = len(n.Members) - 1
	}
}

// Jackson's limits.
const (
	maxJSONDepth  = 1000
	maxJSONNumber = 1000   // digits
	maxJSONName   = 50_000 // characters
)

// ErrJSON is the cause of all errors of ParseJSON.
var ErrJSON = errors.New("no valid JSON")

// ParseJSON reads one value. As Jackson's tree reader it ignores what follows it, and of a member
// that is given twice the first place and the last value count.
func ParseJSON(b []byte) (*jsonNode, error) {
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
	for p.pos < len(p.in) && isBlank(p.in[p.pos]) {
		p.pos++
	}
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

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
		n.Kind = JSONObject
		err = p.list('}', func() error { return p.member(n, depth) })
	case c == '[':
		n.Kind = jsonArray
		err = p.list(']', func() error {
			v, err := p.value(depth + 1)
			n.items = append(n.items, v)
			return err
		})
	case c == '"':
		n.Kind = JSONString
		n.Text, err = p.str()
	case c == '-' || c >= '0' && c <= '9':
		n.Kind = jsonNumber
		err = p.number()
	default:
		err = p.word(n)
	}
	n.Raw = p.in[start:p.pos]
	return n, err
}

func (p *jsonReader) word(n *jsonNode) error {
	for _, w := range [...]string{"true", "false", "null"} {
		if end := p.pos + len(w); end <= len(p.in) && string(p.in[p.pos:end]) == w && p.ends(end) {
			n.Kind, p.pos = jsonBool, end
			if w == "null" {
				n.Kind = JSONNull
			}
			return nil
		}
	}
	return p.fail()
}

// ends reports whether a number or word may end here.
func (p *jsonReader) ends(at int) bool {
	return at >= len(p.in) || isBlank(p.in[at]) || strings.IndexByte(",]}:", p.in[at]) >= 0
}

func (p *jsonReader) number() error {
	start, digits := p.pos, 0
	for ; p.pos < len(p.in) && !p.ends(p.pos); p.pos++ {
		if c := p.in[p.pos]; c >= '0' && c <= '9' {
			digits++
		}
	}
	if digits > maxJSONNumber || !json.Valid(p.in[start:p.pos]) {
		return p.fail()
	}
	return nil
}

// list reads what stands between brackets, with commas between the items.
func (p *jsonReader) list(end byte, item func() error) error {
	p.pos++
	p.blanks()
	if p.peek() == end {
		p.pos++
		return nil
	}
	for {
		p.blanks()
		if err := item(); err != nil {
			return err
		}
		p.blanks()
		switch p.next() {
		case end:
			return nil
		case ',':
		default:
			return p.fail()
		}
	}
}

func (p *jsonReader) member(n *jsonNode, depth int) error {
	if p.peek() != '"' {
		return p.fail()
	}
	name, err := p.str()
	if err != nil {
		return err
	}
	p.blanks()
	if p.peek() != ':' || len(name) > maxJSONName && utf8.RuneCount(name) > maxJSONName {
		return p.fail()
	}
	p.pos++
	p.blanks()
	v, err := p.value(depth + 1)
	if err == nil {
		n.set(name, v)
	}
	return err
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
		switch c := p.next(); {
		case c == '"':
			return out, nil
		case c < 0x20:
			return nil, p.fail()
		case c != '\\':
			out = append(out, c)
			continue
		}
		e := p.next()
		if short := strings.IndexByte(escapes, e); short >= 0 {
			out = append(out, escaped[short])
			continue
		}
		digits := p.in[p.pos:min(p.pos+4, len(p.in))]
		u, err := strconv.ParseUint(string(digits), 16, 16)
		if e != 'u' || len(digits) < 4 || err != nil {
			return nil, p.fail()
		}
		p.pos += 4
		out = appendUTF16(out, uint16(u))
	}
	return nil, p.fail()
}

// The escapes of a single character, and what they stand for.
const (
	escapes = `"\/bfnrt`
	escaped = "\"\\/\b\f\n\r\t"
)

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
