package router

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/postrider/postrider/router/connect"
	"github.com/postrider/postrider/sink"
)

// The headers of a CloudEvents record: the attributes of binary mode, and the one header of
// structured mode, which tells the modes apart. Without the prefix they are names of attributes.
const (
	attributePrefix   = "ce_"
	headerContentType = "content-type"
	headerDataSchema  = attributePrefix + "dataschema"

	// HeaderTime has the record time. It is another one when a snapshot reads a row again.
	HeaderTime = attributePrefix + "time"
)

// Beginnings of the value of structured mode. The time comes first, where WithoutTime finds it.
const (
	structuredStart = `{"specversion":"1.0"`
	structuredTime  = structuredStart + `,"time":"`

	// as the record's timestamp, in milliseconds
	attributeTime = "2006-01-02T15:04:05.000Z"
)

var (
	specVersion    = []byte("1.0")
	structuredType = []byte("application/cloudevents+json; charset=UTF-8")
)

// cloudEvents makes CloudEvents of the messages of a rule set. It belongs to one goroutine.
type cloudEvents struct {
	structured  bool
	source      string // a template: see expandSource
	contentType string // of the data; empty: by the payload's column
	prefix      string // topic.prefix
	tracing     bool   // tracing_headers

	text       connect.Encoder // of the attributes: as in headers of format simple
	attributes []attribute     // of the event at hand

	chunk []byte    // of texts of times, as that of positions
	at    time.Time // of the event before
	time  []byte    // its text
}

// attribute is a context attribute of an event.
type attribute struct {
	header string // its name behind attributePrefix
	value  []byte
	bare   bool // without quotes in JSON: a number or a boolean
}

// eventPlan is what the events of one relation have in common.
type eventPlan struct {
	source      []byte
	eventType   *connect.Column
	extensions  []extension
	contentType []byte // of the data
	data        dataForm
	checked     bool // that it is JSON, by PostgreSQL or because a converter wrote it
}

// extension is a column that becomes an attribute.
type extension struct {
	*connect.Column
	header string
	bare   bool
}

// dataForm is how structured mode holds the data.
type dataForm uint8

const (
	dataText  dataForm = iota // a JSON string
	dataJSON                  // a JSON value
	dataBytes                 // data_base64
)

// newCloudEvents returns nil if the format is no CloudEvents.
func newCloudEvents(f Format, cfg *Config) *cloudEvents {
	if !f.IsCloudEvents() {
		return nil
	}
	return &cloudEvents{
		structured: f.CloudEvents == "structured", source: f.EventSource,
		contentType: strings.TrimSpace(f.EventContentType), prefix: cfg.TopicPrefix,
		tracing: cfg.TracingHeaders,
		text:    connect.NewEncoder(connect.Converter{Format: "simple"}, false),
	}
}

// setSource sets the source of events to that of an outbox table, or of logical messages.
func (p *plan) setSource(table string) {
	if e := p.rule.events; e != nil {
		p.event.source = []byte(expandSource(e.source, e.prefix, table))
	}
}

// expandSource puts topic.prefix and a table into a template, escaped as parts of a path.
func expandSource(template, prefix, table string) string {
	return strings.NewReplacer("${topic.prefix}", url.PathEscape(prefix),
		"${table}", url.PathEscape(table)).Replace(template)
}

// plan finds the columns that only CloudEvents need. The caller sets the source.
func (e *cloudEvents) plan(s *shape, p *plan) *eventPlan {
	const key = "table.field.event.type"
	out := new(eventPlan)
	out.eventType = s.usable(s.oneOf(s.cfg.FieldType, key, "event_type", "type"), key, isText,
		"set router.table.field.event.type to a column of text, varchar or an enum", "is no text")
	if bad, ok := errors.AsType[*ShapeError](s.err); ok {
		bad.Hint += ", which every CloudEvent needs (format.cloudevents)"
	}
	if s.err != nil {
		return nil
	}
	for _, c := range p.envelope {
		kind := c.Schema.Kind
		number := (kind == connect.KindInt16 || kind == connect.KindInt32) && !c.Schema.IsLogical()
		out.extensions = append(out.extensions, extension{
			Column: c.Column, header: attributePrefix + c.alias,
			bare: kind == connect.KindBool || number,
		})
	}
	var contentType string
	contentType, out.data = dataOf(p.payload, s.values, s.cfg.JavaText)
	out.checked = out.data == dataJSON && (!p.payload.IsJSON() || p.payload.Type.IsBuiltinJSON())
	if e.contentType != "" {
		contentType = e.contentType
		switch {
		case isJSONType(contentType):
			out.data = dataJSON
		case out.data == dataJSON:
			out.data = dataText
		}
	}
	out.contentType = []byte(contentType)
	p.headerCount += 10 + len(out.extensions)
	return out
}

