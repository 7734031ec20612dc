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

// javablocks.txt has Unicode's blocks as Java 17 knows them: first and last character, then the names that it takes.
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

func fromTables(tables ...*unicode.RangeTable) runeSet {
	var out runeSet
	for _, t := range tables {
		out = out.union(fromTable(t))
	}
	return out
}

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

func alphabetic() runeSet { return fromTables(unicode.L, unicode.Nl, unicode.Other_Alphabetic) }
func lowercase() runeSet  { return fromTables(unicode.Ll, unicode.Other_Lowercase) }
func uppercase() runeSet  { return fromTables(unicode.Lu, unicode.Other_Uppercase) }
func titlecase() runeSet  { return fromTable(unicode.Lt) }
func digits() runeSet     { return fromTable(unicode.Nd) }
func control() runeSet    { return fromTable(unicode.Cc) }
func anyCase() runeSet    { return lowercase().union(uppercase()).union(titlecase()) }

func whitespace() runeSet {
	return fromTable(unicode.Z).union(newSet(runeRange{'\t', '\r'}, runeRange{0x85, 0x85}))
}

func unicodeBlank() runeSet { return fromTable(unicode.Zs).union(runeSet{{'\t', '\t'}}) }

func unicodeWord() runeSet {
	return alphabetic().union(fromTables(unicode.M, unicode.Nd, unicode.Pc)).union(runeSet{{0x200C, 0x200D}})
}

func hexDigits() runeSet {
	return digits().union(newSet(runeRange{'A', 'F'}, runeRange{'a', 'f'}, runeRange{0xFF21, 0xFF26}, runeRange{0xFF41, 0xFF46}))
}

func graph() runeSet {
	return assigned().intersect(fromTables(unicode.Z, unicode.Cc, unicode.Cs).negate())
}

func identifierIgnorable() runeSet {
	return newSet(runeRange{0, 8}, runeRange{0xE, 0x1B}, runeRange{0x7F, 0x9F}).union(fromTable(unicode.Cf))
}

// cased chooses the set for both cases where the flag i is on: Java looks at the case of the property, not of the character.
func cased(set func() runeSet, f flags) runeSet {
	if f.ignoreCase {
		return anyCase()
	}
	return set()
}

// unicodeFamily finds the names of \p{IsName}, in any case; posix: only those that (?U) changes the meaning of.
func unicodeFamily(name string, f flags, posix bool) (runeSet, bool) {
	name = strings.ToUpper(name)
	switch name {
	case "ALPHA":
		return alphabetic(), true
	case "LOWER":
		return cased(lowercase, f), true
	case "UPPER":
		return cased(uppercase, f), true
	case "SPACE":
		return whitespace(), true
	case "PUNCT":
		return fromTable(unicode.P), true
	case "XDIGIT":
		return hexDigits(), true
	case "ALNUM":
		return alphabetic().union(digits()), true
	case "CNTRL":
		return control(), true
	case "DIGIT":
		return digits(), true
	case "BLANK":
		return unicodeBlank(), true
	case "GRAPH":
		return graph(), true
	case "PRINT":
		return graph().union(unicodeBlank()).intersect(control().negate()), true
	}
	if posix {
		return nil, false
	}
	switch name {
	case "ALPHABETIC":
		return alphabetic(), true
	case "ASSIGNED":
		return assigned(), true
	case "CONTROL":
		return control(), true
	case "HEXDIGIT", "HEX_DIGIT":
		return hexDigits(), true
	case "IDEOGRAPHIC":
		return fromTable(unicode.Ideographic), true
	case "JOINCONTROL", "JOIN_CONTROL":
		return runeSet{{0x200C, 0x200D}}, true
	case "LETTER":
		return fromTable(unicode.L), true
	case "LOWERCASE":
		return cased(lowercase, f), true
	case "UPPERCASE":
		return cased(uppercase, f), true
	case "TITLECASE":
		return cased(titlecase, f), true
	case "PUNCTUATION":
		return fromTable(unicode.P), true
	case "WHITESPACE", "WHITE_SPACE":
		return whitespace(), true
	case "WORD":
		return unicodeWord(), true
	}
	return nil, false
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
	"L1":     {{0, 0xFF}},
}

