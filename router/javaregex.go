package router

import (
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"

	"github.com/dlclark/regexp2"
)

// matchTimeout ends a match that backtracks without end. Topic rules need microseconds.
const matchTimeout = 100 * time.Millisecond

// javaPattern is a Java regular expression. Go's own engine runs it where it can express it (linear time); look-around,
// back references, atomic groups and possessive quantifiers go to a backtracking engine with a time limit.
type javaPattern struct {
	names    map[string]int // named groups by their number, counted as Java counts: from left to right
	groups   int
	lineFull *regexp.Regexp // anchored at both ends
	lineFind *regexp.Regexp
	backFull *regexp2.Regexp
	backFind *regexp2.Regexp
}

// compileJava translates and compiles a pattern. An error names what is wrong or what is not supported, and where.
func compileJava(pattern string) (*javaPattern, error) {
	t := &translator{in: []rune(pattern), names: map[string]int{}}
	out, err := t.translate()
	if err != nil {
		return nil, err
	}
	p := &javaPattern{names: t.names, groups: t.groups}
	full := `\A(?:` + out + `)\z`
	if !t.backtracks {
		if p.lineFind, err = regexp.Compile(out); err == nil {
			if p.lineFull, err = regexp.Compile(full); err == nil {
				return p, nil
			}
		}
	}
	if p.backFind, err = regexp2.Compile(out, regexp2.None); err != nil {
		return nil, fmt.Errorf("not a valid pattern: %w", err)
	}
	if p.backFull, err = regexp2.Compile(full, regexp2.None); err != nil {
		return nil, fmt.Errorf("not a valid pattern: %w", err)
	}
	p.backFind.MatchTimeout = matchTimeout
	p.backFull.MatchTimeout = matchTimeout
	return p, nil
}

// matches tells whether the pattern matches all of s.
func (p *javaPattern) matches(s string) (bool, error) {
	if p.lineFull != nil {
		return p.lineFull.MatchString(s), nil
	}
	return p.backFull.MatchString(s)
}

// replaceFirst replaces the first find, as Matcher.replaceFirst does.
func (p *javaPattern) replaceFirst(s string, r replacement) (string, error) {
	if p.lineFind != nil {
		at := p.lineFind.FindStringSubmatchIndex(s)
		if at == nil {
			return s, nil
		}
		return s[:at[0]] + r.expand(func(n int) string {
			if at[2*n] < 0 {
				return ""
			}
			return s[at[2*n]:at[2*n+1]]
		}) + s[at[1]:], nil
	}
	m, err := p.backFind.FindStringMatch(s)
	if err != nil || m == nil {
		return s, err
	}
	runes := []rune(s)
	return string(runes[:m.Index]) + r.expand(func(n int) string {
		if g := m.GroupByNumber(n); g != nil && len(g.Captures) > 0 {
			return g.String()
		}
		return ""
	}) + string(runes[m.Index+m.Length:]), nil
}

// translator rewrites a Java pattern so that it means the same elsewhere: classes become explicit ranges, groups get Java's
// numbers, and what has no equal is refused.
type translator struct {
	in         []rune
	pos        int
	out        strings.Builder
	names      map[string]int
	groups     int
	closed     map[int]bool
	missing    []int // groups that are referred to where there are none yet
	backtracks bool
	flags      flags
}

// flags are those of (?isxmduU).
type flags struct{ ignoreCase, dotAll, comments, multiline, unixLines, unicodeCase, unicodeClass bool }

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
	for i := range r {
		if t.peek(i) != r[i] {
			return false
		}
	}
	t.pos += len(r)
	return true
}

func (t *translator) translate() (string, error) {
	t.closed = map[int]bool{}
	if err := t.alternatives(); err != nil {
		return "", err
	}
	if t.more() {
		return "", t.errorf("unmatched closing parenthesis")
	}
	for _, number := range t.missing {
		if number <= t.groups {
			return "", t.errorf("a reference to group %d stands before the group, or in it: that is not supported; write the reference behind it", number)
		}
	}
	return t.out.String(), nil
}

