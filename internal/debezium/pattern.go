package debezium

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"time"

	"github.com/dlclark/regexp2"
)

const (
	// mostWords bounds the names that one pattern expands to.
	mostWords = 200
	// matchTimeout ends a match that backtracks without end.
	matchTimeout = time.Second
)

// expand lists the names that a pattern matches, if they are few:
// `public\.(orders|invoices)_outbox`. A dot is taken literally, as in public.outbox. false: there
// are too many, or the pattern is not valid.
func expand(pattern string) ([]string, bool) {
	re, err := syntax.Parse(strings.TrimSpace(pattern), syntax.Perl)
	if err != nil {
		return nil, false
	}
	words, ok := wordsOf(re.Simplify())
	slices.Sort(words)
	return slices.Compact(words), ok && len(words) > 0
}

func wordsOf(re *syntax.Regexp) ([]string, bool) {
	switch re.Op {
	case syntax.OpEmptyMatch, syntax.OpBeginText, syntax.OpEndText, syntax.OpBeginLine,
		syntax.OpEndLine:
		return []string{""}, true
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase != 0 {
			return nil, false
		}
		return []string{string(re.Rune)}, true
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return []string{"."}, true
	case syntax.OpCharClass:
		return wordsOfClass(re.Rune)
	case syntax.OpCapture:
		return wordsOf(re.Sub[0])
	case syntax.OpQuest:
		words, ok := wordsOf(re.Sub[0])
		return append([]string{""}, words...), ok
	case syntax.OpAlternate:
		var all []string
		for _, sub := range re.Sub {
			words, ok := wordsOf(sub)
			if !ok || len(all)+len(words) > mostWords {
				return nil, false
			}
			all = append(all, words...)
		}
		return all, true
	case syntax.OpConcat:
		all := []string{""}
		for _, sub := range re.Sub {
			words, ok := wordsOf(sub)
			if !ok || len(all)*len(words) > mostWords {
				return nil, false
			}
			all = product(all, words)
		}
		return all, true
	}
	return nil, false
}

func wordsOfClass(ranges []rune) ([]string, bool) {
	var words []string
	for i := 0; i < len(ranges); i += 2 {
		for r := ranges[i]; r <= ranges[i+1]; r++ {
			if len(words) == mostWords {
				return nil, false
			}
			words = append(words, string(r))
		}
	}
	return words, true
}

func product(heads, tails []string) []string {
	var all []string
	for _, h := range heads {
		for _, t := range tails {
			all = append(all, h+t)
		}
	}
	return all
}

// Match returns the names that a Java regular expression matches as a whole, in any case of
// letters, as Debezium does for its lists of tables. A construct that only Java has is an error.
func Match(pattern string, names []string) ([]string, error) {
	matches, err := compile("(?i)" + pattern)
	if err != nil {
		return nil, err
	}
	var matched []string
	for _, name := range names {
		ok, err := matches(name)
		if err != nil {
			return nil, err
		}
		if ok {
			matched = append(matched, name)
		}
	}
	return matched, nil
}

// javaOnly are constructs that Java alone has, or that mean something else elsewhere.
var javaOnly = []string{"&&", `\Q`, `\p{java`, `\p{Is`, `\p{In`, `\h`, `\R`, `\X`, `++`, `*+`,
	`?+`, `}+`}

// compile returns a function that reports whether a pattern matches a whole text. Go's engine runs
// in linear time; a pattern with look-around or back references runs in one that backtracks, with
// a time limit.
func compile(pattern string) (func(string) (bool, error), error) {
	shown := strings.TrimPrefix(pattern, "(?i)")
	for _, construct := range javaOnly {
		if strings.Contains(pattern, construct) {
			return nil, fmt.Errorf("pattern %q has %s, which only Java understands: write it another "+
				"way, or name the tables", shown, construct)
		}
	}
	whole := `\A(?:` + pattern + `)\z`
	if re, err := regexp.Compile(whole); err == nil {
		return func(s string) (bool, error) { return re.MatchString(s), nil }, nil
	}
	re, err := regexp2.Compile(whole, regexp2.None)
	if err != nil {
		return nil, fmt.Errorf("pattern %q cannot be read: name the tables instead", shown)
	}
	re.MatchTimeout = matchTimeout
	return func(s string) (bool, error) {
		ok, err := re.MatchString(s)
		if err != nil {
			return false, fmt.Errorf("pattern %q takes too long: simplify it", shown)
		}
		return ok, nil
	}, nil
}