// property finds POSIX names, general categories and the tests of java.lang.Character.
func property(name string, f flags) (runeSet, bool) {
	switch name {
	case "Lower", "Upper":
		if f.ignoreCase {
			name = "Alpha"
		}
	case "Lu", "Ll", "Lt", "LC":
		if f.ignoreCase || name == "LC" {
			return fromTables(unicode.Lu, unicode.Ll, unicode.Lt), true
		}
	case "LD":
		return fromTables(unicode.L, unicode.Nd), true
	case "all":
		return everything(), true
	case "C":
		return fromTables(unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs).union(assigned().negate()), true
	case "Cn":
		return assigned().negate(), true
	}
	if set, ok := asciiFamilies[name]; ok {
		return set, true
	}
	if table, ok := unicode.Categories[name]; ok && len(name) <= 2 {
		return fromTable(table), true
	}
	switch name {
	case "javaLowerCase":
		return cased(lowercase, f), true
	case "javaUpperCase":
		return cased(uppercase, f), true
	case "javaTitleCase":
		return cased(titlecase, f), true
	case "javaAlphabetic":
		return alphabetic(), true
	case "javaIdeographic":
		return fromTable(unicode.Ideographic), true
	case "javaDigit":
		return digits(), true
	case "javaDefined":
		return assigned(), true
	case "javaLetter":
		return fromTable(unicode.L), true
	case "javaLetterOrDigit":
		return fromTables(unicode.L, unicode.Nd), true
	case "javaSpaceChar":
		return fromTable(unicode.Z), true
	case "javaWhitespace":
		noBreak := newSet(runeRange{0xA0, 0xA0}, runeRange{0x2007, 0x2007}, runeRange{0x202F, 0x202F})
		return fromTable(unicode.Z).intersect(noBreak.negate()).union(newSet(runeRange{'\t', '\r'}, runeRange{0x1C, 0x1F})), true
	case "javaISOControl":
		return control(), true
	case "javaIdentifierIgnorable":
		return identifierIgnorable(), true
	case "javaJavaIdentifierStart":
		return fromTables(unicode.L, unicode.Nl, unicode.Sc, unicode.Pc), true
	case "javaJavaIdentifierPart":
		return fromTables(unicode.L, unicode.Nl, unicode.Sc, unicode.Pc, unicode.Nd, unicode.Mc, unicode.Mn).union(identifierIgnorable()), true
	}
	return nil, false
}

// script finds a script by its full name, in any case.
func script(name string) (runeSet, bool) {
	for known, table := range unicode.Scripts {
		if strings.EqualFold(known, name) {
			return fromTable(table), true
		}
	}
	return nil, false
}

// family finds the set of \p{name}.
func family(name string, f flags) (runeSet, error) {
	var set runeSet
	var ok bool
	if key, value, isPair := strings.Cut(name, "="); isPair {
		switch strings.ToLower(key) {
		case "sc", "script":
			set, ok = script(value)
		case "blk", "block":
			set, ok = blocks()[strings.ToUpper(value)]
		case "gc", "general_category":
			set, ok = property(value, f)
		}
	} else if rest, block := strings.CutPrefix(name, "In"); block {
		set, ok = blocks()[strings.ToUpper(rest)]
	} else if rest, is := strings.CutPrefix(name, "Is"); is {
		if set, ok = unicodeFamily(rest, f, false); !ok {
			if set, ok = property(rest, f); !ok {
				set, ok = script(rest)
			}
		}
	} else {
		if f.unicodeClass {
			set, ok = unicodeFamily(name, f, true)
		}
		if !ok {
			set, ok = property(name, f)
		}
	}
	if !ok {
		return nil, fmt.Errorf("the character family {%s} is not supported; write its characters as a class in brackets", name)
	}
	return slices.Clone(set), nil
}
