package router

import (
	"slices"

	"github.com/postrider/postrider/replication"
)

// messageTypes are the types that members of a logical message have, for errors and for the rules on types.
var messageTypes = map[kind]*Type{
	kindString: {Name: "text"}, kindBool: {Name: "bool"}, kindInt32: {Name: "int4"}, kindInt64: {Name: "int8"}, kindDouble: {Name: "float8"},
	kindBytes: {Name: "null"}, kindStruct: {Name: "JSON object"}, kindArray: {Name: "JSON array"},
}

// messagePlan reads a logical message as a row: its members are the columns. Members that are null are left out.
func (r *rule) messagePlan(ev *replication.Event) (*plan, [][]byte, error) {
	const hint = "have the application send one JSON object with the columns of an outbox row as members"
	doc, err := parseJSON(ev.Content)
	if err == nil && ev.Content[0] != '{' && ev.Content[0] != '[' {
		err = errJSON // Debezium takes nothing before it either
	}
	if err != nil {
		return nil, nil, fault(ReasonInvalidMessage, hint, "content of %d bytes: %w", len(ev.Content), err)
	}
	if doc.kind != jsonObject {
		return nil, nil, fault(ReasonInvalidMessage, hint, "content is JSON, but no object")
	}
	s := &shape{rule: r.name, cfg: &r.cfg, relation: "message:" + ev.Prefix}
	var columns []*column
	var values [][]byte
	plain := expander{keepNulls: r.cfg.MessageNulls, named: r.expander.named, left: expandedLimit(len(ev.Content))}
	value := func(n *jsonNode, s *schema) (any, error) {
		run := plain
		run.left = expandedLimit(len(n.raw))
		return run.build(n, s)
	}
	for _, m := range doc.members {
		name := string(m.name)
		ms, err := plain.schemaOf(name, m.node)
		if err != nil {
			return nil, nil, fault(ReasonInvalidMessage, hint, "member %q: %w", name, err)
		}
		if ms == nil {
			continue
		}
		c := &column{index: len(columns), name: name, schema: ms, typ: messageTypes[ms.kind]}
		raw := m.node.raw
		if m.node.kind == jsonNull {
			raw = nil
		}
		switch ms.kind {
		case kindString:
			raw = m.node.text
			c.prefix = schemaPrefix(ms, plainJSON)
		case kindInt32, kindInt64:
			c.number = true
			c.prefix = schemaPrefix(ms, plainJSON)
			c.read = func(b []byte) (any, error) { return value(m.node, ms) }
		default:
			c.asIs = !r.cfg.JavaText && (ms.kind == kindStruct || ms.kind == kindArray)
			c.read = func(b []byte) (any, error) { return value(m.node, ms) }
		}
		columns = append(columns, c)
		values = append(values, raw)
		s.names = append(s.names, name)
	}
	s.lookup = func(i int) (*column, error) {
		c := *columns[i]
		return &c, nil
	}
	p, err := s.plan(r.placements)
	if err != nil {
		return nil, nil, fault(ReasonInvalidMessage, hint, "%w", err)
	}
	return p, slices.Clip(values), nil
}
