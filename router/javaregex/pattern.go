package javaregex

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/dlclark/regexp2"
)

// matchTimeout ends a match that backtracks without end. Topic rules need microseconds.
const matchTimeout = 100 * time.Millisecond

// Pattern is a Java regular expression. Go's own engine runs it where it can express it
// (linear time); look-around, back references, atomic groups and possessive quantifiers go to a
// backtracking engine with a time limit.
type Pattern struct {
	// named groups by their number, counted as Java counts: from left to right
	names  map[string]int
	groups int
	// a back reference ignores the case, and the engine does it as Java does for ASCII alone
	ascii    bool
	lineFull *regexp.Regexp // anchored at both ends
	lineFind *regexp.Regexp
	backFull *regexp2.Regexp
	backFind *regexp2.Regexp
}

// Compile translates and compiles a pattern. An error names what is wrong or what is not
// supported, and where.
func Compile(pattern string) (*Pattern, error) {
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
	p := &Pattern{names: t.names, groups: t.groups, ascii: t.onlyASCII}
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

// Matches reports whether the pattern matches all of s.
func (p *Pattern) Matches(s string) (bool, error) {
	if p.lineFull != nil {
		return p.lineFull.MatchString(s), nil
	}
	if p.ascii && strings.IndexFunc(s, func(c rune) bool { return c >= 0x80 }) >= 0 {
		return false, errors.New("the pattern has a back reference together with the flag i, " +
			"which is supported for ASCII values only")
	}
	return p.backFull.MatchString(s)
}

// ReplaceFirst replaces the first find, as Matcher.replaceFirst does.
func (p *Pattern) ReplaceFirst(s string, r Replacement) (string, error) {
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
