package javaregex

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Replacement is a parsed Java replacement text: literals and group numbers in turn.
type Replacement []replacementPart

type replacementPart struct {
	literal string
	group   int // -1: a literal
}

// ParseReplacement reads $n, ${name} and backslash escapes. Unlike Java it finds bad references
// before the first row.
func ParseReplacement(s string, p *Pattern) (Replacement, error) {
	var r Replacement
	var literal strings.Builder
	flush := func() {
		if literal.Len() > 0 {
			r = append(r, replacementPart{literal.String(), -1})
			literal.Reset()
		}
	}
	in := []rune(s)
	for i := 0; i < len(in); i++ {
		switch in[i] {
		case '\\':
			i++
			if i == len(in) {
				return nil, errors.New(
					`a backslash at the end: the character to be escaped is missing`)
			}
			literal.WriteRune(in[i])
		case '$':
			group, used, err := parseGroupReference(in[i+1:], p)
			if err != nil {
				return nil, err
			}
			flush()
			r = append(r, replacementPart{group: group})
			i += used
		default:
			literal.WriteRune(in[i])
		}
	}
	flush()
	return r, nil
}

// parseGroupReference reads what stands behind a dollar sign.
func parseGroupReference(in []rune, p *Pattern) (group, used int, err error) {
	if len(in) == 0 {
		return 0, 0, errors.New(
			`a dollar sign at the end: the group is missing (write \$ for the sign itself)`)
	}
	if in[0] == '{' {
		end := slices.Index(in, '}')
		if end < 0 {
			return 0, 0, errors.New(`${ without its closing brace`)
		}
		name := string(in[1:end])
		if !groupName.MatchString(name) {
			return 0, 0, fmt.Errorf("${%s}: a group name is letters and digits, beginning "+
				"with a letter; a number is written $1", name)
		}
		number, ok := p.names[name]
		if !ok {
			names := strings.Join(slices.Sorted(maps.Keys(p.names)), ", ")
			return 0, 0, fmt.Errorf("${%s}: the pattern has no group of that name; it has %s", name,
				cmp.Or(names, "none with a name"))
		}
		return number, end + 1, nil
	}
	if in[0] < '0' || in[0] > '9' {
		return 0, 0, fmt.Errorf(`$%c is no group reference (write \$ for the sign itself)`, in[0])
	}
	group, used = int(in[0]-'0'), 1
	if group > p.groups {
		return 0, 0, fmt.Errorf("$%d: the pattern has %d groups", group, p.groups)
	}
	for used < len(in) && in[used] >= '0' && in[used] <= '9' &&
		group*10+int(in[used]-'0') <= p.groups {
		group = group*10 + int(in[used]-'0')
		used++
	}
	return group, used, nil
}

func (r Replacement) expand(group func(int) string) string {
	var out strings.Builder
	for _, p := range r {
		if p.group >= 0 {
			out.WriteString(group(p.group))
		} else {
			out.WriteString(p.literal)
		}
	}
	return out.String()
}
