package config

import (
	"fmt"
	"regexp"
	"strings"
)

// Problem is one thing that is wrong with the configuration.
type Problem struct {
	Origin string // see Loaded.Origin; empty: not known
	Key    string // in full; may be empty
	Err    error
	Hint   string // what to do about it; may be empty

	line int // in the file, to report its problems from top to bottom
}

func (p Problem) Error() string {
	var b strings.Builder
	if p.Origin != "" && p.Origin != originDefault {
		b.WriteString(p.Origin + ": ")
	}
	message := p.Err.Error()
	_, below, _ := strings.Cut(p.Key, ".")
	switch {
	case p.Key == "" || mention(message, p.Key) >= 0:
	case below != "" && mention(message, below) == 0:
		// "listen is ..." of a package without its section's name
		b.WriteString(strings.TrimSuffix(p.Key, below))
	default:
		b.WriteString(p.Key + ": ")
	}
	b.WriteString(message)
	if p.Hint != "" {
		b.WriteString("; " + p.Hint)
	}
	return b.String()
}

// Unwrap returns the cause.
func (p Problem) Unwrap() error { return p.Err }

// Problems are all problems of a configuration, in the order of file, environment and flags.
type Problems []Problem

func (ps Problems) Error() string {
	if len(ps) == 1 {
		return "configuration: " + ps[0].Error()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "configuration: %d problems", len(ps))
	for _, p := range ps {
		b.WriteString("\n" + p.Error())
	}
	return b.String()
}

// Unwrap returns every problem, for errors.Is and errors.As.
func (ps Problems) Unwrap() []error {
	errs := make([]error, len(ps))
	for i := range ps {
		errs[i] = ps[i]
	}
	return errs
}

// or returns a nil error if there is no problem.
func (ps Problems) or() error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}

// split undoes errors.Join. It does not split other errors that wrap several.
func split(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var parts []error
	var texts []string
	for _, e := range joined.Unwrap() {
		parts = append(parts, split(e)...)
		texts = append(texts, e.Error())
	}
	if strings.Join(texts, "\n") != err.Error() {
		return []error{err}
	}
	return parts
}

// locate finds the key that an error of a section is about, and its origin: the key whose name
// comes first in the text, in full or without its section; of two at the same place the longer
// one.
func (l *Loaded) locate(keys []key, section string, err error) Problem {
	if unnumbered(section) != section { // a rule set's errors do not have its number
		err = &numberedError{err, section}
	}
	p := Problem{Key: section, Err: err}
	text := err.Error()
	first, longest := len(text), 0
	for _, k := range keys {
		i := mention(text, k.name)
		if i < 0 && topSection(k.name) != section {
			continue
		}
		below := strings.TrimPrefix(k.name, section+".") // "kafka.brokers"
		if j := mention(text, below); i < 0 && (j == 0 || j > 0 && strings.ContainsAny(below, "._")) {
			i = j // not for a single word within a sentence, which may be just a word
		}
		if i >= 0 && (i < first || i == first && len(below) > longest) {
			p.Key, p.Origin, first, longest = k.name, l.Origin(k.name), i, len(below)
		}
	}
	return p
}

// numberedError adds the number of the section to the text of an error.
type numberedError struct {
	err     error
	section string // "router[2]"
}

func (e *numberedError) Error() string { return numbered(e.err.Error(), e.section) }

func (e *numberedError) Unwrap() error { return e.err }

// numbered adds the number of the section to the names of keys in a text.
func numbered(text, section string) string {
	return strings.ReplaceAll(text, unnumbered(section)+".", section+".")
}

// mention is the index of name as a whole name in text; -1: it is not there. A full stop behind it
// ends a sentence, unless another part of a name follows.
func mention(text, name string) int {
	whole := regexp.MustCompile(`(?:^|[^\w.])(` + regexp.QuoteMeta(name) + `)\.?(?:$|[^\w.])`)
	if m := whole.FindStringSubmatchIndex(text); m != nil {
		return m[2]
	}
	return -1
}

func topSection(name string) string {
	section, _, _ := strings.Cut(name, ".")
	return section
}
