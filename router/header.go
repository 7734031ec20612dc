package router

import (
	"bytes"
	"strconv"

	"postrider/replication"
	"postrider/sink"
)

// The headers of position_headers.
const (
	HeaderLSN   = "postrider.lsn"   // commit LSN of the transaction, as PostgreSQL prints it
	HeaderIndex = "postrider.index" // of the event in its transaction, from 0
)

// headerEncoder writes header values. NULL is a null value of SimpleHeaderConverter and StringConverter.
type headerEncoder struct{ encoder }

// makeHeaders appends, in Debezium's order: the tracing context, the id, the additional headers; and then ours.
func (r *rule) makeHeaders(dst []sink.Header, p *plan, ev *replication.Event, values [][]byte) ([]sink.Header, error) {
	if p.tracing != nil {
		dst = appendTracing(dst, &r.headers.encoder, values[p.tracing.index])
	}
	v, err := r.headers.cell(p.id, values[p.id.index])
	if err != nil {
		return nil, err
	}
	dst = append(dst, sink.Header{Key: r.cfg.HeaderID, Value: v})
	for i := range p.headers {
		h := &p.headers[i]
		if v, err = r.headers.cell(h.column, values[h.index]); err != nil {
			return nil, err
		}
		dst = append(dst, sink.Header{Key: h.alias, Value: v})
	}
	if p.headersColumn != nil {
		if dst, err = appendMembers(dst, p.headersColumn.name, values[p.headersColumn.index]); err != nil {
			return nil, err
		}
	}
	if r.cfg.PositionHeaders {
		dst = append(dst, sink.Header{Key: HeaderLSN, Value: []byte(ev.LSN.String())},
			sink.Header{Key: HeaderIndex, Value: strconv.AppendUint(nil, uint64(ev.Index), 10)})
	}
	return dst, nil
}

// appendMembers makes a header of each member of a JSON object: texts bare, null as a null value, everything else as JSON.
func appendMembers(dst []sink.Header, column string, raw []byte) ([]sink.Header, error) {
	if raw == nil {
		return dst, nil
	}
	doc, err := parseJSON(raw)
	if err == nil && doc.kind == jsonNull {
		return dst, nil
	}
	if err != nil || doc.kind != jsonObject {
		return nil, fault(ReasonInvalidHeaders, "have the application write an object there, as {\"trace\": \"1\"}, or NULL",
			"column %s, whose members become headers, holds no JSON object", column)
	}
	for _, m := range doc.members {
		h := sink.Header{Key: string(appendEncoded(nil, m.name))}
		switch m.node.kind {
		case jsonNull:
		case jsonString:
			h.Value = appendEncoded([]byte{}, m.node.text)
		default:
			h.Value = m.node.raw
		}
		dst = append(dst, h)
	}
	return dst, nil
}

// appendTracing hands on traceparent and tracestate of a span context in Java's properties format.
func appendTracing(dst []sink.Header, e *encoder, raw []byte) []sink.Header {
	for _, line := range bytes.FieldsFunc(raw, func(c rune) bool { return c == '\n' || c == '\r' }) {
		line = bytes.TrimLeft(line, " \t\f")
		if len(line) == 0 || line[0] == '#' || line[0] == '!' {
			continue
		}
		end := bytes.IndexAny(line, "=: \t\f")
		if end < 0 {
			continue
		}
		key := string(line[:end])
		if key != "traceparent" && key != "tracestate" {
			continue
		}
		value := bytes.TrimLeft(line[end:], " \t\f")
		if len(value) > 0 && (value[0] == '=' || value[0] == ':') {
			value = bytes.TrimLeft(value[1:], " \t\f")
		}
		value = bytes.ReplaceAll(value, []byte{'\\'}, nil)
		v, err := e.value(optionalString, nil, text(value))
		if err != nil {
			continue
		}
		dst = append(dst, sink.Header{Key: key, Value: v})
	}
	return dst
}
