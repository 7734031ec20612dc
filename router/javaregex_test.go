package router

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func routeWith(t *testing.T, pattern, replacementText, value string) string {
	t.Helper()
	p, err := compileJava(pattern)
	require.NoError(t, err)
	r, err := parseReplacement(replacementText, p)
	require.NoError(t, err)
	matched, err := p.matches(value)
	require.NoError(t, err)
	if !matched {
		return value
	}
	out, err := p.replaceFirst(value, r)
	require.NoError(t, err)
	return out
}

// What the expected column says was taken from the Java platform's documentation and from the recorded cases.
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
		{`(?iu)ä.*`, `u`, "Äx", "u"},
		{`(?iu)s`, `long`, "ſ", "long"},
		{`(?iu)[a-z]`, `kelvin`, "\u212A", "kelvin"},
		{`(?U)\w+`, `w`, "é", "w"},
		{`(?U)\d+`, `d`, "١٢", "d"},
		{`a\Rb`, `r`, "a\r\nb", "r"},
		{`(?m)^a$\n^b$`, `m`, "a\nb", "m"},
		{`(?m)^a$\r\n^b$`, `m`, "a\r\nb", "m"},
		{`(?m)a\n^`, `m`, "a\n", "a\n"}, // no line begins at the end
		{`(?d).*`, `d`, "a\rb", "d"},
		{`(?dm)a$\n^b`, `d`, "a\nb", "d"},
		{`\GUser`, `g`, "User", "g"},
		{`a{2}{2}`, `x`, "aaaa", "aaaa"}, // the second repeats nothing
		{`a{2}{2}`, `x`, "aa", "x"},
		{`(a)\2`, `x`, "aa", "aa"}, // no such group, no match
		{`(?i)(a)\1`, `x`, "aA", "x"},
		{`(a*)*`, `s.$1`, "aaa", "s."}, // the last round matched nothing
		{`\p{javaLowerCase}+`, `j.$0`, "user", "j.user"},
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
		`{1}`:            "illegal repetition",
		`\X`:             `escape \X is not supported`,
		`\y`:             `escape \y is not supported`,
		`a\`:             "backslash at the end",
		`\1(a)`:          "stands before the group",
		`(a\1)`:          "stands before the group",
		`(?U)\b`:         "together with the flag U",
		`\k<x>`:          "no group <x>",
		`(?<1a>b)`:       "a group name is letters and digits",
		`(?<a>b)(?<a>c)`: "defined twice",
		`\p{InGreek}`:    "not supported",
		`[z-a]`:          "illegal character range",
		`[a-\d]`:         "illegal character range",
		`[&&a]`:          "nothing before &&",
		`\Qab\E+`:        `quantifier behind \E`,
		`(?P<a>b)`:       "unknown construct",
		`\uD83D`:         "surrogate",
	} {
		_, err := compileJava(pattern)
		require.ErrorContains(t, err, want, pattern)
		require.ErrorContains(t, err, "at character", pattern)
	}
}

func TestJavaPattern_EndsACatastrophicMatch(t *testing.T) {
	p, err := compileJava(`(?=(a+)+$)a*b`)
	require.NoError(t, err)
	_, err = p.matches(strings.Repeat("a", 60) + "c")
	require.ErrorContains(t, err, "timeout")
}

func TestParseReplacement_RefusesBadReferences(t *testing.T) {
	p, err := compileJava(`(?<a>.)(.)`)
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
		_, err := parseReplacement(text, p)
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
		p, err := compileJava(pattern)
		if err != nil {
			return
		}
		r, err := parseReplacement("$0", p)
		require.NoError(t, err)
		matched, err := p.matches(value)
		if err != nil || !matched {
			return
		}
		out, err := p.replaceFirst(value, r)
		if err == nil && strings.ToValidUTF8(value, "") == value {
			require.Equal(t, value, out, "a find replaced by itself leaves the text as it was")
		}
	})
}
