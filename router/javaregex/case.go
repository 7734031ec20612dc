package javaregex

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode"

	"golang.org/x/text/unicode/runenames"
)

// fold gives the form in which Java compares characters where both the flags i and u are on.
func fold(c rune) rune { return unicode.ToLower(unicode.ToUpper(c)) }

// casedRunes are the characters that have another case, by the way Java looks for it.
var casedRunes = sync.OnceValue(func() []rune {
	var out []rune
	for c := range rune(unicode.MaxRune + 1) {
		if unicode.ToUpper(c) != c || unicode.ToLower(c) != c || fold(c) != c {
			out = append(out, c)
		}
	}
	return out
})

// sameFold is the characters that Java takes for one that is compared by its fold.
func sameFold(folded rune) runeSet {
	out := []runeRange{{folded, folded}}
	for _, c := range casedRunes() {
		if fold(c) == folded {
			out = append(out, runeRange{c, c})
		}
	}
	return newSet(out...)
}

// literalSet is what a character outside of a class matches.
func literalSet(c rune, f flags) (runeSet, error) {
	alone := runeSet{{c, c}}
	switch {
	case !f['i']:
		return alone, nil
	case !f['u']:
		return alone.foldASCII(), nil
	}
	folded := sameFold(fold(c))
	if unicode.ToUpper(c) != fold(c) {
		alone = folded
	}
	// Java compares a single character in another way than one in a run of characters.
	if !slices.Equal(alone, folded) {
		return nil, fmt.Errorf("%q is not supported together with the flags i and u, where "+
			"Java's meaning depends on its neighbours; write it as a class in brackets", c)
	}
	return alone, nil
}

// classSet is what a range in a class matches, or a single character as a range of one.
func classSet(from, to rune, f flags) runeSet {
	out := newSet(runeRange{from, to})
	switch {
	case !f['i']:
		return out
	case !f['u']:
		return out.foldASCII()
	case from != to:
		more := slices.Clone(out)
		for _, c := range casedRunes() {
			if up := unicode.ToUpper(c); out.has(up) || out.has(unicode.ToLower(up)) {
				more = append(more, runeRange{c, c})
			}
		}
		return newSet(more...)
	case from < 0x80 && !slices.Contains([]rune("IiSsKk"), from):
		return out.foldASCII()
	case from >= 0x80 && from <= 0xFF && !slices.Contains([]rune{0xFF, 0xB5, 0xC5, 0xE5}, from):
		low, up := unicode.ToLower(from), unicode.ToUpper(from)
		return newSet(runeRange{from, from}, runeRange{low, low}, runeRange{up, up})
	case unicode.ToUpper(from) != fold(from):
		return sameFold(fold(from))
	}
	return out
}

// runeNamed finds a character by its name in Unicode, in any case. It looks at all of them, which
// takes a moment.
func runeNamed(name string) (rune, bool) {
	name = strings.ToUpper(strings.TrimSpace(name))
	for c := range rune(unicode.MaxRune + 1) {
		if name != "" && name[0] != '<' && runenames.Name(c) == name {
			return c, true
		}
	}
	return 0, false
}
