package javaregex

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// translator rewrites a Java pattern so that it means the same elsewhere: classes become explicit
// ranges, groups get Java's numbers, and what has no equal is refused.
type translator struct {
	in         []rune
	pos        int
	out        strings.Builder
	names      map[string]int // numbers of named groups
	groups     int            // capturing groups so far
	all        int            // groups in the whole pattern; -1: not known yet
	hollow     map[int]bool   // groups that are repeated and can match nothing
	empty      bool           // what was read last can match nothing
	backtracks bool           // needs an engine that does: look-around, back-references and so on
	onlyASCII  bool           // a back-reference without regard to case: Java compares ASCII only
	flags      flags
}

// flags are those of (?isxmduU), by their letters.
type flags ['z']bool

func (t *translator) errorf(format string, args ...any) error {
	return fmt.Errorf("at character %d: %s", t.pos+1, fmt.Sprintf(format, args...))
}

func (t *translator) more() bool { return t.pos < len(t.in) }

func (t *translator) peek(n int) rune {
	if t.pos+n < len(t.in) {
		return t.in[t.pos+n]
	}
	return -1
}

func (t *translator) accept(s string) bool {
	r := []rune(s)
	if !slices.Equal(r, t.in[t.pos:min(t.pos+len(r), len(t.in))]) {
		return false
	}
	t.pos += len(r)
	return true
}

func (t *translator) translate() (string, error) {
	t.names = map[string]int{}
	if err := t.alternatives(); err != nil {
		return "", err
	}
	if t.more() {
		return "", t.errorf("unmatched closing parenthesis")
	}
	return t.out.String(), nil
}

// alternatives reads up to the end or a closing parenthesis.
func (t *translator) alternatives() error {
	// whether one of the alternatives can match nothing, and whether this one can so far
	one, all := false, true
	for t.more() && t.peek(0) != ')' {
		if t.accept("|") {
			t.out.WriteByte('|')
			one, all = one || all, true
			continue
		}
		if err := t.piece(); err != nil {
			return err
		}
		all = all && t.empty
	}
	t.empty = one || all
	return nil
}

// piece reads an atom with its quantifier.
func (t *translator) piece() error {
	if t.flags['x'] && t.skipComment() {
		return nil
	}
	start, groups := t.out.Len(), t.groups
	t.empty = true
	quantifiable, err := t.atom()
	if err != nil {
		return err
	}
	for t.flags['x'] && t.skipComment() {
	}
	switch c := t.peek(0); {
	case !strings.ContainsRune("?*+{", c):
		return nil
	case !quantifiable && c == '{':
		return nil // repeats the nothing behind the flags
	case !quantifiable:
		return t.errorf("nothing to repeat before %q", c)
	}
	return t.quantifier(start, t.groups-groups)
}

func (t *translator) skipComment() bool {
	switch c := t.peek(0); {
	case c == ' ' || c >= '\t' && c <= '\r':
		t.pos++
		return true
	case c == '#':
		for t.more() && !isLineEnd(t.peek(0)) {
			t.pos++
		}
		return true
	}
	return false
}

func isLineEnd(c rune) bool { return strings.ContainsRune("\n\r\u0085\u2028\u2029", c) }

// quantifier reads how often the piece is repeated that was written from start on.
func (t *translator) quantifier(start, captures int) error {
	q := string(t.peek(0))
	nullable := captures > 0 && t.empty
	// The last round of a repetition, which matches nothing, counts for Java's groups: Go's engine
	// leaves it out.
	t.backtracks = t.backtracks || nullable
	if body, given, closed := t.braced(); given {
		if !closed || !repetition.MatchString(body) {
			return t.errorf("illegal repetition {%s", body)
		}
		q = "{" + body + "}"
		t.empty = t.empty || strings.Trim(strings.Split(body, ",")[0], "0") == ""
	} else {
		t.pos++
		t.empty = t.empty || q != "+"
	}
	lazy, possessive := t.peek(0) == '?', t.peek(0) == '+'
	switch {
	case possessive && (captures > 1 || nullable):
		return t.errorf("groups in what %s+ repeats are not supported, as Java keeps them where "+
			"the rest fails; write (?:...) for them", q)
	case nullable && (lazy || q[0] == '{' || q != "?" && captures > 1):
		return t.errorf("a group that can match nothing is not supported in what %s repeats; "+
			"write (?:...) for it, or have it match something", q)
	}
	for n := t.groups - captures + 1; nullable && q != "?" && n <= t.groups; n++ {
		if t.hollow == nil {
			t.hollow = map[int]bool{}
		}
		t.hollow[n] = true
	}
	switch {
	case t.accept("?"):
		t.out.WriteString(q + "?")
	case t.accept("+"):
		s := t.out.String()
		t.out.Reset()
		t.out.WriteString(s[:start] + "(?>" + s[start:] + q + ")")
		t.backtracks = true
	default:
		t.out.WriteString(q)
	}
	if c := t.peek(0); c == '?' || c == '*' || c == '+' {
		return t.errorf("nothing to repeat before %q", c)
	}
	return nil
}

