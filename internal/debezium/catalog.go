package debezium

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/pelletier/go-toml/v2"

	"github.com/postrider/postrider/internal/suggest"
)

//go:embed catalog.toml
var catalogText []byte

// catalog is catalog.toml.
type catalog struct {
	Mapped        []string          `toml:"mapped"` // properties that have code of their own
	Rules         []rule            `toml:"property"`
	Transforms    []effect          `toml:"transform"`
	Router        []option          `toml:"router"` // of EventRouter
	Connector     []option          `toml:"connector"`
	Formats       map[string]string `toml:"formats"`        // converter class to format
	ServerFormats map[string]string `toml:"server_formats"` // Debezium Server's name to class
}

// rule decides about properties by their value alone.
type rule struct {
	Names     []string `toml:"names"`
	Prefixes  []string `toml:"prefixes"`
	Boolean   bool     `toml:"boolean"`   // values other than true and false are refused
	Fine      []string `toml:"fine"`      // values that are not needed, in lower case
	Why       string   `toml:"why"`       // fine values are not needed; all without a text below
	Refused   string   `toml:"refused"`   // of any other value
	Attention string   `toml:"attention"` // any other value is not needed, and to be read
}

// option is a property that a key of postrider.toml has the value of.
type option struct {
	Name      string   `toml:"name"`      // of the property; EventRouter's: without transforms.ALIAS
	Section   string   `toml:"section"`   // of postrider.toml; EventRouter's: empty, they go to its [router]
	Key       string   `toml:"key"`       // in that section; empty: the same as Name
	Kind      string   `toml:"kind"`      // see read and routerOption
	Words     []string `toml:"words"`     // accepted, of a word
	Default   any      `toml:"default"`   // of a property that is not in the file; nil: no setting
	Missing   string   `toml:"missing"`   // the text about the default
	Text      string   `toml:"text"`      // why it is ignored, or a remark
	Attention bool     `toml:"attention"` // the remark is to be read before the first start
}

// effect is what transforms do.
type effect struct {
	Classes []string `toml:"classes"` // the last part; empty: any other
	Effect  string   `toml:"effect"`
	Instead string   `toml:"instead"`
}

// known reads the catalog once.
var known = sync.OnceValue(func() (c catalog) {
	if err := toml.Unmarshal(catalogText, &c); err != nil {
		panic(fmt.Sprintf("debezium: catalog.toml: %v", err))
	}
	return c
})

// rule finds the rule of a property, by its name or by its longest known prefix; nil: none.
func (c catalog) rule(name string) (found *rule) {
	longest := 0
	for i, r := range c.Rules {
		if slices.Contains(r.Names, name) {
			return &c.Rules[i]
		}
		for _, prefix := range r.Prefixes {
			if strings.HasPrefix(name, prefix) && len(prefix) > longest {
				found, longest = &c.Rules[i], len(prefix)
			}
		}
	}
	return found
}

// transform finds what a transform does by the last part of its class.
func (c catalog) transform(class string) effect {
	class = strings.TrimSuffix(strings.TrimSuffix(class, "$Key"), "$Value")
	for _, wanted := range []string{class, ""} {
		for _, e := range c.Transforms {
			if slices.Contains(e.Classes, wanted) {
				return e
			}
		}
	}
	return effect{}
}

// nearest finds the known property that name was probably meant to be; empty if there is none.
func (c catalog) nearest(name string) string {
	names := slices.Clone(c.Mapped)
	for _, r := range c.Rules {
		names = append(names, r.Names...)
	}
	for _, o := range c.Connector {
		names = append(names, o.Name)
	}
	for _, o := range securityOptions {
		names = append(names, override+o)
	}
	if rest, found := strings.CutPrefix(name, "transforms."); found {
		alias, _, _ := strings.Cut(rest, ".")
		for _, o := range c.Router {
			names = append(names, "transforms."+alias+"."+o.Name)
		}
	}
	slices.Sort(names)
	return suggest.Nearest(name, names, len(name)/4)
}
