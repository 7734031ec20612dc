package config

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/postrider/postrider/router"
)

// setting is one key with a value from the file, the environment or a flag.
type setting struct {
	name   string // full
	origin string // "postrider.toml:12", "env POSTRIDER_SLOT_NAME", "flag --slot-name"
	value  any    // as the TOML library decodes it
	text   bool   // value is a string from the environment or a flag
	line   int    // in the file
}

// document is a decoded configuration file.
type document struct {
	name    string
	values  map[string]any // decoded; several [[router]] have their numbered names as keys
	lines   map[string]int // by path, as pathID writes it
	routers int            // rule sets, at least one
}

// parse decodes TOML. The lines come from the library's parser, since its decoder has none.
func parse(name string, data []byte) (*document, *Problem) {
	doc := &document{name: name, routers: 1}
	if err := toml.Unmarshal(data, &doc.values); err != nil {
		p := syntaxProblem(name, data, err)
		return nil, &p
	}
	if rules := tablesIn(doc.values[routerSection]); len(rules) > 1 {
		doc.routers = len(rules)
		delete(doc.values, routerSection)
		for i, rule := range rules {
			doc.values[router.RuleName(i, len(rules))] = rule
		}
	}
	doc.lines = keyLines(data, doc.routers)
	return doc, nil
}

// tablesIn is v if it is a list of tables, as [[name]] makes it; else nil.
func tablesIn(v any) []any {
	list, _ := v.([]any)
	for _, item := range list {
		if _, ok := item.(map[string]any); !ok {
			return nil
		}
	}
	return list
}

// readFile lists the settings of a configuration file. It reports an unknown section once, and not
// once per key.
func readFile(ix *index, doc *document) ([]setting, Problems) {
	f := &file{document: doc, ix: ix, seen: map[string]string{}}
	f.table(nil, doc.values)
	slices.SortStableFunc(f.settings, func(a, b setting) int { return a.line - b.line })
	return f.settings, f.problems
}

// file walks a document.
type file struct {
	*document
	ix *index
	// seen maps names to path IDs: in [router], route.by.field and "route.by.field" are one key.
	seen     map[string]string
	settings []setting
	problems Problems
}

func (f *file) table(path []string, t map[string]any) {
	for k, v := range t {
		f.value(append(slices.Clone(path), k), v)
	}
}

func (f *file) value(path []string, v any) {
	name := strings.Join(path, ".")
	below, isTable := v.(map[string]any)
	if isTable && f.ix.isParent(name) { // key.decimal.format without quotes, where key is a key too
		f.table(path, below)
		return
	}
	if _, known := f.ix.refs[name]; known {
		if first, twice := f.seen[name]; twice {
			f.problem(path, fmt.Sprintf("given twice, also in line %d", f.lines[first]), "")
			return
		}
		f.seen[name] = pathID(path)
		line := f.line(path)
		f.settings = append(f.settings, setting{name: name, origin: f.at(line), value: v, line: line})
		return
	}
	inRouter := unnumbered(path[0]) == routerSection
	switch v := v.(type) {
	case map[string]any:
		if inRouter && len(v) > 0 || f.ix.leads(name) {
			f.table(path, v)
			return
		}
		f.unknownSection(path)
	case []any:
		switch tables := tablesIn(v); {
		case !f.ix.sections[name]:
			f.unknown(path)
		case len(tables) == 1:
			f.table(path, tables[0].(map[string]any))
		default:
			f.problem(path, "expected one section", fmt.Sprintf("write [%s] once", name))
		}
	default:
		if f.ix.sections[name] {
			f.problem(path, "expected a section, got "+describe(v, nil),
				fmt.Sprintf("write [%s] on a line of its own, and its keys below", name))
			return
		}
		f.unknown(path)
	}
}

// connectorPrefix stands before the router's options in the configuration of a Debezium connector.
var connectorPrefix = regexp.MustCompile(`^router\.(transforms\.[^.]+\.)`)

func (f *file) unknown(path []string) {
	name := unnumbered(strings.Join(path, "."))
	option := connectorPrefix.ReplaceAllString(name, "")
	if option != name && slices.Contains(f.ix.plain, "router."+option) {
		f.problem(path, "unknown key", "cut the connector's prefix: "+option)
		return
	}
	f.problem(path, "unknown key", didYouMean(name, f.ix.plain))
}

func (f *file) unknownSection(path []string) {
	var sections []string
	for s := range f.ix.sections {
		sections = append(sections, unnumbered(s))
	}
	slices.Sort(sections)
	near, hint := nearest(strings.Join(path, "."), sections), ""
	if near != "" {
		hint = "did you mean [" + near + "]?"
	}
	f.problem(path, "unknown section", hint)
}

func (f *file) problem(path []string, message, hint string) {
	line := f.line(path)
	f.problems = append(f.problems, Problem{
		Origin: f.at(line), Key: strings.Join(path, "."), Err: errors.New(message), Hint: hint,
		line: line,
	})
}

func (f *file) line(path []string) int { return f.lines[pathID(path)] }

func (f *file) at(line int) string { return fmt.Sprintf("%s:%d", f.name, line) }

// pathID tells apart ["a.b"] and ["a", "b"], which a joined name does not.
func pathID(path []string) string { return strings.Join(path, "\x00") }

// unquotedText matches a line that is pasted from a connector's properties.
var unquotedText = regexp.MustCompile(`^\s*[\w.-]+\s*=\s*[^\s"'\[{]`)

// dottedKey matches a key that TOML reads as a key in a table.
var dottedKey = regexp.MustCompile(`^\s*(\w+\.[\w.-]+)\s*=`)

// syntaxProblem is where a file is not TOML. It does not quote the line, which may contain a
// password.
func syntaxProblem(name string, data []byte, err error) Problem {
	var de *toml.DecodeError
	if !errors.As(err, &de) {
		return Problem{Origin: name, Err: err}
	}
	line, column := de.Position()
	p := Problem{
		Origin: fmt.Sprintf("%s:%d:%d", name, line, column),
		Err:    errors.New(strings.TrimPrefix(de.Error(), "toml: ")),
	}
	lines := bytes.Split(data, []byte("\n"))
	if line < 1 || line > len(lines) {
		return p
	}
	switch at := lines[line-1]; {
	case unquotedText.Match(at):
		p.Hint = "text needs quotes, 'like this'"
	case strings.Contains(err.Error(), "already defined") && dottedKey.Match(at):
		p.Hint = fmt.Sprintf("write %q in quotes", dottedKey.FindSubmatch(at)[1])
	}
	return p
}