var repetition = regexp.MustCompile(`^[0-9]{1,6}(,[0-9]{0,6})?$`)

// atom reads one element and writes its translation. Flags and comments cannot be repeated.
func (t *translator) atom() (quantifiable bool, err error) {
	c := t.peek(0)
	switch c {
	case '(':
		return t.group()
	case '[':
		set, err := t.class()
		t.out.WriteString(set.class())
		t.empty = false
		return true, err
	case '\\':
		return true, t.escape()
	case '.':
		t.pos++
		t.empty = false
		set := lineEnds().negate()
		switch {
		case t.flags['s']:
			set = everything()
		case t.flags['d']:
			set = runeSet{{'\n', '\n'}}.negate()
		}
		t.out.WriteString(set.class())
		return true, nil
	case '^':
		t.pos++
		t.writeStart()
		return true, nil
	case '$':
		t.pos++
		if t.flags['m'] {
			t.writeLineEnd()
		} else {
			t.writeEnd()
		}
		return true, nil
	case '?', '*', '+':
		return false, t.errorf("nothing to repeat before %q", c)
	case '{': // repeats nothing, as Java has it
		t.out.WriteString("(?:)")
		return true, nil
	}
	t.pos++
	t.empty = false
	return true, t.writeLiteral(c)
}

// writeStart is Java's ^: the start, and with the flag m that of every line but an empty last one.
func (t *translator) writeStart() {
	if t.flags['m'] {
		t.writeAnchor("(?:(?!\\z)(?!(?<=\\x0D)\\x0A)(?:\\A|(?<=[\\x0A\\x0D\u0085\u2028\u2029])))",
			`(?:(?!\z)(?:\A|(?<=\x0A)))`)
	} else {
		t.out.WriteString(`\A`)
	}
}

// writeLineEnd is Java's $ with the flag m.
func (t *translator) writeLineEnd() {
	t.writeAnchor("(?:\\z|(?!(?<=\\x0D)\\x0A)(?=[\\x0A\\x0D\u0085\u2028\u2029]))", `(?=\x0A|\z)`)
}

// writeEnd is Java's $ and \Z: the end, or before one last line end of any kind.
func (t *translator) writeEnd() {
	t.writeAnchor("(?:(?!(?<=\\x0D)\\x0A)(?=(?:\\x0D\\x0A|[\\x0A\\x0D\u0085\u2028\u2029])?\\z))",
		`(?=\x0A?\z)`)
}

// writeAnchor writes a place between lines for the backtracking engine: any line end counts, or
// with the flag d only \n.
func (t *translator) writeAnchor(anyEnd, newline string) {
	t.backtracks = true
	if t.flags['d'] {
		anyEnd = newline
	}
	t.out.WriteString(anyEnd)
}

func (t *translator) writeLiteral(c rune) error {
	set, err := literalSet(c, t.flags)
	if err != nil {
		return t.errorf("%v", err)
	}
	if len(set) == 1 && set[0].from == set[0].to {
		writeRune(&t.out, c)
		return nil
	}
	t.out.WriteString(set.class())
	return nil
}

// writeRune escapes everything in ASCII that is no letter or digit.
func writeRune(out *strings.Builder, c rune) {
	if c < 0x80 && !unicode.IsLetter(c) && !unicode.IsDigit(c) {
		fmt.Fprintf(out, `\x%02X`, c)
		return
	}
	out.WriteRune(c)
}
