package registry

import (
	"slices"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/router/avro"
	"github.com/postrider/postrider/router/connect"
	"github.com/postrider/postrider/router/jsonschema"
	"github.com/postrider/postrider/router/protobuf"
)

// Writer writes keys, or values, in one of connect.RegistryFormats. It may be used from any
// goroutine.
type Writer struct {
	settings

	server    server
	usage     Usage
	converter *avro.Converter

	mu     sync.Mutex // guards what follows
	recent map[string][]*prepared
	kept   int                 // bytes of recent, with recentCost for each
	file   given               // the schema of schema.file, once it was read with its references
	parsed map[string]declared // the latest versions of subjects
}

// settings are those of [format] for keys, or for values.
type settings struct {
	side         string // key or value
	format       string
	names        string // the subject name strategy
	autoRegister bool
	normalize    bool
	latest       bool   // write the latest version of the subject
	schemaFile   string // of the schema to write; empty: none
	references   []string
	message      string // of protobuf; empty: the first one
	framing      string
	avro         avro.Options
	json         jsonschema.Options
	proto        protobuf.Options
}

func keySettings(f router.Format, framing string) settings {
	return settings{"key", f.Key, f.KeyStrategy, f.KeyAutoRegister, f.KeyNormalize, f.KeyLatest,
		f.KeySchemaFile, f.KeySchemaReferences, f.KeySchemaMessage, framing,
		avro.Options{Enhanced: f.KeyEnhanced, MetaData: f.KeyMetaData, Scrub: f.KeyScrub,
			KeepNulls: f.KeyKeepNulls},
		jsonschema.Options{NumericDecimals: strings.EqualFold(f.KeyDecimals, numeric),
			Closed: !f.KeyOpenObjects},
		protobuf.Options{Optional: f.KeyOptional, Wrappers: f.KeyWrappers, Scrub: f.KeyScrub,
			KeepNulls: f.KeyKeepNulls, NamesMessage: framing == Apicurio}}
}

func valueSettings(f router.Format, framing string) settings {
	return settings{"value", f.Value, f.ValueStrategy, f.ValueAutoRegister, f.ValueNormalize,
		f.ValueLatest, f.ValueSchemaFile, f.ValueSchemaReferences, f.ValueSchemaMessage, framing,
		avro.Options{Enhanced: f.ValueEnhanced, MetaData: f.ValueMetaData, Scrub: f.ValueScrub,
			KeepNulls: f.ValueKeepNulls},
		jsonschema.Options{NumericDecimals: strings.EqualFold(f.ValueDecimals, numeric),
			Closed: !f.ValueOpenObjects},
		protobuf.Options{Optional: f.ValueOptional, Wrappers: f.ValueWrappers, Scrub: f.ValueScrub,
			KeepNulls: f.ValueKeepNulls, NamesMessage: framing == Apicurio}}
}

const numeric = "NUMERIC" // of decimal.format

// prepared is a schema with its id.
type prepared struct {
	source *connect.Schema
	write  func(dst []byte, v any) ([]byte, error)
	header []byte // what stands before each value
	size   int    // of the text that write refers to, or of source if there is none, in bytes
}

const (
	// recentSchemas is how many shapes of values of one topic are found without their text.
	recentSchemas = 16
	// recentBytes bounds the sizes of all of them, with recentCost for each: names of topics and
	// members of payloads come from rows.
	recentBytes = 4 << 20
	recentCost  = 256
)

// Open makes what a format needs of a schema registry; nothing for one that needs none. It does
// not connect. What the registry answers is kept as long as the result is used.
func Open(cfg Config, f router.Format) (router.Registries, error) { return open(cfg, f, false) }

// Preview is Open for what publishes nothing, and so leaves nothing in the registry: a schema that
// would be registered has the id zero.
func Preview(cfg Config, f router.Format) (router.Registries, error) { return open(cfg, f, true) }

func open(cfg Config, f router.Format, preview bool) (r router.Registries, err error) {
	key, value := f.Registered()
	if !key && !value {
		return r, nil
	}
	registry, err := newServer(cfg)
	if err != nil {
		return r, err
	}
	r.Requested = registry.requested
	if key {
		if r.Key, err = newWriter(registry, keySettings(f, cfg.Framing), preview); err != nil {
			return r, err
		}
	}
	if value {
		r.Value, err = newWriter(registry, valueSettings(f, cfg.Framing), preview)
	}
	return r, err
}

func newWriter(registry server, s settings, preview bool) (*Writer, error) {
	w := &Writer{settings: s, server: registry, usage: Usage{s.autoRegister, s.normalize, preview},
		converter: avro.New(s.avro), recent: map[string][]*prepared{}, parsed: map[string]declared{}}
	if s.schemaFile == "" {
		return w, nil
	}
	return w, w.readFile()
}

