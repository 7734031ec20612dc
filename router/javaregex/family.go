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

// javablocks.txt has Unicode's blocks as Java 17 knows them: first and last character, then the
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

func alphabetic() runeSet  { return fromTables(unicode.L, unicode.Nl, unicode.Other_Alphabetic) }
func lowercase() runeSet   { return fromTables(unicode.Ll, unicode.Other_Lowercase) }
func uppercase() runeSet   { return fromTables(unicode.Lu, unicode.Other_Uppercase) }
func joinControl() runeSet { return runeSet{{0x200C, 0x200D}} }
func titlecase() runeSet   { return fromTable(unicode.Lt) }
func digits() runeSet      { return fromTable(unicode.Nd) }
func control() runeSet     { return fromTable(unicode.Cc) }
func anyCase() runeSet     { return lowercase().union(uppercase()).union(titlecase()) }

func whitespace() runeSet {
	return fromTable(unicode.Z).union(newSet(runeRange{'\t', '\r'}, runeRange{0x85, 0x85}))
}

func unicodeBlank() runeSet { return fromTable(unicode.Zs).union(runeSet{{'\t', '\t'}}) }

func unicodeWord() runeSet {
	return alphabetic().union(fromTables(unicode.M, unicode.Nd, unicode.Pc)).union(joinControl())
}

func hexDigits() runeSet {
	return digits().union(newSet(runeRange{'A', 'F'}, runeRange{'a', 'f'},
		runeRange{0xFF21, 0xFF26}, runeRange{0xFF41, 0xFF46}))
}

func graph() runeSet {
	return assigned().intersect(fromTables(unicode.Z, unicode.Cc, unicode.Cs).negate())
}

func identifierIgnorable() runeSet {
	return newSet(runeRange{0, 8}, runeRange{0xE, 0x1B},
		runeRange{0x7F, 0x9F}).union(fromTable(unicode.Cf))
}

type families map[string]func() runeSet

func of(tables ...*unicode.RangeTable) func() runeSet {
	return func() runeSet { return fromTables(tables...) }
}

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
		noBreak := newSet(runeRange{0xA0, 0xA0}, runeRange{0x2007, 0x2007},
			runeRange{0x202F, 0x202F})
		return fromTable(unicode.Z).intersect(noBreak.negate()).
			union(newSet(runeRange{'\t', '\r'}, runeRange{0x1C, 0x1F}))
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
	if ok && f.ignoreCase && slices.Contains(cased, name) {
		set = anyCase
	}
	if !ok {
		return nil, false
	}
	return set(), true
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
		return fromTables(unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs).
			union(assigned().negate()), true
	case "Cn":
		return assigned().negate(), true
	}
	if set, ok := asciiFamilies[name]; ok {
		return set, true
	}
	if table, ok := unicode.Categories[name]; ok && len(name) <= 2 {
		return fromTable(table), true
	}
	return javaTests.find(name, f)
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
		capitals := strings.ToUpper(rest)
		if set, ok = posixFamilies.find(capitals, f); !ok {
			set, ok = binaryProperties.find(capitals, f)
		}
		if !ok {
			if set, ok = property(rest, f); !ok {
				set, ok = script(rest)
			}
		}
	} else {
		if f.unicodeClass {
			set, ok = posixFamilies.find(strings.ToUpper(name), f)
		}
		if !ok {
			set, ok = property(name, f)
		}
	}
	if !ok {
		return nil, fmt.Errorf("the character family {%s} is not supported; "+
			"write its characters as a class in brackets", name)
	}
	return slices.Clone(set), nil
}