// alternatives reads up to the end or a closing parenthesis.
func (t *translator) alternatives() error {
	for t.more() && t.peek(0) != ')' {
		if t.accept("|") {
			t.out.WriteByte('|')
			continue
		}
		if err := t.piece(); err != nil {
			return err
		}
	}
	return nil
}

// piece reads an atom with its quantifier.
func (t *translator) piece() error {
	if t.flags.comments && t.skipComment() {
		return nil
	}
	start, groups := t.out.Len(), t.groups
	quantifiable, err := t.atom()
	if err != nil {
		return err
	}
	if t.groups > groups && strings.ContainsRune("*+{", t.peek(0)) && matchesNothing(t.out.String()[start:]) {
		t.backtracks = true // the last, empty round counts for the groups in it: not so in the other engine
	}
	if t.flags.comments {
		for t.skipComment() {
		}
	}
	switch c := t.peek(0); c {
	case '?', '*', '+', '{':
		if !quantifiable {
			return t.errorf("nothing to repeat before %q", c)
		}
	default:
		return nil
	}
	return t.quantifier(start)
}

// matchesNothing tells whether a translated piece matches the empty text.
func matchesNothing(piece string) bool {
	re, err := regexp.Compile(`\A(?:` + numberedGroup.ReplaceAllString(piece, "(?:") + `)\z`)
	return err == nil && re.MatchString("")
}

var numberedGroup = regexp.MustCompile(`\(\?<[0-9]+>`)

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

func isLineEnd(c rune) bool {
	return c == '\n' || c == '\r' || c == 0x85 || c == 0x2028 || c == 0x2029
}

