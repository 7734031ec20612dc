package config

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/secret"
	"github.com/postrider/postrider/router"
)

// routerSection is the one section of which there may be several.
const routerSection = "router"

var sectionNumber = regexp.MustCompile(`^(router)\[[0-9]+\]`)

// unnumbered is a name as it is with one [router] only: "router.null_key" of "router[2].null_key".
func unnumbered(name string) string { return sectionNumber.ReplaceAllString(name, "$1") }

// kind is how a key is written and read.
type kind int

const (
	text kind = iota
	boolean
	optionalBoolean // nil: not given
	integer
	float
	size // bytes, "16MiB"
	duration
	list
	secretText
)

// expected completes "expected ..." in an error.
func (k kind) expected() string {
	switch k {
	case boolean, optionalBoolean:
		return "true or false"
	case integer:
		return "an integer"
	case float:
		return "a number"
	case size:
		return `a size such as "16MiB"`
	case duration:
		return `a duration such as "10s"`
	case list:
		return "a list of strings"
	default:
		return "a string"
	}
}

// fileSuffix makes the sibling key of a secret that names the file to read it from.
const fileSuffix = "_file"

// key is one configuration key.
type key struct {
	name    string // in full: "sink.kafka.brokers", "router[2].null_key"
	section string // "sink.kafka", "router[2]"
	leaf    string // the rest, as written in its section; has dots of its own in [router]
	kind    kind
	field   reflect.Value // addressable
}

// env is the variable that sets the key; empty: none, because there are several of its section.
func (k key) env() string {
	if unnumbered(k.name) != k.name {
		return ""
	}
	return envName(k.name)
}

// ofRouter reports whether the key belongs to a rule set.
func (k key) ofRouter() bool { return unnumbered(k.section) == routerSection }

// expands reports whether ${NAME} is replaced in the key's value: in secrets and URLs only. In
// [router] ${group} belongs to a regular expression.
func (k key) expands() bool {
	url := k.leaf == "url" || strings.HasSuffix(k.leaf, "_url")
	return k.kind == secretText || k.kind == text && !k.ofRouter() && url
}

// keysOf lists the keys of a pointer to a struct of sections, in the order of its fields. A field
// without a toml tag is not a key. The keys of several [[router]] have numbers, see
// router.RuleName. It panics on a field of an unknown type.
func keysOf(target any) []key {
	return appendKeys(nil, reflect.ValueOf(target).Elem(), "")
}

func appendKeys(keys []key, v reflect.Value, section string) []key {
	for i := range v.NumField() {
		leaf, options, _ := strings.Cut(v.Type().Field(i).Tag.Get("toml"), ",")
		if leaf == "" || leaf == "-" {
			continue
		}
		name := leaf
		if section != "" {
			name = section + "." + leaf
		}
		field := v.Field(i)
		k, ok := kindOf(field.Type(), options)
		switch {
		case ok:
			keys = append(keys, key{name: name, section: section, leaf: leaf, kind: k, field: field})
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

func kindOf(t reflect.Type, options string) (kind, bool) {
	switch {
	case t == reflect.TypeFor[secret.Secret]():
		return secretText, true
	case t == reflect.TypeFor[time.Duration]():
		return duration, true
	case t == reflect.TypeFor[*bool]():
		return optionalBoolean, true
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.String:
		return list, true
	case t.Kind() == reflect.String:
		return text, true
	case t.Kind() == reflect.Bool:
		return boolean, true
	case t.Kind() == reflect.Float64:
		return float, true
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Int64:
		if options == "size" {
			return size, true
		}
		return integer, true
	}
	return 0, false
}

// ref is a name that may stand in the configuration: a key, or the file of a secret.
type ref struct {
	key
	file bool
}

func (r ref) name() string {
	if r.file {
		return r.key.name + fileSuffix
	}
	return r.key.name
}

// index finds refs by name.
type index struct {
	keys     []key
	refs     map[string]ref
	names    []string // of refs, in order
	plain    []string // the same without numbers, each once
	sections map[string]bool
}

func newIndex(target any) *index {
	ix := &index{keys: keysOf(target), refs: map[string]ref{}, sections: map[string]bool{}}
	for _, k := range ix.keys {
		ix.add(ref{key: k})
		if k.kind == secretText {
			ix.add(ref{key: k, file: true})
		}
		for s := k.section; s != ""; s = parent(s) {
			ix.sections[s] = true
		}
	}
	return ix
}

// isParent reports whether a name is a key, and with a dot behind it the beginning of others.
func (ix *index) isParent(name string) bool {
	_, known := ix.refs[name]
	return known && ix.leads(name)
}

// leads reports whether names of keys begin with name and a dot.
func (ix *index) leads(name string) bool {
	return slices.ContainsFunc(ix.names, func(n string) bool {
		return strings.HasPrefix(n, name+".")
	})
}

func (ix *index) add(r ref) {
	name := r.name()
	if _, taken := ix.refs[name]; taken {
		panic("config: two keys are named " + name)
	}
	ix.refs[name] = r
	ix.names = append(ix.names, name)
	if plain := unnumbered(name); plain == name || !slices.Contains(ix.plain, plain) {
		ix.plain = append(ix.plain, plain)
	}
}

// parent is the section around a section; empty: none.
func parent(section string) string { return section[:max(strings.LastIndexByte(section, '.'), 0)] }

// envName is the environment variable of a key.
func envName(name string) string {
	return envPrefix + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(name))
}
