package registry

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/postrider/postrider/internal/secret"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/router/avro"
	"github.com/postrider/postrider/router/connect"
	"github.com/postrider/postrider/router/jsonschema"
	"github.com/postrider/postrider/router/protobuf"
)

// Writer writes keys, or values, in one of connect.RegistryFormats. It may be used from any
// goroutine.
type Writer struct {
	client *Client
	side   string // key or value
	format string
	names  string // the subject name strategy
	usage  Usage
	avro   *avro.Converter
	json   jsonschema.Options
	proto  protobuf.Options
	latest bool // write the latest version of the subject

	declared *avro.Declared // of a file; nil: none
	text     string         // of declared

	mu     sync.Mutex // guards what follows
	recent map[string][]*prepared
}

// prepared is a schema with its id.
type prepared struct {
	source *connect.Schema
	write  func(dst []byte, v any) ([]byte, error)
	id     int
}

const (
	// recentSchemas is how many shapes of values of one topic are found without their text.
	recentSchemas = 16
	// recentTopics bounds how many topics have some: names of topics come from rows.
	recentTopics = 1024
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
	client, err := New(cfg)
	if err != nil {
		return r, err
	}
	if key {
		w := &Writer{client: client, side: "key", format: f.Key, names: f.KeyStrategy,
			usage: Usage{f.KeyAutoRegister, f.KeyNormalize, preview}, latest: f.KeyLatest,
			avro: avro.New(avro.Options{Enhanced: f.KeyEnhanced, MetaData: f.KeyMetaData,
				Scrub: f.KeyScrub}),
			json: jsonschema.Options{NumericDecimals: strings.EqualFold(f.KeyDecimals, "NUMERIC")},
			proto: protobuf.Options{Optional: f.KeyOptional, Wrappers: f.KeyWrappers,
				Scrub: f.KeyScrub}}
		if err := w.declare(f.KeySchemaFile); err != nil {
			return r, err
		}
		r.Key = w
	}
	if value {
		w := &Writer{client: client, side: "value", format: f.Value, names: f.ValueStrategy,
			usage: Usage{f.ValueAutoRegister, f.ValueNormalize, preview}, latest: f.ValueLatest,
			avro: avro.New(avro.Options{Enhanced: f.ValueEnhanced, MetaData: f.ValueMetaData,
				Scrub: f.ValueScrub}),
			json: jsonschema.Options{NumericDecimals: strings.EqualFold(f.ValueDecimals, "NUMERIC")},
			proto: protobuf.Options{Optional: f.ValueOptional, Wrappers: f.ValueWrappers,
				Scrub: f.ValueScrub}}
		if err := w.declare(f.ValueSchemaFile); err != nil {
			return r, err
		}
		r.Value = w
	}
	return r, nil
}

// declare reads the schema to write from a file, if there is one.
func (w *Writer) declare(file string) error {
	w.recent = map[string][]*prepared{}
	if file == "" {
		return nil
	}
	key := "format." + w.side + ".schema.file"
	if err := secret.CheckPath(file); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	w.text = string(text)
	if w.declared, err = avro.Parse(w.text); err != nil {
		return fmt.Errorf("%s: %s: %w", key, file, err)
	}
	return nil
}

const jsonSchema = "json_schema"

// magic is the first byte of Confluent's framing; four with the id follow.
const magic = 0

const headerLength = 5

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
	dst = append(dst, magic)
	dst = binary.BigEndian.AppendUint32(dst, uint32(p.id)) //nolint:gosec // checked by prepare
	return p.write(dst, v)
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
	if len(known) == 0 && len(w.recent) == recentTopics {
		clear(w.recent)
	}
	w.recent[topic] = slices.Insert(known[:min(len(known), recentSchemas-1)], 0, p)
	return p, nil
}

// inferred is what a converter makes of a Connect schema.
type inferred interface {
	Text() string
	Record() string // the name of the record at the top; empty: it is none
	Append(dst []byte, v any) ([]byte, error)
}

