package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/httpserver"
	"github.com/postrider/postrider/router"
)

// searchPath lists the configuration files of which the first that exists is read, if none is
// named.
var searchPath = []string{"postrider.toml", "/etc/postrider/postrider.toml"}

const originDefault = "default"

// Source is where a configuration comes from. Flags beat the environment, which beats the file,
// which beats the defaults.
type Source struct {
	// Path is the configuration file. Empty: the one in POSTRIDER_CONFIG, else the first that exists
	// of the search path, else none.
	Path  string
	Env   []string // "NAME=value"; for keys, and for ${NAME} in URLs and secrets
	Flags []Flag   // later ones win
}

// Flag is a key set on the command line.
type Flag struct {
	Key   string // "slot.name"
	Value string
	Name  string // as typed, for errors and origins: "--slot-name"
}

// Loaded is a configuration and where it came from.
type Loaded struct {
	Config   Config
	Path     string   // the file that was read, empty if there is none
	Warnings []string // for the log; no secrets in them
	origins  map[string]string
	source   Source
}

// Load reads the configuration without Validate: every key is known and has the right type, which
// is enough for a command that uses one section. The error is a Problems with every problem.
func Load(src Source) (*Loaded, error) {
	l, problems := read(src)
	if err := problems.or(); err != nil {
		return nil, err
	}
	return l, nil
}

// LoadValid is Load followed by Validate, with the problems of both in one error.
func LoadValid(src Source, sections ...string) (*Loaded, error) {
	l, problems := read(src)
	if l == nil {
		return nil, problems
	}
	spoilt := map[string]bool{}
	for _, p := range problems {
		spoilt[topSection(p.Key)] = true
	}
	for _, p := range l.validate(sections) {
		// A key that could not be read still has its default: problems that follow from that are noise.
		if !spoilt[topSection(p.Key)] {
			problems = append(problems, p)
		}
	}
	if err := problems.or(); err != nil {
		return nil, err
	}
	return l, nil
}

// Again loads and validates the same configuration again: the same file, which must exist if there
// was one, with the same environment and flags. The error is a Problems.
func (l *Loaded) Again() (*Loaded, error) {
	src := l.source
	if l.Path != "" {
		src.Path = l.Path
	}
	return LoadValid(src)
}

// listenLine finds http.listen in a file that is no TOML.
var listenLine = regexp.MustCompile(
	`(?m)^[ \t]*(?:\[http\][^\[]*?\n[ \t]*|http\.)listen[ \t]*=[ \t]*["']([^"'\n]*)["']`)

// ReadHTTP returns the section [http] of a configuration that Load may refuse, as far as it can be
// read. What no source gives has its default.
func ReadHTTP(src Source) httpserver.Config {
	if l, _ := read(src); l != nil {
		return l.Config.HTTP
	}
	l := &Loaded{Config: Default(), origins: map[string]string{}, source: src}
	env := newEnvironment(src.Env)
	if _, data, err := findFile(src.Path, env); err == nil {
		if found := listenLine.FindSubmatch(data); found != nil {
			l.Config.HTTP.Listen = string(found[1])
		}
	}
	ix := newIndex(&l.Config)
	fromEnv, _ := env.settings(ix)
	_ = l.apply(ix, env, fromEnv) // the problems are those of the other keys
	_ = l.apply(ix, env, flagSettings(src.Flags))
	return l.Config.HTTP
}

// Origin is the source of a key's value: "default", "postrider.toml:12", "env POSTRIDER_SLOT_NAME"
// or "flag --slot-name".
func (l *Loaded) Origin(key string) string { return cmp.Or(l.origins[key], originDefault) }

// read returns nil instead of a configuration if the file could not be read at all.
func read(src Source) (*Loaded, Problems) {
	l := &Loaded{Config: Default(), origins: map[string]string{}, source: src}
	env := newEnvironment(src.Env)

	path, data, err := findFile(src.Path, env)
	if err != nil {
		return nil, Problems{{Err: err, Hint: "name another with --config or " + EnvFile}}
	}
	l.Path = path
	doc, problem := parse(path, data)
	if problem != nil {
		return nil, Problems{*problem}
	}
	l.Config.Router = slices.Repeat(l.Config.Router, doc.routers)
	ix := newIndex(&l.Config)
	fromFile, problems := readFile(ix, doc)
	fromEnv, warnings := env.settings(ix)
	l.Warnings = warnings

	// Lowest first.
	problems = append(problems, l.apply(ix, env, fromFile)...)
	slices.SortStableFunc(problems, func(a, b Problem) int { return a.line - b.line })
	problems = append(problems, l.apply(ix, env, fromEnv)...)
	problems = append(problems, l.apply(ix, env, flagSettings(src.Flags))...)
	for i, rule := range l.Config.Router {
		for _, w := range rule.Warnings() {
			l.Warnings = append(l.Warnings, numbered(w, router.RuleName(i, len(l.Config.Router))))
		}
	}
	if l.Config.Prune.OnDelivery && l.Origin("prune.retention") != originDefault {
		l.Warnings = append(l.Warnings, "prune.retention is not used: with prune.on_delivery rows are "+
			"removed as soon as they are delivered")
	}
	return l, problems
}

