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
	mostWords    = 200         // that one pattern expands to
	matchTimeout = time.Second // ends a match that backtracks without end
)

// expand lists the names that a pattern matches, if they are few:
// `public\.(orders|invoices)_outbox`. A dot is taken literally, as in public.outbox. false: there
// are too many, or the pattern is not valid.
func expand(pattern string) ([]string, bool) {
	re, err := syntax.Parse(strings.TrimSpace(pattern), syntax.Perl)
	if err != nil {
		return nil, false
	}
	words := wordsOf(re.Simplify())
	slices.Sort(words)
	return slices.Compact(words), len(words) > 0
}

// wordsOf lists what an expression matches; nil: too many.
func wordsOf(re *syntax.Regexp) (words []string) {
	switch re.Op {
	case syntax.OpEmptyMatch, syntax.OpBeginText, syntax.OpEndText, syntax.OpBeginLine,
		syntax.OpEndLine:
		return []string{""}
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase == 0 {
			return []string{string(re.Rune)}
		}
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return []string{"."}
	case syntax.OpCharClass:
		for i := 0; i < len(re.Rune); i += 2 {
			for r := re.Rune[i]; r <= re.Rune[i+1]; r++ {
				if words = append(words, string(r)); len(words) > mostWords {
					return nil
				}
			}
		}
	case syntax.OpCapture:
		return wordsOf(re.Sub[0])
	case syntax.OpQuest:
		if words = wordsOf(re.Sub[0]); words != nil {
			words = append([]string{""}, words...)
		}
	case syntax.OpAlternate:
		for _, sub := range re.Sub {
			more := wordsOf(sub)
			if more == nil || len(words)+len(more) > mostWords {
				return nil
			}
			words = append(words, more...)
		}
	case syntax.OpConcat:
		words = []string{""}
		for _, sub := range re.Sub {
			tails, heads := wordsOf(sub), words
			if len(heads)*len(tails) > mostWords {
				return nil
			}
			words = nil
			for _, h := range heads {
				for _, t := range tails {
					words = append(words, h+t)
				}
			}
		}
	}
	return words
}

// match returns the names that a Java regular expression matches as a whole, in any case of
// letters, as Debezium does for its lists of tables. A construct that only Java has is an error.
func match(pattern string, names []string) (matched []string, err error) {
	matches, err := compile("(?i)" + pattern)
	if err != nil {
		return nil, err
	}
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
