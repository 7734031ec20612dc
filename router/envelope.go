package router

import (
	"slices"

	"github.com/postrider/postrider/router/connect"
)

// schemaKey is what an envelope's schema is found by; several differ in the payload.
type schemaKey struct {
	routed  string
	version string
}

// Bounds of the schemas of envelopes that are kept, since names, versions and payloads come from
// rows: how many names and versions, and how many shapes of payload of each.
const (
	envelopesKept = 4096
	shapesKept    = 256
)

// makeValue encodes the value: the payload, expanded if it is configured, in an envelope where
// columns are placed in one. Nil is a tombstone.
func (r *rule) makeValue(p *plan, values [][]byte) ([]byte, error) {
	raw := values[p.payload.Index]
	isText := p.payload.Schema.Kind == connect.KindString
	if !p.enveloped && !(isText && r.cfg.ExpandJSONPayload) && !r.cfg.TombstoneOnEmptyPayload {
		return r.values.Cell(p.payload, raw)
	}
	v, err := p.payload.Value(raw)
	if err != nil {
		return nil, err
	}
	t, _ := v.(connect.Text)
	if r.cfg.TombstoneOnEmptyPayload && (v == nil || isText && isBlank(t)) {
		return nil, nil
	}
	x := connect.Expansion{Schema: p.payload.Schema, Value: v}
	if isText && v != nil && r.cfg.ExpandJSONPayload {
		if e := r.expander.Expand(t); e.Done {
			x = e
		}
	}
	switch {
	case x.Poison && (p.enveloped || r.values.Format != "string"):
		return nil, fault(ReasonUnconvertible, "set router.table.expand.json.payload to false, "+
			"or have the application write objects whose arrays are of one kind",
			"the JSON in column %s cannot be expanded: it is an array, has an integer beyond 64 "+
				"bits, one member of several types, or becomes "+
				"many times larger", p.payload.Name)
	case p.enveloped:
		return r.wrap(p, values, x)
	case !x.Done:
		return r.values.Cell(p.payload, raw)
	}
	return r.values.Value(x.Schema, nil, x.Value)
}

// isBlank is Java's trim().isEmpty(): nothing above a blank.
func isBlank(t connect.Text) bool {
	return !slices.ContainsFunc(t, func(c byte) bool { return c > ' ' })
}

// wrap puts the payload and the placed columns in a struct.
func (r *rule) wrap(p *plan, values [][]byte, x connect.Expansion) ([]byte, error) {
	if x.Schema == nil {
		return nil, fault(ReasonUnconvertible, "have the application write an object",
			"an empty JSON array cannot be expanded inside of an envelope")
	}
	s, err := r.envelopeSchema(p, values, x)
	if err != nil {
		return nil, err
	}
	out := &connect.Structure{Schema: s, Values: make([]any, len(s.Fields))}
	if x.Value == nil && r.values.Defaults {
		x.Value = x.Schema.Def
	}
	out.Values[0] = x.Value
	at := 1
	for _, c := range p.envelope {
		member, err := c.Value(values[c.Index])
		if err != nil {
			return nil, err
		}
		if member == nil && r.values.Defaults {
			member = c.Schema.Def
		}
		if r.cfg.FirstSchemaName { // it may have been made of other columns
			if at = s.Index(c.alias); at < 0 || !s.Fields[at].Schema.Takes(member, c.Schema) {
				return nil, fault(ReasonUnconvertible,
					"set router.first_schema_name to false, or restart",
					"column %s does not fit in the envelope that the first row of that shape of "+
						"payload had", c.Name)
			}
		}
		out.Values[at] = member
		at++
	}
	for i, f := range s.Fields[1:] {
		if out.Values[i+1] == nil && !f.Schema.Optional && f.Schema.Def == nil {
			return nil, fault(ReasonUnconvertible, "",
				"member %s of the envelope is NOT NULL and has no value that can be written: a "+
					"number that is not finite has no "+
					"decimal form; set router.decimal.handling.mode to \"string\" or \"double\"",
				f.Name)
		}
	}
	return r.values.Value(s, nil, out)
}

// envelopeSchema gives the schema of an envelope, which carries the routed value in its name. With
// first_schema_name it is the one that Debezium's cache has: the name of the first row of that
// version, or of that shape of payload.
func (r *rule) envelopeSchema(p *plan, values [][]byte, x connect.Expansion) (*connect.Schema,
	error) {
	text, err := p.route.Text(values[p.route.Index])
	if err != nil {
		return nil, err
	}
	routed := string(text)
	key := schemaKey{routed: routed}
	if p.version != nil {
		key.version = string(values[p.version.Index])
	}
	if r.cfg.FirstSchemaName {
		key.routed = ""
	}
	for _, s := range r.envelopes(p)[key] {
		if s.Fields[0].Schema.Equal(x.Schema) {
			return s, nil
		}
		if r.cfg.FirstSchemaName && key.version != "" {
			if s.Fields[0].Schema.Takes(x.Value, x.Schema) {
				return s, nil
			}
			return nil, fault(ReasonUnconvertible,
				"give every shape of payload a version of its own, or set "+
					"router.first_schema_name to false",
				"the payload has another shape than the first one of version %s", key.version)
		}
	}
	name := routed
	if p.rel != nil {
		name = r.schemaName(p.relation) + "." + routed + ".Value"
	}
	s := &connect.Schema{Kind: connect.KindStruct, Name: name, Version: key.version,
		Fields: []*connect.Field{{Name: "payload", Schema: x.Schema}}}
	for _, c := range p.envelope {
		s.Fields = append(s.Fields, &connect.Field{Name: c.alias, Schema: c.Schema})
	}
	known := r.envelopes(p)
	// Else a payload's shape, or a message's members, may be those of one row.
	shared := r.cfg.FirstSchemaName || p.rel != nil && !x.Done
	if shared && len(routed)+len(key.version) <= maxCachedValue && len(known[key]) < shapesKept &&
		(len(known) < envelopesKept || known[key] != nil) {
		known[key] = append(known[key], s)
	}
	return s, nil
}

// envelopes are the schemas of a table that are kept. Debezium has one cache for all. Those of
// messages are not kept: each message has members of its own.
func (r *rule) envelopes(p *plan) map[schemaKey][]*connect.Schema {
	if r.cfg.FirstSchemaName {
		return r.schemas
	}
	return p.schemas
}

// schemaName is how the names of the schemas of a table begin: as a topic of its own would be
// named, which has no other characters.
func (r *rule) schemaName(relation string) string {
	return TopicName(r.cfg.TopicPrefix + "." + relation)
}