func (w *Writer) infer(s *connect.Schema) (inferred, sr.SchemaType, error) {
	switch w.format {
	case jsonSchema:
		schema, err := jsonschema.New(s, w.json)
		return schema, sr.TypeJSON, err
	case "protobuf":
		schema, err := protobuf.New(s, w.proto)
		return schema, sr.TypeProtobuf, err
	}
	schema, err := w.avro.Schema(s)
	return schema, sr.TypeAvro, err
}

// make finds or registers the schema of a topic and a Connect schema.
func (w *Writer) make(topic string, s *connect.Schema) (*prepared, error) {
	if w.declared != nil {
		subject, err := w.subject(topic, w.declared.Record())
		if err != nil {
			return nil, err
		}
		id, err := w.client.ID(subject, sr.Schema{Schema: w.text, Type: sr.TypeAvro}, w.usage)
		return &prepared{s, by(w.declared, s), id}, err
	}
	schema, kind, err := w.infer(s)
	if err != nil {
		return nil, err
	}
	subject, err := w.subject(topic, schema.Record())
	switch {
	case err != nil:
		return nil, err
	case !w.latest:
		id, err := w.client.ID(subject, sr.Schema{Schema: schema.Text(), Type: kind}, w.usage)
		return &prepared{s, schema.Append, id}, err
	}
	has, err := w.client.Latest(subject)
	if err != nil {
		return nil, err
	}
	declared, err := avro.Parse(has.Schema.Schema)
	if err != nil || has.Type != sr.TypeAvro || len(has.References) > 0 {
		return nil, connect.Unwritable("set format."+w.side+".use.latest.version to false",
			"version %d of subject %s is no Avro schema without references", has.Version, subject)
	}
	return &prepared{s, by(declared, s), has.ID}, nil
}

// by writes values of a Connect schema by a declared one: documents by their members.
func by(declared *avro.Declared, s *connect.Schema) func(dst []byte, v any) ([]byte, error) {
	if s != nil && s.Name == "io.debezium.data.Json" {
		return func(dst []byte, v any) ([]byte, error) {
			text, _ := v.(connect.Text)
			return declared.AppendJSON(dst, text)
		}
	}
	return func(dst []byte, v any) ([]byte, error) { return declared.Append(dst, s, v) }
}

// subject is the name under which a schema is registered, by Confluent's strategies.
func (w *Writer) subject(topic, record string) (string, error) {
	if w.names == "topic" || w.names == "" {
		return topic + "-" + w.side, nil
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
	if len(b) < headerLength || b[0] != magic {
		return nil, connect.Unwritable("have the application write what a serializer for the registry "+
			"returns", "the bytes do not begin with a schema id")
	}
	id := int(binary.BigEndian.Uint32(b[1:]))
	if w.names != "topic" && w.names != "" {
		return append(dst, b...), nil // the record is not known
	}
	subject := topic + "-" + w.side
	switch ours, err := w.client.Belongs(id, subject); {
	case err != nil:
		return nil, err
	case !ours:
		return nil, connect.Unwritable("have the application register its schema under that subject",
			"its schema id %d is none of subject %s", id, subject)
	}
	return append(dst, b...), nil
}

// sameSchema compares schemas by what a reader needs of them: a registry may write them in another
// order, or without docs.
func sameSchema(a, b sr.Schema) bool {
	switch {
	case a.Type != b.Type:
		return false
	case a.Schema == b.Schema:
		return true
	case a.Type == sr.TypeProtobuf:
		return protobuf.Equal(a.Schema, b.Schema)
	case a.Type == sr.TypeJSON:
		var ours, theirs any
		return json.Unmarshal([]byte(a.Schema), &ours) == nil &&
			json.Unmarshal([]byte(b.Schema), &theirs) == nil && reflect.DeepEqual(ours, theirs)
	}
	ours, err := avro.Parse(a.Schema)
	if err != nil {
		return false
	}
	theirs, err := avro.Parse(b.Schema)
	return err == nil && ours.Equal(theirs)
}
