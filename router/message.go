package router

import (
	"slices"

	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router/connect"
)

// messageTypes are the types that members of a logical message have, for errors and for the rules
// on types.
var messageTypes = map[connect.Kind]*connect.Type{
	connect.KindString: {Name: "text"}, connect.KindBool: {Name: "bool"},
	connect.KindInt32: {Name: "int4"}, connect.KindInt64: {Name: "int8"},
	connect.KindDouble: {Name: "float8"},
	connect.KindBytes:  {Name: "null"}, connect.KindStruct: {Name: "JSON object"},
	connect.KindArray: {Name: "JSON array"},
}

// messagePlan reads a logical message as a row: its members are the columns. Members that are null
// are left out.
func (r *rule) messagePlan(ev *replication.Event) (*plan, [][]byte, error) {
	const hint = "have the application send one JSON object with the columns of an outbox row " +
		"as members"
	doc, err := connect.ParseJSON(ev.Content)
	if err == nil && ev.Content[0] != '{' && ev.Content[0] != '[' {
		err = connect.ErrJSON // Debezium takes nothing before it either
	}
	if err != nil {
		return nil, nil, fault(ReasonInvalidMessage, hint, "content of %d bytes: %w",
			len(ev.Content), err)
	}
	if doc.Kind != connect.JSONObject {
		return nil, nil, fault(ReasonInvalidMessage, hint, "content is JSON, but no object")
	}
	s := &shape{rule: r.name, cfg: &r.cfg, relation: "message:" + ev.Prefix}
	var columns []*connect.Column
	var values [][]byte
	plain := connect.Expander{KeepNulls: r.cfg.MessageNulls, Named: r.expander.Named,
		Left: connect.ExpandedLimit(len(ev.Content))}
	value := func(n *connect.JSONNode, s *connect.Schema) (any, error) {
		run := plain
		run.Left = connect.ExpandedLimit(len(n.Raw))
		return run.Build(n, s)
	}
	for _, m := range doc.Members {
		name := string(m.Name)
		ms, err := plain.SchemaOf(name, m.Node)
		if err != nil {
			return nil, nil, fault(ReasonInvalidMessage, hint, "member %q: %w", name, err)
		}
		if ms == nil {
			continue
		}
		c := &connect.Column{Index: len(columns), Name: name, Schema: ms,
			Type: messageTypes[ms.Kind]}
		raw := m.Node.Raw
		if m.Node.Kind == connect.JSONNull {
			raw = nil
		}
		switch ms.Kind {
		case connect.KindString:
			raw = m.Node.Text
			c.Prefix = connect.SchemaPrefix(ms, connect.PlainJSON)
		case connect.KindInt32, connect.KindInt64:
			c.Number = true
			c.Prefix = connect.SchemaPrefix(ms, connect.PlainJSON)
			c.Read = func(b []byte) (any, error) { return value(m.Node, ms) }
		default:
			c.AsIs = !r.cfg.JavaText && (ms.Kind == connect.KindStruct ||
				ms.Kind == connect.KindArray)
			c.Read = func(b []byte) (any, error) { return value(m.Node, ms) }
		}
		columns = append(columns, c)
		values = append(values, raw)
		s.names = append(s.names, name)
	}
	s.lookup = func(i int) (*connect.Column, error) {
		c := *columns[i]
		return &c, nil
	}
	p, err := s.plan(r.placements)
	if err != nil {
		return nil, nil, fault(ReasonInvalidMessage, hint, "%w", err)
	}
	return p, slices.Clip(values), nil
}
