package javaregex

import (
	"fmt"
	"regexp"
)

// group reads from an opening parenthesis to the closing one.
func (t *translator) group() (quantifiable bool, err error) {
	outer := t.flags
	groups := t.groups
	behind := t.peek(1) == '?' && t.peek(2) == '<' && (t.peek(3) == '=' || t.peek(3) == '!')
	negative := t.peek(1) == '?' && t.peek(2) == '!' || behind && t.peek(3) == '!'
	lookaround := behind || negative || t.peek(1) == '?' && t.peek(2) == '='
	for _, open := range []string{"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"} {
		if t.accept(open) {
			t.out.WriteString(open)
			t.backtracks = t.backtracks || open != "(?:"
			return t.groupBody(outer, groups, behind || negative, lookaround)
		}
	}
	switch {
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
	return t.groupBody(outer, groups, false, false)
}

// groupBody reads up to the closing parenthesis of a group. A bare one may have no groups in it.
func (t *translator) groupBody(outer flags, groups int, bare, lookaround bool) (bool, error) {
	if err := t.alternatives(); err != nil {
		return false, err
	}
	if !t.accept(")") {
		return false, t.errorf("unclosed group")
	}
	t.flags = outer
	if t.groups > groups && bare {
		return false, t.errorf(
			"groups in (?<=...), (?<!...) and (?!...) are not supported; write (?:...) for them")
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
		return "", t.errorf("a group name is letters and digits, beginning with a letter, in "+
			"<>; not %q", name)
	}
	return name, nil
}

var groupName = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9]*$`)

// setFlags reads what stands behind (?. Flags in a group of their own last to the end of the group
// around them.
func (t *translator) setFlags() (scoped bool, err error) {
	on := true
	for t.more() {
		c := t.peek(0)
		t.pos++
		switch c {
		case 'i', 's', 'x', 'm', 'd', 'u':
			t.flags[c] = on
		case 'U': // the one flag has the other with it
			t.flags['U'], t.flags['u'] = on, on
		case '-':
			on = false
		case ')', ':':
			return c == ':', nil
		case 'c':
			return false, t.errorf("the flag 'c' is not supported; write characters with marks " +
				"in the way that the application does")
		default:
			return false, t.errorf("unknown construct (?%c", c)
		}
	}
	return false, t.errorf("unclosed group")
}
