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
)

// setting is one key as somebody gave it.
type setting struct {
	name   string // full
	origin string // "postrider.toml:12", "env POSTRIDER_SLOT_NAME", "flag --slot-name"
	value  any    // as the TOML library decodes it, or a string from the environment or a flag
	text   bool   // the value came as text, whatever the key's type
	line   int    // in the file
}

// readFile lists what a configuration file sets. Unknown keys are problems already here, since a section that nobody knows
// is better said once than once per key.
func readFile(ix *index, name string, data []byte) ([]setting, Problems) {
	var doc map[string]any
	if err := toml.Unmarshal(data, &doc); err != nil {
		return nil, Problems{syntaxProblem(name, data, err)}
	}
	f := &file{ix: ix, name: name, lines: keyLines(data), seen: map[string]string{}}
	f.table(nil, doc)
	slices.SortStableFunc(f.settings, func(a, b setting) int { return a.line - b.line })
	return f.settings, f.problems
}

// file walks a decoded document. The values come from the library's decoder, the lines from its parser.
type file struct {
	ix       *index
	name     string
	lines    map[string]int    // by path, as pathID writes it
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
	inRouter := path[0] == "router"
	switch v := v.(type) {
	case map[string]any:
		if inRouter && len(v) > 0 || f.ix.sections[name] {
			f.table(path, v)
			return
		}
		f.unknownSection(path)
	case []any:
		if t, ok := oneTable(v); ok && f.ix.sections[name] {
			f.table(path, t)
			return
		}
		if f.ix.sections[name] {
			f.severalSections(path, v)
			return
		}
		f.unknown(path)
	default:
		if f.ix.sections[name] {
			f.problem(path, "expected a section, got "+describe(v), fmt.Sprintf("write [%s] on a line of its own, and its keys below", name))
			return
		}
		f.unknown(path)
	}
}

// oneTable is what [[router]] gives when there is one.
func oneTable(v []any) (map[string]any, bool) {
	if len(v) != 1 {
		return nil, false
	}
	t, ok := v[0].(map[string]any)
	return t, ok
}

func (f *file) severalSections(path []string, v []any) {
	name := strings.Join(path, ".")
	if len(v) > 1 && name == "router" {
		f.problem(path, "several [[router]] sections are not supported by this version", "keep one [router]")
		return
	}
	f.problem(path, "expected one section", fmt.Sprintf("write [%s] once", name))
}

func (f *file) unknown(path []string) {
	name := strings.Join(path, ".")
	if cut := withoutConnectorPrefix(name); cut != name {
		if _, known := f.ix.refs[cut]; known {
			f.problem(path, "unknown key", "cut the connector's prefix: "+strings.TrimPrefix(cut, "router."))
			return
		}
	}
	f.problem(path, "unknown key", didYouMean(nearest(name, f.ix.names)))
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
		sections = append(sections, s)
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

// keyLines finds the line in which each key and each section of a valid document first stands.
func keyLines(data []byte) map[string]int {
	lines := map[string]int{}
	p := unstable.Parser{}
	p.Reset(data)
	var section []string
	for p.NextExpression() {
		e := p.Expression()
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			section = noteKey(lines, &p, nil, e)
		case unstable.KeyValue:
			noteKeyValue(lines, &p, section, e)
		}
	}
	return lines
}

func noteKeyValue(lines map[string]int, p *unstable.Parser, section []string, e *unstable.Node) {
	path := noteKey(lines, p, section, e)
	if e.Value().Kind != unstable.InlineTable {
		return
	}
	for it := e.Value().Children(); it.Next(); {
		if it.Node().Kind == unstable.KeyValue {
			noteKeyValue(lines, p, path, it.Node())
		}
	}
}

// noteKey writes down the line of a key and of every table it opens on the way.
func noteKey(lines map[string]int, p *unstable.Parser, section []string, e *unstable.Node) []string {
	path := slices.Clone(section)
	for it := e.Key(); it.Next(); {
		n := it.Node()
		path = append(path, string(n.Data))
		if _, noted := lines[pathID(path)]; !noted {
			lines[pathID(path)] = 1 + bytes.Count(p.Data()[:n.Raw.Offset], []byte("\n"))
		}
	}
	return path
}

// unquoted is a line as it is pasted from a connector's properties.
var unquoted = regexp.MustCompile(`^\s*[\w.-]+\s*=\s*[^\s"'\[{]`)

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
	if lines := bytes.Split(data, []byte("\n")); line >= 1 && line <= len(lines) && unquoted.Match(lines[line-1]) {
		p.Hint = "text needs quotes, 'like this'"
	}
	return p
}
