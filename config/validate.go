package config

import (
	"slices"
	"strings"
)

// check is the judgement of one section.
type check struct {
	section string
	run     func() error
}

func (c Config) checks() []check {
	return []check{
		{"postgres", c.Postgres.Validate},
		{"slot", c.Slot.Validate},
		{"replication", c.Replication.Validate},
		{"router", c.Router.Validate},
		{"format", c.Format.Validate},
		{"sink", c.Sink.Validate},
		{"relay", c.Relay.Validate},
		{"http", c.HTTP.Validate},
		{"log", c.Log.Validate},
	}
}

// Validate asks each package about its section. Without arguments it judges all; a command that uses two sections names
// them, so that `postrider slot list` works before a broker is configured. The error is a Problems.
func (l *Loaded) Validate(sections ...string) error { return l.validate(sections).or() }

// Validate judges a configuration that was not loaded, such as one built by a test or the demo.
func (c Config) Validate(sections ...string) error {
	return (&Loaded{Config: c}).Validate(sections...)
}

func (l *Loaded) validate(sections []string) Problems {
	var problems Problems
	keys := keysOf(&l.Config)
	for _, c := range l.Config.checks() {
		if len(sections) > 0 && !slices.Contains(sections, c.section) {
			continue
		}
		for _, err := range split(c.run()) {
			problems = append(problems, l.locate(keys, c.section, err))
		}
	}
	if l.Path == "" && l.origins != nil {
		problems.noteMissingFile()
	}
	return problems
}

// noteMissingFile adds to the first value that nobody gave why that may be.
func (ps Problems) noteMissingFile() {
	for i := range ps {
		if ps[i].Origin == originDefault || ps[i].Origin == "" {
			ps[i].Hint = "no configuration file was found: looked for " + strings.Join(searchPath, " and ")
			return
		}
	}
}

// split undoes errors.Join, and only that: an error may also wrap several and say one thing.
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

// locate finds the key an error of a section is about, by the name in its text, and where that key was set. The longest
// name wins: route.topic.replacement before route.topic.
func (l *Loaded) locate(keys []key, section string, err error) Problem {
	p := Problem{Key: section, Err: err}
	text, best := err.Error(), 0
	for _, k := range keys {
		if topSection(k.name) != section || len(k.leaf) <= best {
			continue
		}
		below := strings.TrimPrefix(k.name, section+".") // "kafka.brokers"
		if mentions(text, k.name) || strings.HasPrefix(text, below) && mentions(text, below) {
			p.Key, p.Origin, best = k.name, l.Origin(k.name), len(k.leaf)
		}
	}
	return p
}

// mentions tells whether text contains name as a whole.
func mentions(text, name string) bool {
	for from := 0; ; {
		i := strings.Index(text[from:], name)
		if i < 0 {
			return false
		}
		i += from
		end := i + len(name)
		startsHere := i == 0 || !partOfName(text[i-1])
		// A full stop ends a sentence, unless another part of a name follows.
		endsHere := end == len(text) || !partOfName(text[end]) || text[end] == '.' && (end+1 == len(text) || !partOfName(text[end+1]))
		if startsHere && endsHere {
			return true
		}
		from = end
	}
}

func partOfName(c byte) bool {
	return c == '_' || c == '.' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

func topSection(name string) string {
	section, _, _ := strings.Cut(name, ".")
	return section
}
