package debezium

import (
	_ "embed"
	"fmt"
	"maps"
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
	mapped     []string                   // properties that have code of their own
	notNeeded  map[string]string          // property to why
	prefixes   map[string]string          // of properties, to why they are not needed
	judged     map[string]judged          // by property
	transforms map[string]transformEffect // by class; the empty one is any other

	router        []routerOption    // in the order of config.example.toml
	handling      []routerOption    // properties of the connector that every [router] gets
	formats       map[string]string // converter class to format
	serverFormats map[string]string // Debezium Server's name of a format to converter class
}

// routerOption is an option of EventRouter, or a property that every [router] gets.
type routerOption struct {
	Name      string   `toml:"name"`
	Kind      string   `toml:"kind"`      // column, boolean, word, text, placement or ignored
	Words     []string `toml:"words"`     // accepted, of a word
	Text      string   `toml:"text"`      // why it is ignored, or a remark
	Attention bool     `toml:"attention"` // the remark is to be read before the first start
}

// judged is a property of which some values are not needed and the others are refused.
type judged struct {
	Fine    []string `toml:"fine"`    // values that are not needed, in lower case
	Why     string   `toml:"why"`     // of those
	Refused string   `toml:"refused"` // of any other value
}

type transformEffect struct {
	Effect  string `toml:"effect"`
	Instead string `toml:"instead"`
}

// known reads the catalog once. A mistake in it is one of ours, and every test meets it.
var known = sync.OnceValue(func() catalog {
	var file struct {
		Mapped    []string `toml:"mapped"`
		NotNeeded []struct {
			Why      string   `toml:"why"`
			Names    []string `toml:"names"`
			Prefixes []string `toml:"prefixes"`
		} `toml:"not_needed"`
		Judged []struct {
			Names []string `toml:"names"`
			judged
		} `toml:"judged"`
		Transforms []struct {
			Classes []string `toml:"classes"`
			transformEffect
		} `toml:"transform"`
		Router        []routerOption    `toml:"router"`
		Handling      []routerOption    `toml:"handling"`
		Formats       map[string]string `toml:"formats"`
		ServerFormats map[string]string `toml:"server_formats"`
	}
	if err := toml.Unmarshal(catalogText, &file); err != nil {
		panic(fmt.Sprintf("debezium: catalog.toml: %v", err))
	}
	c := catalog{
		mapped: file.Mapped, notNeeded: map[string]string{}, prefixes: map[string]string{},
		judged: map[string]judged{}, transforms: map[string]transformEffect{},
		router: file.Router, handling: file.Handling,
		formats: file.Formats, serverFormats: file.ServerFormats,
	}
	for _, n := range file.NotNeeded {
		for _, name := range n.Names {
			c.notNeeded[name] = n.Why
		}
		for _, prefix := range n.Prefixes {
			c.prefixes[prefix] = n.Why
		}
	}
	for _, j := range file.Judged {
		for _, name := range j.Names {
			c.judged[name] = j.judged
		}
	}
	for _, f := range file.Transforms {
		for _, class := range f.Classes {
			c.transforms[class] = f.transformEffect
		}
	}
	return c
})

// withPrefix is why properties that begin like name are not needed.
func (c catalog) withPrefix(name string) (why string, found bool) {
	for prefix, why := range c.prefixes {
		if strings.HasPrefix(name, prefix) {
			return why, true
		}
	}
	return "", false
}

// nearest finds the known property that name was probably meant to be; empty if there is none.
func (c catalog) nearest(name string) string {
	names := slices.Concat(c.mapped, slices.Collect(maps.Keys(c.notNeeded)),
		slices.Collect(maps.Keys(c.judged)))
	for n := range securityOptions {
		names = append(names, override+n)
	}
	if rest, found := strings.CutPrefix(name, "transforms."); found {
		alias, _, _ := strings.Cut(rest, ".")
		for _, o := range c.router {
			names = append(names, "transforms."+alias+"."+o.Name)
		}
	}
	slices.Sort(names)
	return suggest.Nearest(name, names, len(name)/4)
}
