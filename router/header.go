package router

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"

	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router/connect"
	"github.com/postrider/postrider/sink"
)

// The headers of Debezium's connector.
const (
	headerOldKey  = "__debezium.oldkey" // of a row whose primary key changed: what it was
	headerContext = "__debezium.context."
)

// The headers of position_headers.
const (
	HeaderLSN   = "postrider.lsn"   // commit LSN of the transaction, as PostgreSQL prints it
	HeaderIndex = "postrider.index" // of the event in its transaction, from 0
)

// contextHeaders makes the headers of extended.headers.enabled, which are the same for every row:
// one task of one connector, as in Debezium.
func (r *rule) contextHeaders(runID string) ([]sink.Header, error) {
	var out []sink.Header
	var err error
	for _, h := range [...]struct{ name, value string }{
		{"connectorLogicalName", r.cfg.TopicPrefix}, {"taskId", "0"},
		{"connectorName", "postgresql"}, {"runId", runID},
	} {
		if out, err = r.appendText(out, headerContext+h.name, h.value); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// appendText makes a header of a text of our own.
func (r *rule) appendText(dst []sink.Header, name, value string) ([]sink.Header, error) {
	v, err := r.headers.Value(connect.RequiredString, nil, connect.Text(value))
	return append(dst, sink.Header{Key: name, Value: v}), err
}

// appendColumn makes a header of a column.
func (r *rule) appendColumn(dst []sink.Header, name string, c *connect.Column,
	values [][]byte) ([]sink.Header, error) {
	v, err := r.headers.Cell(c, values[c.Index])
	return append(dst, sink.Header{Key: name, Value: v}), err
}

// makeHeaders appends, in Debezium's order: the key that was, the context, the trace, the id, the
// additional headers; and then the members of headers_column.
func (r *rule) makeHeaders(dst []sink.Header, p *plan, ev *replication.Event,
	values [][]byte) ([]sink.Header, error) {
	var err error
	if ev.Kind == replication.Update {
		if dst, err = r.appendOldKey(dst, p, ev); err != nil {
			return nil, err
		}
	}
	if p.rel != nil { // logical messages have none
		dst = append(dst, r.context...)
	}
	if r.cfg.TracingHeaders {
		if dst, err = r.appendTracing(dst, p, values); err != nil {
			return nil, err
		}
	}
	if dst, err = r.appendColumn(dst, r.cfg.HeaderID, p.id, values); err != nil {
		return nil, err
	}
	for i := range p.headers {
		h := &p.headers[i]
		if dst, err = r.appendColumn(dst, h.alias, h.Column, values); err != nil {
			return nil, err
		}
	}
	if p.headersColumn != nil {
		return r.appendMembers(dst, p.headersColumn.Name, values[p.headersColumn.Index])
	}
	return dst, nil
}

// appendMembers makes a header of each member of a JSON object: texts bare, null as a null value,
// everything else as JSON.
func (r *rule) appendMembers(dst []sink.Header, column string, raw []byte) ([]sink.Header, error) {
	if raw == nil {
		return dst, nil
	}
	doc, err := connect.ParseJSON(raw)
	if err == nil && doc.Kind == connect.JSONNull {
		return dst, nil
	}
	if err != nil || doc.Kind != connect.JSONObject {
		return nil, fault(ReasonInvalidHeaders,
			"have the application write an object there, as {\"trace\": \"1\"}, or NULL",
			"column %s, whose members become headers, holds no JSON object", column)
	}
	for _, m := range doc.Members {
		h := sink.Header{Key: string(connect.AppendEncoded(nil, m.Name)), Value: m.Node.Raw}
		switch m.Node.Kind {
		case connect.JSONNull:
			h.Value = nil
		case connect.JSONString:
			h.Value = connect.AppendEncoded([]byte{}, m.Node.Text)
		}
		problem := memberProblem(h.Key)
		if r.events != nil && eventHeader(h.Key) {
			problem = "has a name that is CloudEvents' own"
		}
		switch {
		case problem != "":
			return nil, fault(ReasonInvalidHeaders, "have the application write another name",
				"column %s: the header %.100q %s", column, h.Key, problem)
		case len(h.Value) > maxMemberValue:
			return nil, fault(ReasonInvalidHeaders, "have the application write it to the payload",
				"column %s: the value of the header %.100q is longer than %d bytes", column, h.Key,
				maxMemberValue)
		case m.Node.Kind == connect.JSONString && bytes.ContainsAny(h.Value, "\x00\r\n"):
			return nil, fault(ReasonInvalidHeaders, "have the application write it on one line",
				"column %s: the value of the header %.100q has a line end or a NUL in it", column,
				h.Key)
		}
		dst = append(dst, h)
	}
	return dst, nil
}

// Limits of the headers that a row brings by name. Consumers hand them on to systems that take
// less than Kafka does.
const (
	maxMemberName  = 255
	maxMemberValue = 64 << 10
)

// ownPrefix begins the names of the headers that the relay itself gives: of positions, and of the
// source for which they count.
const ownPrefix = "postrider."

// memberProblem is why a row may not bring a header of that name; empty if it may. Names with
// our prefix would be taken for positions by a reader that removes duplicates with them, the relay
// itself included.
func memberProblem(name string) string {
	switch {
	case name == "":
		return "has no name"
	case len(name) > maxMemberName:
		return fmt.Sprintf("is longer than %d bytes", maxMemberName)
	case strings.HasPrefix(name, ownPrefix) || strings.HasPrefix(name, "__debezium."):
		return "has a name that only the relay gives"
	case strings.ContainsFunc(name, unicode.IsControl):
		return "has a control character in its name"
	}
	return ""
}
