package config

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/postrider/postrider/internal/secret"
)

// Value is one key of an effective configuration.
type Value struct {
	Key    string `json:"key"`    // in full; of a secret in a file, the key that names the file
	Value  any    `json:"value"`  // secrets masked; sizes and durations are strings; nil: not set
	TOML   string `json:"toml"`   // the same as TOML; empty: not set
	Origin string `json:"origin"` // see Loaded.Origin
	Env    string `json:"env"`    // its environment variable; empty: none, as with several [[router]]

	section, leaf string
}

// Values lists every key with its effective value, in the order of the sections.
func (l *Loaded) Values() []Value {
	ix := newIndex(&l.Config)
	values := make([]Value, len(ix.keys))
	for i, k := range ix.keys {
		origin := l.Origin(k.name)
		if k.kind == secretText && k.field.Interface().(secret.Secret).Path() != "" {
			k = k.fileKey()
		}
		if first, _, dotted := strings.Cut(k.leaf, "."); dotted && ix.isParent(k.section+"."+first) {
			k.leaf = `"` + k.leaf + `"` // without quotes TOML makes first a table
		}
		values[i] = Value{k.name, k.value(), k.String(), origin, k.env(), k.section, k.leaf}
	}
	return values
}

// Print writes the effective configuration as TOML, with the origin behind each value. A key
// without a value is a comment.
func (l *Loaded) Print(w io.Writer) error {
	values := l.Values()
	width := 0
	for _, v := range values {
		if n := len(v.line()); n > width && n <= 60 {
			width = n
		}
	}
	out := bufio.NewWriter(w)
	section := ""
	for i, v := range values {
		if v.section != section || i == 0 {
			if i > 0 {
				fmt.Fprintln(out)
			}
			section = v.section
			fmt.Fprintln(out, v.heading())
		}
		fmt.Fprintf(out, "%-*s  # %s\n", width, v.line(), v.Origin)
	}
	return out.Flush()
}

func (v Value) heading() string {
	if plain := unnumbered(v.section); plain != v.section {
		return "[[" + plain + "]]"
	}
	return "[" + v.section + "]"
}

func (v Value) line() string {
	if v.TOML == "" {
		return "#" + v.leaf + " ="
	}
	return v.leaf + " = " + v.TOML
}

// Names lists the names of all keys, for completion.
func Names() []string {
	c := Default() // which has one [router]
	return newIndex(&c).names
}
