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
	s := &shape{rule: r.name, cfg: &r.cfg, relation: "message:" + ev.Prefix, events: r.events,
		values: &r.values}
	var columns []*connect.Column
	var values [][]byte
	plain := connect.Expander{KeepNulls: r.cfg.MessageNulls, Named: r.expander.Named,
		Left: connect.ExpandedLimit(len(ev.Content))}
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
			Type: messageTypes[ms.Kind], Number: ms.Kind == connect.KindInt32 ||
				ms.Kind == connect.KindInt64}
		c.AsIs = !r.cfg.JavaText && (ms.Kind == connect.KindStruct || ms.Kind == connect.KindArray)
		c.Read = func([]byte) (any, error) {
			run := plain
			run.Left = connect.ExpandedLimit(len(m.Node.Raw))
			return run.Build(m.Node, ms)
		}
		if ms.Kind == connect.KindString {
			c.Read = nil
		}
		if c.Number || c.Read == nil {
			c.Prefix = connect.SchemaPrefix(ms, connect.PlainJSON)
		}
		raw := m.Node.Raw
		switch m.Node.Kind {
		case connect.JSONNull:
			raw = nil
		case connect.JSONString:
			raw = m.Node.Text
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
	p.rule = r
	p.setSource(p.relation)
	return p, slices.Clip(values), nil
}
