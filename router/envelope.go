package router

import "strconv"

// schemaKey names one schema of an envelope. The payload's schema is compared by content where it is expanded.
type schemaKey struct {
	routed  string
	version string
}

// makeValue encodes the value: the payload, expanded where that is asked, in an envelope where columns are placed in one.
// Nil is a tombstone.
func (r *Router) makeValue(p *plan, values [][]byte) ([]byte, error) {
	raw := values[p.payload.index]
	if raw == nil && r.cfg.TombstoneOnEmptyPayload && p.payload.def == nil {
		return nil, nil
	}
	if !p.enveloped && !p.payload.dynamic && !(r.cfg.ExpandJSONPayload && p.payload.schema.kind == kindString) && !r.cfg.TombstoneOnEmptyPayload {
		return r.values.cell(p.payload, raw)
	}
	v, err := p.payload.value(raw)
	if err != nil {
		return nil, err
	}
	if t, isText := v.(text); isText && r.cfg.TombstoneOnEmptyPayload && isBlank(t) {
		return nil, nil
	}
	s := p.payload.schema
	if p.payload.dynamic {
		s = schemaOf(v, s)
		if r.values.format == "string" && !p.enveloped {
			return raw, nil
		}
	}
	expanded := p.payload.dynamic
	if t, isText := v.(text); isText && r.cfg.ExpandJSONPayload && p.payload.schema.kind == kindString {
		es, ev, err := r.expander.expand(t)
		if err != nil {
			return nil, err
		}
		if ev != nil {
			s, v, expanded = es, ev, true
		}
	}
	if p.enveloped {
		return r.wrap(p, values, s, v, expanded)
	}
	if !expanded {
		return r.values.cell(p.payload, raw)
	}
	return r.values.value(s, nil, v)
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
func (r *Router) wrap(p *plan, values [][]byte, payload *schema, v any, expanded bool) ([]byte, error) {
	if payload == nil {
		return nil, fault(ReasonUnconvertible, "", "an empty JSON array cannot be expanded inside of an envelope")
	}
	s, err := r.envelopeSchema(p, values, payload, expanded)
	if err != nil {
		return nil, err
	}
	out := &structure{s, make([]any, 0, len(p.envelope)+1)}
	out.values = append(out.values, v)
	for _, c := range p.envelope {
		member, err := c.value(values[c.index])
		if err != nil {
			return nil, err
		}
		out.values = append(out.values, member)
	}
	return r.values.value(s, nil, out)
}

func (r *Router) envelopeSchema(p *plan, values [][]byte, payload *schema, expanded bool) (*schema, error) {
	var routed, version string
	if raw := values[p.route.index]; raw != nil {
		v, err := p.route.value(raw)
		if err != nil {
			return nil, err
		}
		routed = string(v.(text))
	}
	if p.version != nil {
		version = string(values[p.version.index])
	}
	key := schemaKey{routed, version}
	if s, ok := p.schemas[key]; ok && !expanded {
		return s, nil
	}
	s := &schema{kind: kindStruct, name: r.opts.TopicPrefix + "." + p.relation + "." + routed + ".Value"}
	if p.rel == nil {
		s.name = routed
	}
	if version != "" {
		n, err := strconv.Atoi(version)
		if err != nil {
			return nil, fault(ReasonUnconvertible, "", "column %s: %w", p.version.name, err)
		}
		s.version = n
	}
	s.fields = append(s.fields, &field{"payload", payload})
	for _, c := range p.envelope {
		s.fields = append(s.fields, &field{c.alias, c.schema})
	}
	if !expanded && len(p.schemas) < topicCacheSize {
		p.schemas[key] = s
	}
	return s, nil
}