func (t *translator) quantifier(start int) error {
	q := string(t.peek(0))
	if t.accept("{") {
		end := t.pos
		for end < len(t.in) && t.in[end] != '}' {
			end++
		}
		body := string(t.in[t.pos:end])
		if end == len(t.in) || !repetition.MatchString(body) {
			return t.errorf("illegal repetition {%s", body)
		}
		q = "{" + body + "}"
		t.pos = end + 1
	} else {
		t.pos++
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
	switch c := t.peek(0); c {
	case '?', '*', '+':
		return t.errorf("nothing to repeat before %q", c)
	case '{': // Java repeats the nothing in between
		nothing := t.out.Len()
		err := t.quantifier(nothing)
		s := t.out.String()
		t.out.Reset()
		t.out.WriteString(s[:nothing])
		return err
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
		if err != nil {
			return false, err
		}
		t.writeSet(set)
		return true, nil
	case '\\':
		return true, t.escape()
	case '.':
		t.pos++
		switch {
		case t.flags.dotAll:
			t.writeSet(everything())
		case t.flags.unixLines:
			t.writeSet(newSet(runeRange{'\n', '\n'}).negate())
		default:
			t.writeSet(lineEnds().negate())
		}
		return true, nil
	case '^':
		t.pos++
		t.writeLineStart()
		return true, nil
	case '$':
		t.pos++
		if t.flags.multiline {
			t.writeLineEnd()
		} else {
			t.writeEnd()
		}
		return true, nil
	case '?', '*', '+':
		return false, t.errorf("nothing to repeat before %q", c)
	case '{':
		return false, t.errorf("illegal repetition")
	}
	t.pos++
	t.writeLiteral(c)
	return true, nil
}

// writeEnd is Java's $ and \Z: the end, or before one last line end of any kind.
func (t *translator) writeEnd() {
	t.backtracks = true
	if t.flags.unixLines {
		t.out.WriteString(`(?=\x0A?\z)`)
		return
	}
	t.out.WriteString("(?:(?!(?<=\\x0D)\\x0A)(?=(?:\\x0D\\x0A|[\\x0A\\x0D\u0085\u2028\u2029])?\\z))")
}

// writeLineStart is Java's ^. With (?m) it stands behind every line end too, but not at the end of all.
func (t *translator) writeLineStart() {
	if !t.flags.multiline {
		t.out.WriteString(`\A`)
		return
	}
	t.backtracks = true
	if t.flags.unixLines {
		t.out.WriteString(`(?:\A|(?<=\x0A)(?!\z))`)
		return
	}
	t.out.WriteString("(?:\\A|(?<=[\\x0A\\x0D\u0085\u2028\u2029])(?!(?<=\\x0D)\\x0A)(?!\\z))")
}

// writeLineEnd is Java's $ with (?m): the end, or before a line end, which \r\n is one of.
func (t *translator) writeLineEnd() {
	t.backtracks = true
	if t.flags.unixLines {
		t.out.WriteString(`(?=\x0A|\z)`)
		return
	}
	t.out.WriteString("(?=(?:[\\x0D\u0085\u2028\u2029]|(?<!\\x0D)\\x0A|\\z))")
}

func (t *translator) writeLiteral(c rune) {
	if t.flags.ignoreCase && (t.flags.unicodeCase || c < 0x80 && unicode.IsLetter(c)) {
		if set := t.fold(newSet(runeRange{c, c})); len(set) > 1 {
			t.writeSet(set)
			return
		}
	}
	writeRune(&t.out, c)
}

// writeRune escapes everything in ASCII that is no letter or digit.
func writeRune(out *strings.Builder, c rune) {
	if c < 0x80 && !unicode.IsLetter(c) && !unicode.IsDigit(c) {
		fmt.Fprintf(out, `\x%02X`, c)
		return
	}
	out.WriteRune(c)
}

// group reads from an opening parenthesis to the closing one.
func (t *translator) group() (quantifiable bool, err error) {
	outer := t.flags
	number := 0
	switch {
	case t.accept("(?:"):
		t.out.WriteString("(?:")
	case t.accept("(?="):
		t.out.WriteString("(?=")
		t.backtracks = true
	case t.accept("(?!"):
		t.out.WriteString("(?!")
		t.backtracks = true
	case t.accept("(?<="):
		t.out.WriteString("(?<=")
		t.backtracks = true
	case t.accept("(?<!"):
		t.out.WriteString("(?<!")
		t.backtracks = true
	case t.accept("(?>"):
		t.out.WriteString("(?>")
		t.backtracks = true
	case t.accept("(?<"):
		name, err := t.groupName()
		if err != nil {
			return false, err
		}
		if _, twice := t.names[name]; twice {
			return false, t.errorf("named group <%s> is defined twice", name)
		}
		t.groups++
		number = t.groups
		t.names[name] = number
		fmt.Fprintf(&t.out, "(?<%d>", number)
	case t.accept("(?"):
		scoped, err := t.setFlags()
		if err != nil {
			return false, err
		}
		if !scoped {
			return false, nil
		}
		t.out.WriteString("(?:")
	default:
		t.pos++
		t.groups++
		number = t.groups
		fmt.Fprintf(&t.out, "(?<%d>", number)
	}
	if err := t.alternatives(); err != nil {
		return false, err
	}
	if !t.accept(")") {
		return false, t.errorf("unclosed group")
	}
	t.closed[number] = true
	t.flags = outer
	t.out.WriteByte(')')
	return true, nil
}

// groupName reads up to the closing angle bracket.
func (t *translator) groupName() (string, error) {
	start := t.pos
	for t.more() && t.peek(0) != '>' {
		t.pos++
	}
	name := string(t.in[start:t.pos])
	if !t.accept(">") || !groupName.MatchString(name) {
		return "", t.errorf("a group name is letters and digits, beginning with a letter, in <>; not %q", name)
	}
	return name, nil
}

var groupName = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9]*$`)

// setFlags reads what stands behind (?. Flags in a group of their own last to the end of the group around them.
func (t *translator) setFlags() (scoped bool, err error) {
	on := true
	for t.more() {
		c := t.peek(0)
		t.pos++
		switch c {
		case 'i':
			t.flags.ignoreCase = on
		case 's':
			t.flags.dotAll = on
		case 'x':
			t.flags.comments = on
		case '-':
			on = false
		case ')':
			return false, nil
		case ':':
			return true, nil
		case 'm':
			t.flags.multiline = on
		case 'd':
			t.flags.unixLines = on
		case 'u':
			t.flags.unicodeCase = on
		case 'U':
			t.flags.unicodeClass, t.flags.unicodeCase = on, on
		default:
			return false, t.errorf("unknown construct (?%c", c)
		}
	}
	return false, t.errorf("unclosed group")
}
