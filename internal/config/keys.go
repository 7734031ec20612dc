package config

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/postrider/postrider/router"
)

// routerSection is the one section of which there may be several.
const routerSection = "router"

var sectionNumber = regexp.MustCompile(`^(router)\[[0-9]+\]`)

// unnumbered is a name as it is with one [router] only: "router.null_key" of "router[2].null_key".
func unnumbered(name string) string { return sectionNumber.ReplaceAllString(name, "$1") }

// key is one configuration key: a field of a package's Config. config.example.toml lists them all.
type key struct {
	name    string // in full: "sink.kafka.brokers", "router[2].null_key"
	section string // "sink.kafka", "router[2]"
	leaf    string // the rest, as written in its section; has dots of its own in [router]
	kind    kind
	field   reflect.Value // addressable
}

// fileSuffix makes the sibling key of a secret that names the file to read it from.
const fileSuffix = "_file"

// fileKey is the key that names the file of a secret.
func (k key) fileKey() key {
	k.name, k.leaf, k.kind = k.name+fileSuffix, k.leaf+fileSuffix, secretFile
	return k
}

// owner is the name of the key whose value k sets: of a secret for that of its file.
func (k key) owner() string {
	if k.kind == secretFile {
		return strings.TrimSuffix(k.name, fileSuffix)
	}
	return k.name
}

// env is the variable that sets the key; empty: none, because there are several of its section.
func (k key) env() string {
	if unnumbered(k.name) != k.name {
		return ""
	}
	return envName(k.name)
}

// envName is the environment variable of a key.
func envName(name string) string {
	return envPrefix + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(name))
}

// ofRouter reports whether the key belongs to a rule set.
func (k key) ofRouter() bool { return unnumbered(k.section) == routerSection }

// secret reports whether the key sets a secret, by value or by file.
func (k key) secret() bool { return k.kind == secretText || k.kind == secretFile }

// expands reports whether ${NAME} is replaced in the key's value: in secrets and URLs only. In
// [router] ${group} belongs to a regular expression.
func (k key) expands() bool {
	url := k.leaf == "url" || strings.HasSuffix(k.leaf, "_url")
	return k.secret() || k.kind == text && !k.ofRouter() && url ||
		k.kind == list && k.leaf == "urls"
}

// keysOf lists the keys of a pointer to a struct of sections, in the order of its fields. A field
// without a toml tag is not a key. The keys of several [[router]] have numbers, see
// router.RuleName. It panics on a field of an unknown type.
func keysOf(target any) []key { return appendKeys(nil, reflect.ValueOf(target).Elem(), "") }

func appendKeys(keys []key, v reflect.Value, section string) []key {
	for i := range v.NumField() {
		leaf, options, _ := strings.Cut(v.Type().Field(i).Tag.Get("toml"), ",")
		if leaf == "" || leaf == "-" {
			continue
		}
		field, name := v.Field(i), strings.TrimPrefix(section+"."+leaf, ".")
		kind, ok := kindOf(field.Type(), options)
		switch {
		case ok:
			keys = append(keys, key{name, section, leaf, kind, field})
		case field.Kind() == reflect.Struct:
			keys = appendKeys(keys, field, name)
		case name == routerSection:
			for i := range field.Len() {
				keys = appendKeys(keys, field.Index(i), router.RuleName(i, field.Len()))
			}
		default:
			panic(fmt.Sprintf("config: key %s has type %s, which cannot be configured", name, field.Type()))
		}
	}
	return keys
}

// index finds keys by name.
type index struct {
	keys     []key
	byName   map[string]key // those of the files of secrets, too
	names    []string       // of byName, in order
	plain    []string       // the same without numbers, each once
	sections map[string]bool
}

func newIndex(target any) *index {
	ix := &index{keys: keysOf(target), byName: map[string]key{}, sections: map[string]bool{}}
	for _, k := range ix.keys {
		ix.add(k)
		if k.kind == secretText {
			ix.add(k.fileKey())
		}
		for s := k.section; s != ""; s = s[:max(strings.LastIndexByte(s, '.'), 0)] {
			ix.sections[s] = true
		}
	}
	return ix
}

func (ix *index) add(k key) {
	if _, taken := ix.byName[k.name]; taken {
		panic("config: two keys are named " + k.name)
	}
	ix.byName[k.name] = k
	ix.names = append(ix.names, k.name)
	if plain := unnumbered(k.name); plain == k.name || !slices.Contains(ix.plain, plain) {
		ix.plain = append(ix.plain, plain)
	}
}

// isParent reports whether a name is a key, and with a dot behind it the beginning of others.
func (ix *index) isParent(name string) bool {
	_, known := ix.byName[name]
	return known && ix.leads(name)
}

// leads reports whether names of keys begin with name and a dot.
func (ix *index) leads(name string) bool {
	return slices.ContainsFunc(ix.names, func(n string) bool {
		return strings.HasPrefix(n, name+".")
	})
}