const jsonSchema = "json_schema"

// kinds are the registry's names for formats.
var kinds = map[string]sr.SchemaType{
	"avro": sr.TypeAvro, jsonSchema: sr.TypeJSON, "protobuf": sr.TypeProtobuf,
}

// Append implements connect.Registered.
func (w *Writer) Append(dst []byte, topic string, s *connect.Schema, v any) ([]byte, error) {
	if v == nil && (w.format != jsonSchema || s == nil) {
		return nil, nil // a tombstone; JsonSchemaConverter writes the null of a schema
	}
	if w.format == "framed" {
		return w.framed(dst, topic, v)
	}
	p, err := w.prepare(topic, s)
	if err != nil {
		return nil, err
	}
	return p.write(append(dst, p.header...), v)
}

// prepare finds the id of a schema. Each row with expanded JSON has a schema of its own: those of
// the last rows are compared before a text is made.
func (w *Writer) prepare(topic string, s *connect.Schema) (*prepared, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	known := w.recent[topic]
	if i := slices.IndexFunc(known, func(p *prepared) bool { return p.source.Equal(s) }); i >= 0 {
		p := known[i]
		copy(known[1:i+1], known[:i])
		known[0] = p
		return p, nil
	}
	p, err := w.make(topic, s)
	if err != nil {
		return nil, err
	}
	cost := recentCost + p.size
	if cost > recentBytes {
		return p, nil
	}
	if len(known) == recentSchemas {
		w.kept -= recentCost + known[recentSchemas-1].size
		known = known[:recentSchemas-1]
	}
	if w.kept += cost; w.kept > recentBytes {
		clear(w.recent)
		known, w.kept = nil, cost
	}
	w.recent[topic] = slices.Insert(known, 0, p)
	return p, nil
}

// inferred is what a converter makes of a Connect schema.
type inferred interface {
	Text() string
	Record() string // the name of the record at the top; empty: it is none
	Append(dst []byte, v any) ([]byte, error)
}

func (w *Writer) infer(s *connect.Schema) (inferred, sr.SchemaType, error) {
	kind := kinds[w.format]
	switch kind {
	case sr.TypeJSON:
		schema, err := jsonschema.New(s, w.json)
		return schema, kind, err
	case sr.TypeProtobuf:
		schema, err := protobuf.New(s, w.proto)
		return schema, kind, err
	}
	schema, err := w.converter.Schema(s)
	return schema, kind, err
}

// make finds or registers the schema of a topic and a Connect schema.
func (w *Writer) make(topic string, s *connect.Schema) (*prepared, error) {
	switch {
	case w.schemaFile != "":
		return w.fromFile(topic, s)
	case w.latest:
		return w.fromLatest(topic, s)
	}
	schema, kind, err := w.infer(s)
	if err != nil {
		return nil, err
	}
	subject, err := w.subject(topic, schema.Record())
	if err != nil {
		return nil, err
	}
	header, err := w.server.header(subject, sr.Schema{Schema: schema.Text(), Type: kind}, w.usage)
	return &prepared{s, schema.Append, header, len(schema.Text())}, err
}

// subject is the name under which a schema is registered, by Confluent's strategies.
func (w *Writer) subject(topic, record string) (string, error) {
	if w.byTopic() {
		return w.topicSubject(topic), nil
	}
	if record == "" {
		return "", connect.Unwritable("set format."+w.side+".subject.name.strategy to \"topic\"",
			"its schema is no record, which would name the subject")
	}
	if w.names == "record" {
		return record, nil
	}
	return topic + "-" + record, nil
}

// framed passes on bytes that the application has framed, after a look at the id.
func (w *Writer) framed(dst []byte, topic string, v any) ([]byte, error) {
	var b []byte
	switch v := v.(type) {
	case connect.Buffer:
		b = v
	case connect.ByteArray:
		b = v
	default:
		return nil, connect.Unwritable("make the column bytea, or choose another format",
			"format framed takes bytes")
	}
	subject := "" // the record is not known
	if w.byTopic() {
		subject = w.topicSubject(topic)
	}
	if err := w.server.checkFramed(b, subject); err != nil {
		return nil, err
	}
	return append(dst, b...), nil
}

func (w *Writer) byTopic() bool { return w.names == "topic" || w.names == "" }

// topicSubject is the subject of a topic. Glue's serializers name the schema of a value as its
// topic.
func (w *Writer) topicSubject(topic string) string {
	if w.framing == Glue && w.side == "value" {
		return topic
	}
	return topic + "-" + w.side
}
