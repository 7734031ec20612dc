package javaregex

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func routeWith(t *testing.T, pattern, replacementText, value string) string {
	t.Helper()
	p, err := Compile(pattern)
	require.NoError(t, err)
	r, err := ParseReplacement(replacementText, p)
	require.NoError(t, err)
	matched, err := p.Matches(value)
	require.NoError(t, err)
	if !matched {
		return value
	}
	out, err := p.ReplaceFirst(value, r)
	require.NoError(t, err)
	return out
}

// What is in the expected column was taken from the Java platform's documentation and from the recorded cases.
func TestJavaPattern_MatchesAllThenReplacesTheFirstFind(t *testing.T) {
	for _, c := range []struct{ pattern, replacement, value, want string }{
		{`(?<routedByValue>.*)`, `outbox.event.${routedByValue}`, "User", "outbox.event.User"},
		{`(?<routedByValue>.*)`, `outbox.event.${routedByValue}`, "a\nb", "a\nb"},
		{`a|ab`, `X`, "ab", "Xb"},
		{`(?<x>[A-Z]?[a-z]*?)`, `p.$1.${x}`, "User", "p.U.User"},
		{`(.*)`, `$10`, "User", "User0"},
		{`(.*)`, `a\$b\\c`, "User", `a$b\c`},
		{`(?=U)(?<r>.*)`, `la.${r}`, "User", "la.User"},
		{`(?!U)(.*)`, `la.$1`, "User", "User"},
		{`Order(?<!x)(.*)`, `o.$1`, "OrderPaid", "o.Paid"},
		{`(.)\1(.*)`, `$1-$2`, "aab", "a-b"},
		{`(?<c>.)\k<c>`, `${c}`, "aa", "a"},
		{`(a*+)a`, `never`, "aaa", "aaa"},
		{`[A-Z]++(.*)`, `$1`, "ABc", "c"},
		{`(?>a+)b`, `x`, "aab", "x"},
		{`\Qa.b\E(.*)`, `$1`, "a.bc", "c"},
		{`\Qa.b\E(.*)`, `$1`, "axbc", "axbc"},
		{`(a)(?<n>b)(c)`, `$3$2$1${n}`, "abc", "cbab"}, // named groups are counted among the others
		{`[a-z&&[^aeiou]]+`, `consonants`, "xyz", "consonants"},
		{`[a-z&&[^aeiou]]+`, `consonants`, "xaz", "xaz"},
		{`[a-c[x-z]]+`, `union`, "ax", "union"},
		{`[^a-c[x-z]]+`, `no`, "ax", "ax"},
		{`[]a]+`, `bracket`, "]a", "bracket"},
		{`[a-]+`, `hyphen`, "a-", "hyphen"},
		{`\p{Lu}\p{L}*`, `upper`, "École", "upper"},
		{`\d+`, `digits`, "١٢", "١٢"}, // \d is ASCII in Java
		{`\w+`, `word`, "é", "é"},
		{`\x55\0163er`, `hex`, "User", "hex"},
		{`(?i)user`, `i`, "USER", "i"},
		{`(?i)é`, `i`, "É", "É"}, // without (?u) only ASCII letters have two cases
		{`(?s).*`, `s`, "a\nb", "s"},
		{`(?x) U s e r # name`, `x`, "User", "x"},
		{`(a(?i)b)c`, `x`, "aBc", "x"},
		{`(a(?i)b)c`, `x`, "aBC", "aBC"},
		{`User$`, `eol`, "User\n", "User\n"},
		{`(U)(ser)?`, `$1[$2]`, "U", "U[]"},
		{`a{2,3}?(.*)`, `$1`, "aaa", "a"},
		{`\b(\w+)\b.*`, `$1`, "one two", "one"},
		{`é😀(.*)`, `$1`, "é😀x", "x"},
		{`(.*)(?=é😀)é(.*)`, `$2$1`, "xé😀", "😀x"},
		{``, `x`, "User", "User"},
	} {
		require.Equal(t, c.want, routeWith(t, c.pattern, c.replacement, c.value), "%s -> %s of %q", c.pattern, c.replacement, c.value)
	}
}

