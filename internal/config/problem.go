package config

import (
	"fmt"
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
