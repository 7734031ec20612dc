package javaregex

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// escape reads what a backslash begins outside of a class.
func (t *translator) escape() error {
	t.pos++
	if set, ok, err := t.namedSet(); err != nil {
		return err
	} else if ok {
		t.empty = false
		t.out.WriteString(set.class())
		return nil
	}
	c := t.peek(0)
	switch {
	case c == 'Q':
		return t.quoted()
	case c == 'A', c == 'G': // the end of the previous find: there is only one find
		t.out.WriteString(`\A`)
	case c == 'z':
		t.out.WriteString(`\z`)
	case c == 'Z':
		t.writeEnd()
	case c == 'b', c == 'B':
		if c == 'b' && t.peek(1) == '{' && t.peek(2) == 'g' {
			return t.errorf(`the escape \b{g} is not supported; \b is`)
		}
		t.writeBoundary(c == 'b')
	case c == 'R':
		t.out.WriteString("(?:\\x0D\\x0A|[\\x0A-\\x0D\u0085\u2028\u2029])")
		t.empty = false
	case c == 'k':
		t.pos++
		if !t.accept("<") {
			return t.errorf(`\k is not followed by <name>`)
		}
		name, err := t.groupName()
		if err != nil {
			return err
		}
		number, known := t.names[name]
		if !known {
			return t.errorf("no group <%s> before this reference", name)
		}
		return t.reference(number)
	case c >= '1' && c <= '9':
		return t.numberedReference()
	default:
		literal, err := t.character()
		if err != nil {
			return err
		}
		t.empty = false
		return t.writeLiteral(literal)
	}
	t.pos++
	return nil
}

// writeBoundary is \b or \B. A mark that sits on a letter or digit belongs to the word.
func (t *translator) writeBoundary(boundary bool) {
	t.backtracks = true
	left, right := `(?:(?<=[\p{L}\p{Nd}]\p{Mn}*)|(?<=_))`,
		`(?=[\p{L}\p{Nd}_]|\p{Mn}(?<=[\p{L}\p{Nd}]\p{Mn}+))`
	notLeft, notRight := `(?<![\p{L}\p{Nd}]\p{Mn}*)(?<!_)`,
		`(?![\p{L}\p{Nd}_]|\p{Mn}(?<=[\p{L}\p{Nd}]\p{Mn}+))`
	if t.flags['U'] {
		word := unicodeWord().class()
		left, right, notLeft, notRight = "(?<="+word+")", "(?="+word+")", "(?<!"+word+")",
			"(?!"+word+")"
	}
	if boundary {
		t.out.WriteString("(?:" + left + notRight + "|" + notLeft + right + ")")
	} else {
		t.out.WriteString("(?:" + left + right + "|" + notLeft + notRight + ")")
	}
}

// numberedReference takes as many digits as there are groups for, as Java does.
func (t *translator) numberedReference() error {
	number := int(t.peek(0) - '0')
	t.pos++
	for c := t.peek(0); c >= '0' && c <= '9' && number*10+int(c-'0') <= t.groups; c = t.peek(0) {
		number = number*10 + int(c-'0')
		t.pos++
	}
	return t.reference(number)
}

func (t *translator) reference(number int) error {
	if t.all >= 0 && number > t.all {
		t.out.WriteString(matchesNothing)
		return nil
	}
	if t.all >= 0 && t.hollow[number] {
		return t.errorf("a reference to group %d, which is repeated and can match nothing, is "+
			"not supported", number)
	}
	t.backtracks = true
	if t.flags['i'] {
		t.onlyASCII = true
		fmt.Fprintf(&t.out, `(?i:\k<%d>)`, number)
		return nil
	}
	fmt.Fprintf(&t.out, `\k<%d>`, number)
	return nil
}

// quoted reads from \Q to \E or the end. Only the last character can be repeated.
func (t *translator) quoted() error {
	t.pos++
	for t.more() && !t.accept(`\E`) {
		if err := t.writeLiteral(t.peek(0)); err != nil {
			return err
		}
		t.empty = false
		t.pos++
	}
	if t.more() && strings.ContainsRune("?*+{", t.peek(0)) {
		return t.errorf(`a quantifier behind \E is not supported; ` +
			`put the last character behind \E`)
	}
	return nil
}

