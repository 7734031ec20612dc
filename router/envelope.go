package router

import "strings"

// schemaKey is what an envelope's schema is found by; several differ in the payload.
type schemaKey struct {
	routed  string
	version string
}

// envelopesKept bounds the schemas of envelopes that are kept, since their names and versions come from rows.
const envelopesKept = 4096

// makeValue encodes the value: the payload, expanded where that is asked, in an envelope where columns are placed in one.
// Nil is a tombstone.
func (r *rule) makeValue(p *plan, values [][]byte) ([]byte, error) {
	raw := values[p.payload.index]
	isText := p.payload.schema.kind == kindString
	if !p.enveloped && !(isText && r.cfg.ExpandJSONPayload) && !r.cfg.TombstoneOnEmptyPayload {
		return r.values.cell(p.payload, raw)
	}
	v, err := p.payload.value(raw)
	if err != nil {
		return nil, err
	}
	t, _ := v.(text)
	if r.cfg.TombstoneOnEmptyPayload && (v == nil || isText && isBlank(t)) {
		return nil, nil
	}
	x := expansion{schema: p.payload.schema, value: v}
	if isText && v != nil && r.cfg.ExpandJSONPayload {
		if e := r.expander.expand(t); e.done {
			x = e
		}
	}
	switch {
	case x.poison && (p.enveloped || r.values.format != "string"):
		return nil, fault(ReasonUnconvertible, "set router.table.expand.json.payload to false, or have the application write objects whose arrays are of one kind",
			"the JSON in column %s cannot be expanded: it is an array, has an integer beyond 64 bits, one member of several types, or becomes "+
				"many times larger", p.payload.name)
	case p.enveloped:
		return r.wrap(p, values, x)
	case !x.done:
		return r.values.cell(p.payload, raw)
	}
	return r.values.value(x.schema, nil, x.value)
}

// isBlank is Java's trim().isEmpty(): nothing above a blank.
func isBlank(t text) bool {
	for _, c := range t {
		if c > ' ' {
			return false
		}
	}
	return true
}

// wrap puts the payload and the placed columns in a struct.
func (r *rule) wrap(p *plan, values [][]byte, x expansion) ([]byte, error) {
	if x.schema == nil {
		return nil, fault(ReasonUnconvertible, "have the application write an object", "an empty JSON array cannot be expanded inside of an envelope")
	}
	s, err := r.envelopeSchema(p, values, x)
	if err != nil {
		return nil, err
	}
	out := &structure{s, make([]any, len(s.fields))}
	if x.value == nil && r.values.defaults {
		x.value = x.schema.def
	}
	out.values[0] = x.value
	at := 1
	for _, c := range p.envelope {
		member, err := c.value(values[c.index])
		if err != nil {
			return nil, err
		}
		if member == nil && r.values.defaults {
			member = c.schema.def
		}
		if r.cfg.FirstSchemaName { // it may have been made of other columns
			if at = s.index(c.alias); at < 0 || !s.fields[at].schema.takes(member, c.schema) {
				return nil, fault(ReasonUnconvertible, "set router.first_schema_name to false, or restart",
					"column %s does not fit in the envelope that the first row of that shape of payload had", c.name)
			}
		}
		out.values[at] = member
		at++
	}
	for i, f := range s.fields[1:] {
		if out.values[i+1] == nil && !f.schema.optional && f.schema.def == nil {
			return nil, fault(ReasonUnconvertible, "", "member %s of the envelope is NOT NULL and has no value that can be written: a number that is not finite has no "+
				"decimal form; set router.decimal.handling.mode to \"string\" or \"double\"", f.name)
		}
	}
	return r.values.value(s, nil, out)
}

// envelopeSchema gives the schema of an envelope, which carries the routed value in its name. With first_schema_name it is the one
// that Debezium's cache has: the name of the first row of that version, or of that shape of payload.
func (r *rule) envelopeSchema(p *plan, values [][]byte, x expansion) (*schema, error) {
	var key schemaKey
	if raw := values[p.route.index]; raw != nil {
		v, err := p.route.value(raw)
		if err != nil {
			return nil, err
		}
		t, _ := v.(text)
		key.routed = string(t)
	}
	routed := key.routed
	if p.version != nil {
		key.version = string(values[p.version.index])
	}
	if r.cfg.FirstSchemaName {
		key.routed = ""
	}
	for _, s := range r.envelopes(p)[key] {
		if s.fields[0].schema.equal(x.schema) {
			return s, nil
		}
		if r.cfg.FirstSchemaName && key.version != "" {
			if s.fields[0].schema.takes(x.value, x.schema) {
				return s, nil
			}
			return nil, fault(ReasonUnconvertible, "give every shape of payload a version of its own, or set router.first_schema_name to false",
				"the payload has another shape than the first one of version %s", key.version)
		}
	}
	name := routed
	if p.rel != nil {
		name = r.schemaName(p.relation) + "." + routed + ".Value"
	}
	s := &schema{kind: kindStruct, name: name, version: key.version, fields: []*field{{"payload", x.schema}}}
	for _, c := range p.envelope {
		s.fields = append(s.fields, &field{c.alias, c.schema})
	}
	if known := r.envelopes(p); r.cfg.FirstSchemaName || !x.done && len(known) < envelopesKept {
		known[key] = append(known[key], s)
	}
	return s, nil
}

// envelopes are the schemas made so far: of a table, or of all messages. Debezium has one cache for all.
func (r *rule) envelopes(p *plan) map[schemaKey][]*schema {
	if p.rel == nil || r.cfg.FirstSchemaName {
		return r.schemas
	}
	return p.schemas
}

// schemaName is how the names of the schemas of a table begin: as a topic of its own would be named, which has no other characters.
func (r *rule) schemaName(relation string) string {
	var out strings.Builder
	for _, c := range r.cfg.TopicPrefix + "." + relation {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
			out.WriteRune(c)
		case c > 0xFFFF: // two of Java's characters
			out.WriteString("__")
		default:
			out.WriteByte('_')
		}
	}
	return out.String()
}
