package config

import (
	"bytes"
	"slices"

	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/postrider/postrider/router"
)

// keyLines finds the first line of each key and each section of a valid document. Of several
// routers, each has its number in the path.
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

// isRouter reports whether the key of an expression is router.
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

// noteTable notes the keys of v, if it is an inline table.
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

// note notes the line of a key and of every table around it.
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
