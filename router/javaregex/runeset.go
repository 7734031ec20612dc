package javaregex

import (
	"slices"
	"strings"
	"unicode"
)

// runeSet is a set of characters as sorted ranges that do not touch.
type runeSet []runeRange

type runeRange struct{ from, to rune }

func everything() runeSet { return runeSet{{0, unicode.MaxRune}} }

func lineEnds() runeSet { return pairs("\n\n\r\r\u0085\u0085\u2028\u2029") }

// pairs is the set of ranges that are given by their first and last characters.
func pairs(ends string) runeSet {
	var ranges []runeRange
	for in := []rune(ends); len(in) > 0; in = in[2:] {
		ranges = append(ranges, runeRange{in[0], in[1]})
	}
	return newSet(ranges...)
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

func fromTables(tables ...*unicode.RangeTable) runeSet {
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
	for _, table := range tables {
		for _, r := range table.R16 {
			add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
		}
		for _, r := range table.R32 {
			add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
		}
	}
	return newSet(ranges...)
}

// class writes a class with nothing in it that another engine reads differently.
func (s runeSet) class() string {
	if len(s) == 0 || len(s) == 1 && surrogate(s[0].from) && surrogate(s[0].to) {
		return matchesNothing
	}
	var out strings.Builder
	out.WriteByte('[')
	for _, r := range s {
		if surrogate(r.from) { // no text has one, and no engine takes one
			r.from = 0xE000
		}
		if surrogate(r.to) {
			r.to = 0xD7FF
		}
		if r.from > r.to {
			continue
		}
		writeRune(&out, r.from)
		if r.to > r.from {
			out.WriteByte('-')
			writeRune(&out, r.to)
		}
	}
	out.WriteByte(']')
	return out.String()
}

func surrogate(c rune) bool { return c >= 0xD800 && c <= 0xDFFF }

const matchesNothing = "[^\\x00-\U0010FFFF]"
