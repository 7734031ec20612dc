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

// setting is one key as somebody gave it.
type setting struct {
	name   string // full
	origin string // "postrider.toml:12", "env POSTRIDER_SLOT_NAME", "flag --slot-name"
	value  any    // as the TOML library decodes it, or a string from the environment or a flag
	text   bool   // the value came as text, whatever the key's type
	line   int    // in the file
}

// document is a configuration file before its keys are looked at.
type document struct {
	name    string
	values  map[string]any // as the TOML library decodes it, but several [[router]] stand under their numbered names
	lines   map[string]int // by path, as pathID writes it
	routers int            // rule sets, at least one
}

// parse reads TOML. The values come from the library's decoder, the lines from its parser.
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

// tablesIn is the list of tables that [[name]] gives; nil if it is anything else.
func tablesIn(v any) []any {
	list, _ := v.([]any)
	for _, item := range list {
		if _, ok := item.(map[string]any); !ok {
			return nil
		}
	}
	return list
}

// readFile lists what a configuration file sets. Unknown keys are problems already here, since a section that nobody knows
// is better said once than once per key.
func readFile(ix *index, doc *document) ([]setting, Problems) {
	f := &file{document: doc, ix: ix, seen: map[string]string{}}
	f.table(nil, doc.values)
	slices.SortStableFunc(f.settings, func(a, b setting) int { return a.line - b.line })
	return f.settings, f.problems
}

// file walks a document.
type file struct {
	*document
	ix       *index
	seen     map[string]string // full name to pathID: [router] takes route.by.field and "route.by.field" for one key
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
			f.problem(path, "expected a section, got "+describe(v, nil), fmt.Sprintf("write [%s] on a line of its own, and its keys below", name))
			return
		}
		f.unknown(path)
	}
}

func (f *file) unknown(path []string) {
	name := unnumbered(strings.Join(path, "."))
	if cut := withoutConnectorPrefix(name); cut != name {
		if slices.Contains(f.ix.plain, cut) {
			f.problem(path, "unknown key", "cut the connector's prefix: "+strings.TrimPrefix(cut, "router."))
			return
		}
	}
	f.problem(path, "unknown key", didYouMean(nearest(name, f.ix.plain)))
}

// connectorPrefix stands before the router's options in the configuration of a Debezium connector.
var connectorPrefix = regexp.MustCompile(`^router\.(transforms\.[^.]+\.)`)

func withoutConnectorPrefix(name string) string {
	if m := connectorPrefix.FindStringSubmatch(name); m != nil {
		return "router." + strings.TrimPrefix(name, m[0])
	}
	return name
}

func (f *file) unknownSection(path []string) {
	name := strings.Join(path, ".")
	var sections []string
	for s := range f.ix.sections {
		sections = append(sections, unnumbered(s))
	}
	slices.Sort(sections)
	hint := ""
	if near := nearest(name, sections); near != "" {
		hint = didYouMean("[" + near + "]")
	}
	f.problem(path, "unknown section", hint)
}

func didYouMean(name string) string {
	if name == "" {
		return ""
	}
	return "did you mean " + name + "?"
}

func (f *file) problem(path []string, message, hint string) {
	line := f.line(path)
	f.problems = append(f.problems, Problem{
		Origin: f.at(line), Key: strings.Join(path, "."), Err: errors.New(message), Hint: hint, line: line,
	})
}

func (f *file) line(path []string) int { return f.lines[pathID(path)] }

func (f *file) at(line int) string { return fmt.Sprintf("%s:%d", f.name, line) }

// pathID tells apart ["a.b"] and ["a", "b"], which a joined name does not.
func pathID(path []string) string { return strings.Join(path, "\x00") }

// keyLines finds the line in which each key and each section of a valid document first stands. With more than one of routers,
// each has its number in the path.
func keyLines(data []byte, routers int) map[string]int {
	k := keyLine{lines: map[string]int{}, several: routers > 1}
	k.p.Reset(data)
	var section []string
	for k.p.NextExpression() {
		e := k.p.Expression()
		switch e.Kind {
		case unstable.ArrayTable:
			if k.several && isRouter(e) {
				k.number++
			}
			section = k.note(nil, e)
		case unstable.Table:
			section = k.note(nil, e)
		case unstable.KeyValue:
			k.noteValue(section, e)
		}
	}
	return k.lines
}

type keyLine struct {
	p       unstable.Parser
	lines   map[string]int // by path, as pathID writes it
	several bool           // [[router]] have numbers
	number  int            // of the last [[router]], from 1
}

// isRouter tells whether an expression's key is router alone.
func isRouter(e *unstable.Node) bool {
	it := e.Key()
	return it.Next() && string(it.Node().Data) == routerSection && it.IsLast()
}

func (k *keyLine) noteValue(section []string, e *unstable.Node) {
	if k.several && len(section) == 0 && isRouter(e) { // router = [{...}, {...}]
		for it := e.Value().Children(); it.Next(); {
			k.number++
			k.noteTable(k.note(nil, e), it.Node())
		}
		return
	}
	k.noteTable(k.note(section, e), e.Value())
}

// noteTable writes down the keys of an inline table, if v is one.
func (k *keyLine) noteTable(path []string, v *unstable.Node) {
	if v.Kind != unstable.InlineTable {
		return
	}
	for it := v.Children(); it.Next(); {
		if it.Node().Kind == unstable.KeyValue {
			k.noteValue(path, it.Node())
		}
	}
}

// note writes down the line of a key and of every table it opens on the way.
func (k *keyLine) note(section []string, e *unstable.Node) []string {
	path := slices.Clone(section)
	for it := e.Key(); it.Next(); {
		n := it.Node()
		name := string(n.Data)
		if len(path) == 0 && name == routerSection && k.several {
			name = router.RuleName(k.number-1, k.number+1)
		}
		path = append(path, name)
		if _, noted := k.lines[pathID(path)]; !noted {
			k.lines[pathID(path)] = 1 + bytes.Count(k.p.Data()[:n.Raw.Offset], []byte("\n"))
		}
	}
	return path
}

// unquoted is a line as it is pasted from a connector's properties.
var unquoted = regexp.MustCompile(`^\s*[\w.-]+\s*=\s*[^\s"'\[{]`)

// dottedKey is a key that TOML takes for a key in a table.
var dottedKey = regexp.MustCompile(`^\s*(\w+\.[\w.-]+)\s*=`)

// syntaxProblem says where a file is not TOML. It does not quote the line, which may hold a password.
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
	case unquoted.Match(at):
		p.Hint = "text needs quotes, 'like this'"
	case strings.Contains(err.Error(), "already defined") && dottedKey.Match(at):
		p.Hint = fmt.Sprintf("write %q in quotes", dottedKey.FindSubmatch(at)[1])
	}
	return p
}
