package javaregex

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
)

// javablocks.txt has Unicode's blocks as Java 17 has them: first and last character, then the
// names that it takes.
//
//go:embed javablocks.txt
var blockLines string

var blocks = sync.OnceValue(func() map[string]runeSet {
	out := map[string]runeSet{}
	for line := range strings.Lines(blockLines) {
		ends, names, _ := strings.Cut(strings.TrimSpace(line), " ")
		first, last, _ := strings.Cut(ends, "-")
		from, _ := strconv.ParseInt(first, 16, 32)
		to, _ := strconv.ParseInt(last, 16, 32)
		for name := range strings.SplitSeq(names, "|") {
			out[name] = runeSet{{rune(from), rune(to)}}
		}
	}
	return out
})

// assigned are the characters that mean something.
func assigned() runeSet {
	var tables []*unicode.RangeTable
	for name, t := range unicode.Categories {
		if len(name) == 2 && name != "Cn" && name != "LC" {
			tables = append(tables, t)
		}
	}
	return fromTables(tables...)
}

var (
	alphabetic   = of(unicode.L, unicode.Nl, unicode.Other_Alphabetic)
	lowercase    = of(unicode.Ll, unicode.Other_Lowercase)
	uppercase    = of(unicode.Lu, unicode.Other_Uppercase)
	titlecase    = of(unicode.Lt)
	digits       = of(unicode.Nd)
	control      = of(unicode.Cc)
	unicodeBlank = and(of(unicode.Zs), "\t\t")
	whitespace   = and(of(unicode.Z), "\t\r\u0085\u0085")
	joinControl  = and(of(), "\u200C\u200D")
	hexDigits    = and(digits, "AFaf\uFF21\uFF26\uFF41\uFF46")
	unicodeWord  = and(of(unicode.L, unicode.Nl, unicode.Other_Alphabetic, unicode.M, unicode.Nd,
		unicode.Pc), "\u200C\u200D")
	identifierIgnorable = and(of(unicode.Cf), "\x00\x08\x0E\x1B\u007F\u009F")
)

func of(tables ...*unicode.RangeTable) func() runeSet {
	return func() runeSet { return fromTables(tables...) }
}

// and adds ranges, given as to pairs.
func and(set func() runeSet, ranges string) func() runeSet {
	return func() runeSet { return set().union(pairs(ranges)) }
}

func anyCase() runeSet { return lowercase().union(uppercase()).union(titlecase()) }

func graph() runeSet {
	return assigned().intersect(fromTables(unicode.Z, unicode.Cc, unicode.Cs).negate())
}

type families map[string]func() runeSet

// posixFamilies are the names that (?U) changes the meaning of, in capitals.
var posixFamilies = families{
	"ALPHA": alphabetic, "LOWER": lowercase, "UPPER": uppercase, "SPACE": whitespace,
	"PUNCT": of(unicode.P), "XDIGIT": hexDigits, "CNTRL": control, "DIGIT": digits,
	"BLANK": unicodeBlank, "GRAPH": graph,
	"ALNUM": func() runeSet { return alphabetic().union(digits()) },
	"PRINT": func() runeSet { return graph().union(unicodeBlank()).intersect(control().negate()) },
}

// binaryProperties are the other names of \p{IsName}, in capitals.
var binaryProperties = families{
	"ALPHABETIC": alphabetic, "ASSIGNED": assigned, "CONTROL": control,
	"HEXDIGIT": hexDigits, "HEX_DIGIT": hexDigits, "IDEOGRAPHIC": of(unicode.Ideographic),
	"JOINCONTROL": joinControl, "JOIN_CONTROL": joinControl, "LETTER": of(unicode.L),
	"LOWERCASE": lowercase, "UPPERCASE": uppercase, "TITLECASE": titlecase,
	"PUNCTUATION": of(unicode.P), "WHITESPACE": whitespace, "WHITE_SPACE": whitespace,
	"WORD": unicodeWord,
}