// Each expected value is what Java 17 gives.
func TestJavaPattern_KnowsJavasFlagsAndFamilies(t *testing.T) {
	for _, c := range []struct{ pattern, replacement, value, want string }{
		{`(?iu)ä.*`, `x`, "Äb", "x"},
		{`(?iu)s`, `x`, "ſ", "x"},        // long s
		{`(?iu)[k]`, `x`, "\u212A", "x"}, // Kelvin sign
		{`(?i)k`, `x`, "\u212A", "\u212A"},
		{`(?iu)[s]`, `x`, "ſ", "x"},
		{`(?iu)[å]`, `x`, "\u212B", "x"},
		{`(?iu)[а-я]+`, `x`, "ДА", "x"},
		{`(?i)[а-я]+`, `x`, "ДА", "ДА"},
		{`(?iu:ä)Ä`, `x`, "ÄÄ", "x"},
		{`(?iu:ä)ä`, `x`, "ÄÄ", "ÄÄ"},
		{`(?i-u)ä`, `x`, "Ä", "Ä"},
		{`(?m)^a$\n^b$`, `x`, "a\nb", "x"},
		{`(?m)a\r$\n`, `x`, "a\r\n", "a\r\n"}, // both are one line end
		{`(?md)a\r$\n`, `x`, "a\r\n", "x"},
		{`(?m)a\n^`, `x`, "a\n", "a\n"}, // there is no line behind the last end
		{`(?d).*`, `x`, "a\rb", "x"},
		{`(?d).*`, `x`, "a\nb", "a\nb"},
		{`(?d)a$\r`, `x`, "a\r", "a\r"},
		{`(?U)\w+`, `x`, "é", "x"},
		{`(?U)\d`, `x`, "٣", "x"},
		{`(?U)\s`, `x`, "\u2003", "x"},
		{`(?U)\p{Lower}`, `x`, "é", "x"},
		{`(?U-U)\w+`, `x`, "é", "é"},
		{`(?i)\p{Lower}+`, `x`, "aB", "x"},
		{`(?i)\p{Lu}+`, `x`, "aé", "x"},
		{`a\Rb`, `x`, "a\r\nb", "x"},
		{`a\R\nb`, `x`, "a\r\nb", "x"},
		{`\GUser`, `x`, "User", "x"},
		{`a\G`, `x`, "a", "a"},
		{`\N{LATIN SMALL LETTER A}`, `x`, "a", "x"},
		{`[\N{latin small letter b}c]+`, `x`, "bc", "x"},
		{`a{2}{2}`, `x`, "aaaa", "aaaa"}, // the second repeats nothing
		{`a{2}{2}`, `x`, "aa", "x"},
		{`{1}a`, `x`, "a", "x"},
		{`(a)\2`, `x`, "aa", "aa"}, // no such group: matches nothing
		{`(a)\2|b`, `x`, "b", "x"},
		{`(?:\2b|(a)(c))+`, `$1$2`, "accb", "ac"},
		{`(?:b\1|(a))+`, `$1`, "aba", "a"},
		{`(a*)*`, `s.$1`, "aaa", "s."}, // the last round matches nothing
		{`(?i)(a)\1`, `x`, "aA", "x"},
		{`(?i)(?<n>ab)\k<n>`, `x`, "aBAb", "x"},
		{`(?iu)[a-z]`, `kelvin`, "\u212A", "kelvin"},
		{`(?m)^a$\r\n^b$`, `m`, "a\r\nb", "m"},
		{`(?dm)a$\n^b`, `d`, "a\nb", "d"},
		{`(a|b*)*`, `s.$1`, "ab", "s."},
		{`(?:(a*)-)*`, `s.$1`, "a-aa-", "s.aa"},
		{`\p{javaLowerCase}+`, `jl.$0`, "user", "jl.user"},
		{`\p{javaJavaIdentifierStart}\p{javaJavaIdentifierPart}*`, `x`, "_é1", "x"},
		{`\p{InGreek}+`, `x`, "αβγ", "x"},
		{`\p{InLatin-1 Supplement}`, `x`, "é", "x"},
		{`\p{block=basic latin}`, `x`, "e", "x"},
		{`\p{IsGreek}+`, `x`, "αβγ", "x"},
		{`\p{script=greek}+`, `x`, "αβγ", "x"},
		{`\p{IsAlphabetic}+`, `x`, "aé", "x"},
		{`\p{IsDigit}`, `x`, "٣", "x"},
		{`\P{C}`, `x`, "a", "x"},
		{`[^\p{IsAssigned}]`, `x`, "a", "a"},
		{`e\u0301\b.*`, `x`, "e\u0301 a", "x"}, // a mark belongs to its letter
		{`e\b\u0301`, `x`, "e\u0301", "e\u0301"},
	} {
		require.Equal(t, c.want, routeWith(t, c.pattern, c.replacement, c.value), "%s -> %s of %q", c.pattern, c.replacement, c.value)
	}
}

