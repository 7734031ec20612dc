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
		t.writeSet(set)
		return nil
	}
	c := t.peek(0)
	switch {
	case c == 'Q':
		return t.quoted()
	case c == 'A':
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
	case c == 'G': // the end of the previous find: there is only one find
		t.out.WriteString(`\A`)
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
	if t.flags.unicodeClass {
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
	if t.flags.ignoreCase {
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
	var literal []rune
	for t.more() && (t.peek(0) != '\\' || t.peek(1) != 'E') {
		literal = append(literal, t.peek(0))
		t.pos++
	}
	t.accept(`\E`)
	if c := t.peek(0); c == '?' || c == '*' || c == '+' || c == '{' {
		return t.errorf(`a quantifier behind \E is not supported; ` +
			`put the last character behind \E`)
	}
	for _, c := range literal {
		if err := t.writeLiteral(c); err != nil {
			return err
		}
		t.empty = false
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
	case 't':
		return '\t', nil
	case 'n':
		return '\n', nil
	case 'r':
		return '\r', nil
	case 'f':
		return '\f', nil
	case 'a':
		return 7, nil
	case 'e':
		return 27, nil
	case '0':
		return t.octal()
	case 'x':
		if t.accept("{") {
			end := slices.Index(t.in[t.pos:], '}')
			if end < 1 {
				return 0, t.errorf(`\x{ without hexadecimal digits and }`)
			}
			v, err := t.hex(end)
			t.pos++
			return v, err
		}
		return t.hex(2)
	case 'u':
		v, err := t.hex(4)
		if err == nil && v >= 0xD800 && v <= 0xDFFF {
			return 0, t.errorf(`half of a surrogate pair; write the character itself or \x{...}`)
		}
		return v, err
	case 'N':
		if !t.accept("{") {
			return 0, t.errorf(`\N without {name}`)
		}
		end := slices.Index(t.in[t.pos:], '}')
		if end < 0 {
			return 0, t.errorf(`\N{ without }`)
		}
		name := string(t.in[t.pos : t.pos+end])
		found, ok := runeNamed(name)
		if !ok {
			return 0, t.errorf(`no character has the name %q; write it as \x{...}`, name)
		}
		t.pos += end + 1
		return found, nil
	case 'c':
		if control := t.peek(0); control > 0 && control < 0x80 {
			t.pos++
			return control ^ 64, nil
		}
		return 0, t.errorf(`\c without a control character`)
	}
	if c < 0x80 && unicode.IsLetter(c) {
		if c == 'X' {
			return 0, t.errorf(`the escape \X is not supported; ` +
				`write \P{M}\p{M}* for a character with its marks`)
		}
		return 0, t.errorf(`the escape \%c is not supported`, c)
	}
	return c, nil
}

// octal reads up to three digits, the first of three at most 3.
func (t *translator) octal() (rune, error) {
	v, n := rune(0), 0
	for n < 3 && t.peek(0) >= '0' && t.peek(0) <= '7' && v*8+t.peek(0)-'0' <= 0o377 {
		v = v*8 + t.peek(0) - '0'
		t.pos++
		n++
	}
	if n == 0 {
		return 0, t.errorf(`\0 without octal digits`)
	}
	return v, nil
}

func (t *translator) hex(digits int) (rune, error) {
	if t.pos+digits > len(t.in) {
		return 0, t.errorf("too few hexadecimal digits")
	}
	s := string(t.in[t.pos : t.pos+digits])
	v, err := strconv.ParseUint(s, 16, 32)
	if err != nil || v > unicode.MaxRune || strings.HasPrefix(s, "+") {
		return 0, t.errorf("illegal hexadecimal escape %q", s)
	}
	t.pos += digits
	return rune(v), nil
}

// namedSet reads \d, \p{...} and the like; the backslash is read already.
func (t *translator) namedSet() (runeSet, bool, error) {
	var set runeSet
	c := t.peek(0)
	switch c {
	case 'd', 'D':
		set = newSet(runeRange{'0', '9'})
		if t.flags.unicodeClass {
			set = digits()
		}
	case 'w', 'W':
		set = newSet(runeRange{'0', '9'}, runeRange{'A', 'Z'}, runeRange{'_', '_'},
			runeRange{'a', 'z'})
		if t.flags.unicodeClass {
			set = unicodeWord()
		}
	case 's', 'S':
		set = newSet(runeRange{'\t', '\r'}, runeRange{' ', ' '})
		if t.flags.unicodeClass {
			set = whitespace()
		}
	case 'h', 'H':
		set = newSet(runeRange{'\t', '\t'}, runeRange{' ', ' '}, runeRange{0xA0, 0xA0},
			runeRange{0x1680, 0x1680}, runeRange{0x180e, 0x180e},
			runeRange{0x2000, 0x200a}, runeRange{0x202f, 0x202f}, runeRange{0x205f, 0x205f},
			runeRange{0x3000, 0x3000})
	case 'v', 'V':
		set = newSet(runeRange{'\n', '\r'}, runeRange{0x85, 0x85}, runeRange{0x2028, 0x2029})
	case 'p', 'P':
		t.pos++
		name := string(t.peek(0))
		if t.accept("{") {
			end := slices.Index(t.in[t.pos:], '}')
			if end < 0 {
				return nil, false, t.errorf("unclosed character family")
			}
			name = string(t.in[t.pos : t.pos+end])
			t.pos += end
		}
		var err error
		if set, err = family(name, t.flags); err != nil {
			return nil, false, t.errorf("%v", err)
		}
		if c == 'P' {
			set = set.negate()
		}
	default:
		return nil, false, nil
	}
	t.pos++
	if c == 'D' || c == 'W' || c == 'S' || c == 'H' || c == 'V' {
		set = set.negate()
	}
	return set, true, nil
}