// javaTests are the tests of java.lang.Character.
var javaTests = families{
	"javaLowerCase": lowercase, "javaUpperCase": uppercase, "javaTitleCase": titlecase,
	"javaAlphabetic": alphabetic, "javaIdeographic": of(unicode.Ideographic), "javaDigit": digits,
	"javaDefined": assigned, "javaLetter": of(unicode.L),
	"javaLetterOrDigit": of(unicode.L, unicode.Nd), "javaSpaceChar": of(unicode.Z),
	"javaISOControl": control, "javaIdentifierIgnorable": identifierIgnorable,
	"javaWhitespace": func() runeSet {
		noBreak := pairs("\u00A0\u00A0\u2007\u2007\u202F\u202F")
		return fromTables(unicode.Z).intersect(noBreak.negate()).union(pairs("\t\r\x1C\x1F"))
	},
	"javaJavaIdentifierStart": of(unicode.L, unicode.Nl, unicode.Sc, unicode.Pc),
	"javaJavaIdentifierPart": func() runeSet {
		return fromTables(unicode.L, unicode.Nl, unicode.Sc, unicode.Pc, unicode.Nd, unicode.Mc,
			unicode.Mn).union(identifierIgnorable())
	},
}

// cased are the names for which, with the flag i, Java takes both cases: of the property, not of
// the character.
var cased = []string{"LOWER", "UPPER", "LOWERCASE", "UPPERCASE", "TITLECASE",
	"javaLowerCase", "javaUpperCase", "javaTitleCase"}

func (m families) find(name string, f flags) (runeSet, bool) {
	set, ok := m[name]
	switch {
	case !ok:
		return nil, false
	case f['i'] && slices.Contains(cased, name):
		return anyCase(), true
	}
	return set(), true
}

// asciiFamilies are the POSIX names, with their ranges as to pairs.
var asciiFamilies = map[string]string{
	"Lower": "az", "Upper": "AZ", "ASCII": "\x00\x7F", "Alpha": "AZaz", "Digit": "09",
	"Alnum": "09AZaz", "Punct": "!/:@[`{~", "Graph": "!~", "Print": " ~", "Blank": "\t\t  ",
	"Cntrl": "\x00\x1F\x7F\x7F", "XDigit": "09AFaf",
	"Space": "\t\r  ", "L1": "\x00\u00FF",
}

// property finds POSIX names, general categories and the tests of java.lang.Character.
func property(name string, f flags) (runeSet, bool) {
	switch name {
	case "Lower", "Upper":
		if f['i'] {
			name = "Alpha"
		}
	case "Lu", "Ll", "Lt", "LC":
		if f['i'] || name == "LC" {
			return fromTables(unicode.Lu, unicode.Ll, unicode.Lt), true
		}
	case "LD":
		return fromTables(unicode.L, unicode.Nd), true
	case "all":
		return everything(), true
	case "C":
		return fromTables(unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs).
			union(assigned().negate()), true
	case "Cn":
		return assigned().negate(), true
	}
	if ranges, ok := asciiFamilies[name]; ok {
		return pairs(ranges), true
	}
	if table, ok := unicode.Categories[name]; ok && len(name) <= 2 {
		return fromTables(table), true
	}
	return javaTests.find(name, f)
}

// script finds a script by its full name, in any case.
func script(name string) (runeSet, bool) {
	for known, table := range unicode.Scripts {
		if strings.EqualFold(known, name) {
			return fromTables(table), true
		}
	}
	return nil, false
}

// family finds the set of \p{name}.
func family(name string, f flags) (runeSet, error) {
	set, ok := find(name, f)
	if !ok {
		return nil, fmt.Errorf("the character family {%s} is not supported; "+
			"write its characters as a class in brackets", name)
	}
	return slices.Clone(set), nil
}

func find(name string, f flags) (set runeSet, ok bool) {
	if key, value, isPair := strings.Cut(name, "="); isPair {
		switch strings.ToLower(key) {
		case "sc", "script":
			return script(value)
		case "blk", "block":
			set, ok = blocks()[strings.ToUpper(value)]
		case "gc", "general_category":
			return property(value, f)
		}
		return set, ok
	}
	if rest, block := strings.CutPrefix(name, "In"); block {
		set, ok = blocks()[strings.ToUpper(rest)]
		return set, ok
	}
	rest, is := strings.CutPrefix(name, "Is")
	capitals := strings.ToUpper(rest)
	if is || f['U'] {
		set, ok = posixFamilies.find(capitals, f)
	}
	if !ok && is {
		set, ok = binaryProperties.find(capitals, f)
	}
	if !ok {
		set, ok = property(rest, f)
	}
	if !ok && is {
		set, ok = script(rest)
	}
	return set, ok
}