// character reads an escape that stands for one character; the backslash is read already.
func (t *translator) character() (rune, error) {
	c := t.peek(0)
	if c == -1 {
		return 0, t.errorf("a backslash at the end")
	}
	t.pos++
	switch c {
	case '0':
		return t.octal()
	case 'x':
		name, given, ok := t.braced()
		switch {
		case !given:
			return t.hex(2)
		case !ok || name == "":
			return 0, t.errorf(`\x{ without hexadecimal digits and }`)
		}
		return t.code(name)
	case 'u':
		v, err := t.hex(4)
		if err == nil && surrogate(v) {
			return 0, t.errorf(`half of a surrogate pair; write the character itself or \x{...}`)
		}
		return v, err
	case 'N':
		name, given, ok := t.braced()
		switch {
		case !given:
			return 0, t.errorf(`\N without {name}`)
		case !ok:
			return 0, t.errorf(`\N{ without }`)
		}
		found, ok := runeNamed(name)
		if !ok {
			return 0, t.errorf(`no character has the name %q; write it as \x{...}`, name)
		}
		return found, nil
	case 'c':
		if control := t.peek(0); control > 0 && control < 0x80 {
			t.pos++
			return control ^ 64, nil
		}
		return 0, t.errorf(`\c without a control character`)
	case 'X':
		return 0, t.errorf(`the escape \X is not supported; ` +
			`write \P{M}\p{M}* for a character with its marks`)
	}
	if short := strings.IndexRune("tnrfae", c); short >= 0 {
		return rune("\t\n\r\f\a\x1B"[short]), nil
	}
	if c < 0x80 && unicode.IsLetter(c) {
		return 0, t.errorf(`the escape \%c is not supported`, c)
	}
	return c, nil
}

// braced reads {text}, if that is there.
func (t *translator) braced() (text string, given, closed bool) {
	if !t.accept("{") {
		return "", false, false
	}
	end := slices.Index(t.in[t.pos:], '}')
	if end < 0 {
		return "", true, false
	}
	text = string(t.in[t.pos : t.pos+end])
	t.pos += end + 1
	return text, true, true
}

// octal reads up to three digits, the first of three at most 3.
func (t *translator) octal() (rune, error) {
	start, v := t.pos, rune(0)
	for t.pos < start+3 && t.peek(0) >= '0' && t.peek(0) <= '7' && v*8+t.peek(0)-'0' <= 0o377 {
		v = v*8 + t.peek(0) - '0'
		t.pos++
	}
	if t.pos == start {
		return 0, t.errorf(`\0 without octal digits`)
	}
	return v, nil
}

func (t *translator) hex(digits int) (rune, error) {
	if t.pos+digits > len(t.in) {
		return 0, t.errorf("too few hexadecimal digits")
	}
	v, err := t.code(string(t.in[t.pos : t.pos+digits]))
	t.pos += digits
	return v, err
}

// code is the character of a number in hexadecimal digits.
func (t *translator) code(digits string) (rune, error) {
	v, err := strconv.ParseUint(digits, 16, 32)
	if err != nil || v > unicode.MaxRune {
		return 0, t.errorf("illegal hexadecimal escape %q", digits)
	}
	return rune(v), nil
}

// namedSets are those of a small letter; its capital is all other characters. Two have another
// meaning with the flag U.
var namedSets = map[rune]struct{ unicode, ascii func() runeSet }{
	'd': {digits, and(of(), "09")},
	'w': {unicodeWord, and(of(), "09AZ__az")},
	's': {whitespace, and(of(), "\t\r  ")},
	'h': {nil, and(of(), "\t\t  \u00A0\u00A0\u1680\u1680\u180e\u180e\u2000\u200a\u202f\u202f"+
		"\u205f\u205f\u3000\u3000")},
	'v': {nil, and(of(), "\n\r\u0085\u0085\u2028\u2029")},
}

// namedSet reads \d, \p{...} and the like; the backslash is read already.
func (t *translator) namedSet() (set runeSet, ok bool, err error) {
	c := t.peek(0)
	small := unicode.ToLower(c)
	named, known := namedSets[small]
	switch {
	case small == 'p':
		t.pos++
		name, given, closed := t.braced()
		switch {
		case given && !closed:
			return nil, false, t.errorf("unclosed character family")
		case !given:
			name = string(t.peek(0))
			t.pos++
		}
		if set, err = family(name, t.flags); err != nil {
			return nil, false, t.errorf("%v", err)
		}
	case !known || c >= 0x80:
		return nil, false, nil
	default:
		t.pos++
		if set = named.ascii(); t.flags['U'] && named.unicode != nil {
			set = named.unicode()
		}
	}
	if c != small {
		set = set.negate()
	}
	return set, true, nil
}