// dataOf is what the values of a payload are, by its column and the converter.
func dataOf(c *connect.Column, values *connect.Encoder, java bool) (contentType string,
	form dataForm) {
	format := values.Format
	if format == "binary" && !c.IsBytes() {
		format = cmp.Or(values.Delegate, format)
	}
	switch {
	case format == "json", format == "json+schema", format == "string" && c.IsJSON():
		return "application/json", dataJSON
	case format == "string" && (java || !c.IsBytes()):
		return "text/plain; charset=UTF-8", dataText
	}
	return "application/octet-stream", dataBytes
}

// isJSONType reports whether a media type is that of JSON, as the JSON event format defines it.
func isJSONType(contentType string) bool {
	media, _, _ := strings.Cut(strings.ToLower(contentType), ";")
	media = strings.TrimSpace(media)
	return strings.HasSuffix(media, "/json") || strings.HasSuffix(media, "+json")
}

// write makes a CloudEvent of a message that has everything else. A null value is an event without
// data: in binary mode it stays a null value.
func (e *cloudEvents) write(m *sink.Message, p *plan, values [][]byte) (err error) {
	if err = e.collect(m, p, values); err != nil {
		return err
	}
	if e.structured {
		m.Headers = append(m.Headers, sink.Header{Key: headerContentType, Value: structuredType})
		m.Value, err = e.document(p, m.Value)
		return err
	}
	for i := range e.attributes {
		a := &e.attributes[i]
		m.Headers = append(m.Headers, sink.Header{Key: a.header, Value: a.value})
	}
	if m.Value != nil {
		m.Headers = append(m.Headers,
			sink.Header{Key: headerContentType, Value: p.event.contentType})
	}
	return nil
}

// collect sets the attributes of an event, but for that of its data.
func (e *cloudEvents) collect(m *sink.Message, p *plan, values [][]byte) error {
	e.attributes = append(e.attributes[:0], attribute{header: "ce_specversion", value: specVersion})
	if !m.Timestamp.IsZero() {
		text, err := e.timeOf(m.Timestamp)
		if err != nil {
			return err
		}
		e.attributes = append(e.attributes, attribute{header: HeaderTime, value: text})
	}
	if err := e.required("ce_id", p.id, values); err != nil {
		return err
	}
	e.attributes = append(e.attributes, attribute{header: "ce_source", value: p.event.source})
	if err := e.required("ce_type", p.event.eventType, values); err != nil {
		return err
	}
	subject, err := e.textOf("ce_subject", p.key, values)
	if err != nil {
		return err
	}
	if len(subject) > 0 {
		e.attributes = append(e.attributes, attribute{header: "ce_subject", value: subject},
			attribute{header: "ce_partitionkey", value: subject})
	}
	for i := range p.event.extensions {
		x := &p.event.extensions[i]
		value, err := e.textOf(x.header, x.Column, values)
		if err != nil {
			return err
		}
		if value != nil && x.header == headerDataSchema {
			if problem := schemaProblem(string(value)); problem != "" {
				return fault(ReasonInvalidEvent, "have the application write an absolute URI, or NULL",
					"column %s, which is the dataschema of the CloudEvent, %s", x.Name, problem)
			}
		}
		if value != nil {
			e.attributes = append(e.attributes, attribute{x.header, value, x.bare})
		}
	}
	return e.trace(m, p, values)
}

// required appends an attribute that every event has, and that is not empty.
func (e *cloudEvents) required(header string, c *connect.Column, values [][]byte) error {
	value, err := e.textOf(header, c, values)
	if err != nil {
		return err
	}
	if len(value) == 0 {
		what := "empty"
		if value == nil {
			what = "NULL"
		}
		return fault(ReasonInvalidEvent, "have the application write it, and make the column NOT NULL",
			"column %s, which is the %s of the CloudEvent, is %s", c.Name, attributeName(header), what)
	}
	e.attributes = append(e.attributes, attribute{header: header, value: value})
	return nil
}

// textOf is the text of a column; nil for NULL.
func (e *cloudEvents) textOf(header string, c *connect.Column, values [][]byte) ([]byte, error) {
	text, err := e.text.Cell(c, values[c.Index])
	if err != nil {
		return nil, err
	}
	if problem := attributeProblem(text); problem != "" {
		return nil, fault(ReasonInvalidEvent, "have the application write another value",
			"column %s, which is the %s of the CloudEvent, %s", c.Name, attributeName(header), problem)
	}
	return text, nil
}

func attributeName(header string) string { return strings.TrimPrefix(header, attributePrefix) }

// attributeProblem is why a text cannot be the value of an attribute; empty if it can.
func attributeProblem(text []byte) string {
	for i := 0; i < len(text); {
		c, n := rune(text[i]), 1
		if c >= utf8.RuneSelf {
			c, n = utf8.DecodeRune(text[i:])
		}
		switch {
		case c == utf8.RuneError && n == 1:
			return "is no valid UTF-8"
		case c < ' ' || c >= 0x7f && c <= 0x9f:
			return "has a control character"
		case c >= 0xfdd0 && c <= 0xfdef || c&0xfffe == 0xfffe:
			return "has a code point that is no character"
		}
		i += n
	}
	return ""
}

