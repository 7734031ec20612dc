package router

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// runeSet is a set of characters as sorted ranges that do not touch.
type runeSet []runeRange

type runeRange struct{ from, to rune }

func everything() runeSet { return runeSet{{0, unicode.MaxRune}} }

func lineEnds() runeSet {
	return newSet(runeRange{'\n', '\n'}, runeRange{'\r', '\r'}, runeRange{0x85, 0x85}, runeRange{0x2028, 0x2029})
}

func newSet(ranges ...runeRange) runeSet {
	slices.SortFunc(ranges, func(a, b runeRange) int { return int(a.from - b.from) })
	out := runeSet{}
	for _, r := range ranges {
		if n := len(out); n > 0 && r.from <= out[n-1].to+1 {
			out[n-1].to = max(out[n-1].to, r.to)
			continue
		}
		out = append(out, r)
	}
	return out
}

func (s runeSet) union(o runeSet) runeSet { return newSet(append(slices.Clone(s), o...)...) }

func (s runeSet) negate() runeSet {
	out := runeSet{}
	next := rune(0)
	for _, r := range s {
		if r.from > next {
			out = append(out, runeRange{next, r.from - 1})
		}
		next = r.to + 1
	}
	if next <= unicode.MaxRune {
		out = append(out, runeRange{next, unicode.MaxRune})
	}
	return out
}

func (s runeSet) intersect(o runeSet) runeSet { return s.negate().union(o.negate()).negate() }

// foldASCII adds the other case of every ASCII letter, all that Java's (?i) does without (?u).
func (s runeSet) foldASCII() runeSet {
	more := slices.Clone(s)
	for c := 'a'; c <= 'z'; c++ {
		if upper := c - 32; s.has(c) != s.has(upper) {
			more = append(more, runeRange{c, c}, runeRange{upper, upper})
		}
	}
	return newSet(more...)
}

func (s runeSet) has(c rune) bool {
	return slices.ContainsFunc(s, func(r runeRange) bool { return c >= r.from && c <= r.to })
}

func fromTable(table *unicode.RangeTable) runeSet {
	var ranges []runeRange
	add := func(lo, hi, stride rune) {
		if stride == 1 {
			ranges = append(ranges, runeRange{lo, hi})
			return
		}
		for c := lo; c <= hi; c += stride {
			ranges = append(ranges, runeRange{c, c})
		}
	}
	for _, r := range table.R16 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	for _, r := range table.R32 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	return newSet(ranges...)
}

var asciiFamilies = map[string]runeSet{
	"Lower":  {{'a', 'z'}},
	"Upper":  {{'A', 'Z'}},
	"ASCII":  {{0, 0x7F}},
	"Alpha":  {{'A', 'Z'}, {'a', 'z'}},
	"Digit":  {{'0', '9'}},
	"Alnum":  {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}},
	"Punct":  {{'!', '/'}, {':', '@'}, {'[', '`'}, {'{', '~'}},
	"Graph":  {{'!', '~'}},
	"Print":  {{' ', '~'}},
	"Blank":  {{'\t', '\t'}, {' ', ' '}},
	"Cntrl":  {{0, 0x1F}, {0x7F, 0x7F}},
	"XDigit": {{'0', '9'}, {'A', 'F'}, {'a', 'f'}},
	"Space":  {{'\t', '\r'}, {' ', ' '}},
}

// javaFamilies are named after methods of java.lang.Character.
var javaFamilies = map[string][]*unicode.RangeTable{
	"javaLowerCase": {unicode.Ll, unicode.Other_Lowercase}, "javaUpperCase": {unicode.Lu, unicode.Other_Uppercase}, "javaTitleCase": {unicode.Lt},
	"javaLetter": {unicode.L}, "javaDigit": {unicode.Nd}, "javaLetterOrDigit": {unicode.L, unicode.Nd}, "javaAlphabetic": {unicode.L, unicode.Nl, unicode.Other_Alphabetic},
}

// family finds the set of \p{name}: POSIX names, general categories, scripts.
func family(name string) (runeSet, error) {
	if set, ok := asciiFamilies[name]; ok {
		return set, nil
	}
	if tables, ok := javaFamilies[name]; ok {
		set := runeSet{}
		for _, table := range tables {
			set = set.union(fromTable(table))
		}
		return set, nil
	}
	category := strings.TrimPrefix(name, "Is")
	for _, prefix := range []string{"gc=", "general_category="} {
		category = strings.TrimPrefix(category, prefix)
	}
	if table, ok := unicode.Categories[category]; ok && len(category) <= 2 && category != "Cn" && category != "LC" && category != "C" {
		return fromTable(table), nil
	}
	script := strings.TrimPrefix(name, "Is")
	for _, prefix := range []string{"sc=", "script="} {
		script = strings.TrimPrefix(script, prefix)
	}
	if script != name {
		if table, ok := unicode.Scripts[script]; ok {
			return fromTable(table), nil
		}
	}
	return nil, fmt.Errorf("the character family {%s} is not supported", name)
}
