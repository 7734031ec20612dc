package debezium

import (
	"fmt"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/postrider/postrider/router/javaregex"
)

// mostWords is what one pattern expands to.
const mostWords = 200

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
// letters, as Debezium does for its lists of tables.
func match(pattern string, names []string) (matched []string, err error) {
	matches, err := compile(pattern) // first as it is written: an error says at which character
	if err == nil {
		matches, err = compile("(?i)" + pattern)
	}
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

// compile returns a function that reports whether a Java regular expression matches a whole text.
func compile(pattern string) (func(string) (bool, error), error) {
	named := func(err error) error {
		if err == nil {
			return nil
		}
		return fmt.Errorf("pattern %q: %w: write it another way, or name the tables",
			strings.TrimPrefix(pattern, "(?i)"), err)
	}
	p, err := javaregex.Compile(pattern)
	if err != nil {
		return nil, named(err)
	}
	return func(s string) (bool, error) {
		ok, err := p.Matches(s)
		return ok, named(err)
	}, nil
}