// timeOf is the text of a time. The messages of a transaction mostly share one.
func (e *cloudEvents) timeOf(t time.Time) ([]byte, error) {
	if e.time != nil && t.Equal(e.at) {
		return e.time, nil
	}
	utc := t.UTC()
	if utc.Year() > 9999 {
		return nil, fault(ReasonInvalidTimestamp, "write a time before the year 10000 to the column "+
			"of router.table.field.event.timestamp",
			"the year %d cannot be in the time of a CloudEvent", utc.Year())
	}
	if cap(e.chunk)-len(e.chunk) < len(attributeTime) {
		e.chunk = make([]byte, 0, positionChunk) // the rows before keep the old one
	}
	start := len(e.chunk)
	e.chunk = utc.AppendFormat(e.chunk, attributeTime)
	e.at, e.time = t, e.chunk[start:len(e.chunk):len(e.chunk)]
	return e.time, nil
}

// trace appends the trace context that the application wrote to the row, if it is one. With
// tracing_headers the header has the number of a new span; an event keeps the first one.
func (e *cloudEvents) trace(m *sink.Message, p *plan, values [][]byte) error {
	var parent, state string
	if e.tracing {
		context, err := p.spanContext(values)
		if err != nil || context == nil {
			return err
		}
		parent = context.GetString(HeaderTraceParent, "")
		state = context.GetString(HeaderTraceState, "")
	} else {
		for i := range m.Headers {
			switch h := &m.Headers[i]; h.Key {
			case HeaderTraceParent:
				parent = string(h.Value)
			case HeaderTraceState:
				state = string(h.Value)
			}
		}
	}
	if _, _, ok := parseTraceParent(parent); !ok {
		return nil
	}
	e.attributes = append(e.attributes,
		attribute{header: "ce_" + HeaderTraceParent, value: []byte(parent)})
	if state = parseTraceState(state); state != "" {
		e.attributes = append(e.attributes,
			attribute{header: "ce_" + HeaderTraceState, value: []byte(state)})
	}
	return nil
}

// document is the value of structured mode: the JSON event format.
func (e *cloudEvents) document(p *plan, value []byte) ([]byte, error) {
	if value != nil {
		e.attributes = append(e.attributes,
			attribute{header: "ce_datacontenttype", value: p.event.contentType})
		if err := p.event.check(p.payload, value); err != nil {
			return nil, err
		}
	}
	size := len(`,"data_base64":""}`) + len(value)
	switch p.event.data {
	case dataBytes:
		size = len(`,"data_base64":""}`) + base64.StdEncoding.EncodedLen(len(value))
	case dataText:
		size += len(value) / 8 // escapes
	}
	for i := range e.attributes {
		size += len(e.attributes[i].header) + len(e.attributes[i].value) + len(`,"":""`)
	}
	out := append(make([]byte, 0, size), structuredStart...)
	for _, a := range e.attributes[1:] {
		out = append(append(append(out, ',', '"'), attributeName(a.header)...), '"', ':')
		if a.bare {
			out = append(out, a.value...)
		} else {
			out = connect.AppendJSONString(out, a.value)
		}
	}
	switch {
	case value == nil:
	case p.event.data == dataBytes:
		out = base64.StdEncoding.AppendEncode(append(out, `,"data_base64":"`...), value)
		out = append(out, '"')
	case p.event.data == dataJSON:
		out = append(append(out, `,"data":`...), value...)
	default:
		out = connect.AppendJSONString(append(out, `,"data":`...), value)
	}
	return append(out, '}'), nil
}

// check refuses data that would make the JSON of structured mode unreadable.
func (p *eventPlan) check(payload *connect.Column, value []byte) error {
	switch {
	case p.data == dataBytes:
		return nil
	case !utf8.Valid(value):
		return fault(ReasonInvalidEvent,
			"have the application write UTF-8, or set format.cloudevents to \"binary\"",
			"column %s, which is the data of the CloudEvent, is no valid UTF-8", payload.Name)
	case p.data == dataJSON && !p.checked && !json.Valid(value):
		return fault(ReasonInvalidEvent,
			"have the application write JSON there, or correct format.cloudevents.datacontenttype",
			"column %s, which is the data of the CloudEvent, is no JSON, but its content type is %s",
			payload.Name, p.contentType)
	}
	return nil
}

// WithoutTime returns a value without the attribute time of a structured CloudEvent, for
// comparisons: a row that is read again has the time of then. Other values stay as they are.
func WithoutTime(value []byte) []byte {
	if rest, ok := bytes.CutPrefix(value, []byte(structuredTime)); ok && len(rest) >=
		len(attributeTime) {
		return rest[len(attributeTime):]
	}
	return value
}

// eventHeader reports whether CloudEvents have a meaning for the name of a header. Readers ignore
// the case of letters.
func eventHeader(name string) bool {
	name = strings.ToLower(name)
	return name == headerContentType || strings.HasPrefix(name, attributePrefix)
}