func TestJavaPattern_RefusesWhatItCannotDoExactly(t *testing.T) {
	for pattern, want := range map[string]string{
		` [[a-z]`:        "unclosed character class",
		`(a`:             "unclosed group",
		`a)`:             "unmatched closing parenthesis",
		`*a`:             "nothing to repeat",
		`a**`:            "nothing to repeat",
		`a{`:             "illegal repetition",
		`\X`:             `escape \X is not supported`,
		`\y`:             `escape \y is not supported`,
		`a\`:             "backslash at the end",
		`\k<x>`:          "no group <x>",
		`(?<1a>b)`:       "a group name is letters and digits",
		`(?<a>b)(?<a>c)`: "defined twice",
		`[z-a]`:          "illegal character range",
		`[a-\d]`:         "illegal character range",
		`[&&a]`:          "nothing before &&",
		`\Qab\E+`:        `quantifier behind \E`,
		`(?c)a`:          "flag 'c' is not supported",
		`\p{InNowhere}`:  "{InNowhere} is not supported",
		`\N{NO SUCH}`:    `no character has the name "NO SUCH"`,
		`(?iu)ß`:         "is not supported together with the flags i and u",
		`((a)|b)++`:      "groups in what ++ repeats",
		`(a|)*+`:         "groups in what *+ repeats",
		`(a|){2}`:        "a group that can match nothing",
		`(a*)*\1`:        "which is repeated and can match nothing",
		`(?<=(a))b`:      "groups in (?<=...)",
		`\b{g}`:          `escape \b{g} is not supported`,
		`a{2}*`:          "nothing to repeat",
		`(?P<a>b)`:       "unknown construct",
		`\uD83D`:         "surrogate",
	} {
		_, err := Compile(pattern)
		require.ErrorContains(t, err, want, pattern)
		require.ErrorContains(t, err, "at character", pattern)
	}
}

func TestJavaPattern_EndsACatastrophicMatch(t *testing.T) {
	p, err := Compile(`(?=(a+)+$)a*b`)
	require.NoError(t, err)
	_, err = p.Matches(strings.Repeat("a", 60) + "c")
	require.ErrorContains(t, err, "timeout")
}

func TestParseReplacement_RefusesBadReferences(t *testing.T) {
	p, err := Compile(`(?<a>.)(.)`)
	require.NoError(t, err)
	for text, want := range map[string]string{
		`$3`:    "the pattern has 2 groups",
		`${zz}`: "no group of that name",
		`a$`:    "a dollar sign at the end",
		`a\`:    "a backslash at the end",
		`${a`:   "closing brace",
		`${1}`:  "a number is written $1",
		`$x`:    "no group reference",
	} {
		_, err := ParseReplacement(text, p)
		require.ErrorContains(t, err, want, text)
	}
}

func FuzzCompileJava(f *testing.F) {
	for _, seed := range []string{`(?<routedByValue>.*)`, `[a-z&&[^aeiou]]+`, `\Qa.b\E`, `(a)\1`, `(?i)x++`, `[]a-]`, `\p{Lu}{2}`, `(?x) a # b`} {
		f.Add(seed, "User")
	}
	f.Fuzz(func(t *testing.T, pattern, value string) {
		if len(pattern) > 200 || len(value) > 200 {
			return
		}
		p, err := Compile(pattern)
		if err != nil {
			return
		}
		r, err := ParseReplacement("$0", p)
		require.NoError(t, err)
		matched, err := p.Matches(value)
		if err != nil || !matched {
			return
		}
		out, err := p.ReplaceFirst(value, r)
		if err == nil && strings.ToValidUTF8(value, "") == value {
			require.Equal(t, value, out, "a find replaced by itself leaves the text as it was")
		}
	})
}

func TestJavaPattern_ComparesWithoutCaseInASCIIOnly(t *testing.T) {
	p, err := Compile(`(?i)(.)\1`)
	require.NoError(t, err)
	_, err = p.Matches("éÉ") // not the same for Java without the flag u, but for the engine
	require.ErrorContains(t, err, "ASCII")
}