// findFile returns an empty path if there is no file: the environment and the flags may be enough.
func findFile(path string, env environment) (string, []byte, error) {
	named := cmp.Or(path, env[EnvFile])
	candidates := searchPath
	if named != "" {
		candidates = []string{named}
	}
	for _, path := range candidates {
		data, err := os.ReadFile(path)
		if named == "" && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", nil, fmt.Errorf("read the file: %w", err)
		}
		return path, data, nil
	}
	return "", nil, nil
}

func flagSettings(flags []Flag) []setting {
	settings := make([]setting, len(flags))
	for i, f := range flags {
		settings[i] = setting{name: f.Key, origin: "flag " + f.Name, value: f.Value, text: true}
	}
	return settings
}

// apply sets the keys of one layer.
func (l *Loaded) apply(ix *index, env environment, layer []setting) Problems {
	var problems Problems
	given := map[string]string{} // by key its name in the layer: a secret and its file are one key
	for _, s := range layer {
		if hint, err := l.set(ix, env, s, given); err != nil {
			problems = append(problems, Problem{s.origin, s.name, err, hint, s.line})
		}
	}
	return problems
}

func (l *Loaded) set(
	ix *index, env environment, s setting, given map[string]string,
) (hint string, err error) {
	k, known := ix.byName[s.name]
	if !known && slices.Contains(ix.plain, s.name) { // from the environment or a flag
		first := router.RuleName(0, len(l.Config.Router)) + strings.TrimPrefix(s.name, routerSection)
		return "set it in the file, or for one with --set " + first + "=...",
			errors.New("the file has several [[router]], and this names none of them")
	}
	if !known {
		return didYouMean(s.name, ix.names), errors.New("unknown key")
	}
	owner := k.owner()
	if other := cmp.Or(given[owner], s.name); other != s.name {
		return "keep one of them", fmt.Errorf("%s and %s are both given", other, s.name)
	}
	given[owner] = s.name
	written, _ := s.value.(string)
	if written == NotShown && strings.HasPrefix(s.origin, "flag ") {
		return "put the value there", fmt.Errorf("%q stands for a value that is not shown", NotShown)
	}
	if k.expands() {
		if s.value, err = env.expandValue(s.value); err != nil {
			return "", err
		}
	}
	if s.text {
		err = k.setText(s.value.(string))
	} else {
		err = k.setValue(s.value)
	}
	if err != nil {
		return "", err
	}
	l.origins[owner] = s.origin
	// Every user of the machine can read arguments in the list of processes.
	if k.kind == secretText && strings.HasPrefix(s.origin, "flag ") && !k.harmless(written) {
		l.Warnings = append(l.Warnings, fmt.Sprintf("%s is readable by others as an argument of this "+
			"process: use %s or %s%s", s.name, k.env(), s.name, fileSuffix))
	}
	return "", nil
}

// Adopt returns l with newer's values of the keys that may change, the names of the keys that did,
// and those that newer would have changed otherwise. Path and Warnings are those of newer. It
// changes neither l nor newer. Secrets are equal if their values are, or the names of their files.
func (l *Loaded) Adopt(newer *Loaded, may func(key string) bool) (adopted *Loaded, changed,
	left []string) {
	adopted = &Loaded{
		Config: l.Config, Path: newer.Path, Warnings: newer.Warnings, origins: map[string]string{},
		source: l.source,
	}
	maps.Copy(adopted.origins, l.origins)
	adopted.Config.Router = slices.Clone(l.Config.Router) // not to write into that of l
	given := map[string]key{}
	for _, k := range keysOf(&newer.Config) {
		given[k.name] = k
	}
	for _, k := range keysOf(&adopted.Config) {
		g, found := given[k.name]
		delete(given, k.name)
		switch {
		case found && same(k, g):
		case !found || !may(k.name): // not found: the number of [[router]] has changed
			left = append(left, k.name)
			continue
		default:
			k.field.Set(g.field)
			changed = append(changed, k.name)
		}
		adopted.origins[k.name] = newer.Origin(k.name)
	}
	return adopted, changed, append(left, slices.Sorted(maps.Keys(given))...)
}

func same(a, b key) bool {
	if a.kind == list && a.field.Len() == 0 && b.field.Len() == 0 {
		return true // nil and empty
	}
	return reflect.DeepEqual(a.field.Interface(), b.field.Interface())
}
