package router

import (
	"errors"
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
	ascii    bool           // a back reference ignores the case, and the engine does it as Java does for ASCII alone
	lineFull *regexp.Regexp // anchored at both ends
	lineFind *regexp.Regexp
	backFull *regexp2.Regexp
	backFind *regexp2.Regexp
}

// compileJava translates and compiles a pattern. An error names what is wrong or what is not supported, and where.
func compileJava(pattern string) (*javaPattern, error) {
	t := &translator{in: []rune(pattern), all: -1}
	if _, err := t.translate(); err != nil {
		return nil, err
	}
	// Once more, now that it is known how many groups there are for references to be to.
	t = &translator{in: t.in, all: t.groups, hollow: t.hollow}
	out, err := t.translate()
	if err != nil {
		return nil, err
	}
	p := &javaPattern{names: t.names, groups: t.groups, ascii: t.onlyASCII}
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
	if p.ascii && strings.IndexFunc(s, func(c rune) bool { return c >= 0x80 }) >= 0 {
		return false, errors.New("the pattern has a back reference together with the flag i, which is supported for ASCII values only")
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
	all        int          // groups in the whole pattern; -1: not known yet
	hollow     map[int]bool // groups that are repeated and can match nothing
	empty      bool         // what was read last can match nothing
	backtracks bool
	onlyASCII  bool
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
	one, all := false, true // whether one of the alternatives can match nothing, and whether this one can so far
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
	if t.flags.comments && t.skipComment() {
		return nil
	}
	start, groups := t.out.Len(), t.groups
	t.empty = true
	quantifiable, err := t.atom()
	if err != nil {
		return err
	}
	if t.flags.comments {
		for t.skipComment() {
		}
	}
	switch c := t.peek(0); c {
	case '?', '*', '+', '{':
		if !quantifiable {
			if c == '{' {
				return nil // repeats the nothing behind the flags
			}
			return t.errorf("nothing to repeat before %q", c)
		}
	default:
		return nil
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

func isLineEnd(c rune) bool {
	return c == '\n' || c == '\r' || c == 0x85 || c == 0x2028 || c == 0x2029
}

// quantifier reads what says how often the piece is that was written from start on.
func (t *translator) quantifier(start, captures int) error {
	q := string(t.peek(0))
	nullable := captures > 0 && t.empty
	// The last round of a repetition, which matches nothing, counts for Java's groups: Go's engine leaves it out.
	t.backtracks = t.backtracks || nullable
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
		t.empty = t.empty || strings.Trim(strings.Split(body, ",")[0], "0") == ""
	} else {
		t.pos++
		t.empty = t.empty || q != "+"
	}
	lazy, possessive := t.peek(0) == '?', t.peek(0) == '+'
	switch {
	case possessive && (captures > 1 || nullable):
		return t.errorf("groups in what %s+ repeats are not supported, as Java keeps them where the rest fails; write (?:...) for them", q)
	case nullable && (lazy || q[0] == '{' || q != "?" && captures > 1):
		return t.errorf("a group that can match nothing is not supported in what %s repeats; write (?:...) for it, or have it match something", q)
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
		if err != nil {
			return false, err
		}
		t.writeSet(set)
		t.empty = false
		return true, nil
	case '\\':
		return true, t.escape()
	case '.':
		t.pos++
		t.empty = false
		switch {
		case t.flags.dotAll:
			t.writeSet(everything())
		case t.flags.unixLines:
			t.writeSet(runeSet{{'\n', '\n'}}.negate())
		default:
			t.writeSet(lineEnds().negate())
		}
		return true, nil
	case '^':
		t.pos++
		t.writeStart()
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
	if !t.flags.multiline {
		t.out.WriteString(`\A`)
		return
	}
	t.backtracks = true
	if t.flags.unixLines {
		t.out.WriteString(`(?:(?!\z)(?:\A|(?<=\x0A)))`)
		return
	}
	t.out.WriteString("(?:(?!\\z)(?!(?<=\\x0D)\\x0A)(?:\\A|(?<=[\\x0A\\x0D\u0085\u2028\u2029])))")
}

// writeLineEnd is Java's $ with the flag m.
func (t *translator) writeLineEnd() {
	t.backtracks = true
	if t.flags.unixLines {
		t.out.WriteString(`(?=\x0A|\z)`)
		return
	}
	t.out.WriteString("(?:\\z|(?!(?<=\\x0D)\\x0A)(?=[\\x0A\\x0D\u0085\u2028\u2029]))")
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

func (t *translator) writeLiteral(c rune) error {
	set, err := literalSet(c, t.flags)
	if err != nil {
		return t.errorf("%v", err)
	}
	if len(set) == 1 && set[0].from == set[0].to {
		writeRune(&t.out, c)
	} else {
		t.writeSet(set)
	}
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

// group reads from an opening parenthesis to the closing one.
func (t *translator) group() (quantifiable bool, err error) {
	outer := t.flags
	groups := t.groups
	behind := t.peek(1) == '?' && t.peek(2) == '<' && (t.peek(3) == '=' || t.peek(3) == '!')
	negative := t.peek(1) == '?' && t.peek(2) == '!' || behind && t.peek(3) == '!'
	lookaround := behind || negative || t.peek(1) == '?' && t.peek(2) == '='
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
		t.names[name] = t.groups
		fmt.Fprintf(&t.out, "(?<%d>", t.groups)
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
		fmt.Fprintf(&t.out, "(?<%d>", t.groups)
	}
	if err := t.alternatives(); err != nil {
		return false, err
	}
	if !t.accept(")") {
		return false, t.errorf("unclosed group")
	}
	t.flags = outer
	if t.groups > groups && (behind || negative) {
		return false, t.errorf("groups in (?<=...), (?<!...) and (?!...) are not supported; write (?:...) for them")
	}
	t.out.WriteByte(')')
	t.empty = t.empty || lookaround
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
		case 'm':
			t.flags.multiline = on
		case 'd':
			t.flags.unixLines = on
		case 'u':
			t.flags.unicodeCase = on
		case 'U': // the one flag has the other with it
			t.flags.unicodeClass, t.flags.unicodeCase = on, on
		case '-':
			on = false
		case ')':
			return false, nil
		case ':':
			return true, nil
		case 'c':
			return false, t.errorf("the flag 'c' is not supported; write characters with marks in the way that the application does")
		default:
			return false, t.errorf("unknown construct (?%c", c)
		}
	}
	return false, t.errorf("unclosed group")
}
