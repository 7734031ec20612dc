package config

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

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
	data    []byte
	values  map[string]any // decoded; several [[router]] have their numbered names as keys
	routers int            // rule sets, at least one
}

func parse(name string, data []byte) (*document, *Problem) {
	doc := &document{name: name, data: data, routers: 1}
	if err := toml.Unmarshal(data, &doc.values); err != nil {
		p := syntaxProblem(name, data, err)
		return nil, &p
	}
	if rules := tablesIn(doc.values[routerSection]); len(rules) > 1 {
		doc.routers = len(rules)
		for i, rule := range rules {
			doc.values[router.RuleName(i, len(rules))] = rule
		}
	}
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

// lookup is the value at a path. A list of one table is the table.
func (doc *document) lookup(path []string) any {
	var v any = doc.values
	for _, part := range path {
		if tables := tablesIn(v); len(tables) == 1 {
			v = tables[0]
		}
		table, _ := v.(map[string]any)
		v = table[part]
	}
	return v
}

// file walks a document with the library's parser, since its decoder has no lines.
type file struct {
	*document
	ix       *index
	lines    map[string]int  // the first of each key and section, by path, as pathID writes it
	closed   map[string]bool // by path: what is below it is part of its value, or of its problem
	given    map[string]int  // line of each key: route.by.field and "route.by.field" are one
	number   int             // of the last of several [[router]], from 1
	settings []setting
	problems Problems
}

// readFile lists the settings of a configuration file. It reports an unknown section once, and not
// once per key.
func readFile(ix *index, doc *document) ([]setting, Problems) {
	f := &file{document: doc, ix: ix, lines: map[string]int{}, closed: map[string]bool{},
		given: map[string]int{}}
	var parser unstable.Parser
	parser.Reset(doc.data)
	var section []string
	for parser.NextExpression() {
		switch e := parser.Expression(); e.Kind {
		case unstable.ArrayTable:
			if f.several(nil, e) {
				f.number++
			}
			section = f.note(nil, e)
		case unstable.Table:
			section = f.note(nil, e)
		case unstable.KeyValue:
			f.keyValue(section, e)
		}
	}
	return f.settings, f.problems
}

// several reports whether e is the section router, of which the document has several.
func (f *file) several(section []string, e *unstable.Node) bool {
	it := e.Key()
	return f.routers > 1 && len(section) == 0 && it.Next() &&
		string(it.Node().Data) == routerSection && it.IsLast()
}

func (f *file) keyValue(section []string, e *unstable.Node) {
	if !f.several(section, e) {
		f.inline(f.note(section, e), e.Value())
		return
	}
	for it := e.Value().Children(); it.Next(); { // router = [{...}, {...}]
		f.number++
		f.inline(f.note(nil, e), it.Node())
	}
}

// inline walks a value: inline tables have keys, too.
func (f *file) inline(path []string, v *unstable.Node) {
	if v.Kind != unstable.InlineTable && v.Kind != unstable.Array {
		return
	}
	for it := v.Children(); it.Next(); {
		if e := it.Node(); e.Kind == unstable.KeyValue {
			f.keyValue(path, e)
		} else {
			f.inline(path, e)
		}
	}
}

// note reads a key or section and every one around it, each once.
func (f *file) note(section []string, e *unstable.Node) []string {
	path := slices.Clone(section)
	for it := e.Key(); it.Next(); {
		n, around := it.Node(), pathID(path)
		part := string(n.Data)
		if len(path) == 0 && part == routerSection && f.routers > 1 {
			part = router.RuleName(f.number-1, f.routers)
		}
		path = append(path, part)
		id := pathID(path)
		if _, noted := f.lines[id]; !noted {
			f.lines[id] = 1 + bytes.Count(f.data[:n.Raw.Offset], []byte("\n"))
			f.closed[id] = f.closed[around] || f.read(path)
		}
	}
	return path
}

// read adds the setting or the problem at a path. It reports false for a section: the keys below
// it are read by themselves.
func (f *file) read(path []string) (closed bool) {
	name, v, line := strings.Join(path, "."), f.lookup(path), f.lines[pathID(path)]
	table, isTable := v.(map[string]any)
	_, isList := v.([]any)
	_, known := f.ix.byName[name]
	switch {
	case isTable && f.ix.isParent(name): // key.decimal.format without quotes, where key is a key too
		return false
	case known && f.given[name] > 0:
		f.problem(path, fmt.Sprintf("given twice, also in line %d", f.given[name]), "")
	case known:
		f.given[name] = line
		f.settings = append(f.settings, setting{name: name, origin: f.at(line), value: v, line: line})
	case isTable && (f.ix.leads(name) || unnumbered(path[0]) == routerSection && len(table) > 0):
		return false
	case isTable:
		f.unknownSection(path)
	case !f.ix.sections[name]:
		f.unknown(path)
	case len(tablesIn(v)) == 1:
		return false
	case isList:
		f.problem(path, "expected one section", fmt.Sprintf("write [%s] once", name))
	default:
		f.problem(path, "expected a section, got "+describe(v, nil),
			fmt.Sprintf("write [%s] on a line of its own, and its keys below", name))
	}
	return true
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
	hint := ""
	if near := nearest(strings.Join(path, "."), sections); near != "" {
		hint = "did you mean [" + near + "]?"
	}
	f.problem(path, "unknown section", hint)
}

func (f *file) problem(path []string, message, hint string) {
	line := f.lines[pathID(path)]
	f.problems = append(f.problems, Problem{
		Origin: f.at(line), Key: strings.Join(path, "."), Err: errors.New(message), Hint: hint,
		line: line,
	})
}

func (f *file) at(line int) string { return fmt.Sprintf("%s:%d", f.name, line) }

// pathID distinguishes ["a.b"] and ["a", "b"], which a joined name does not.
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
