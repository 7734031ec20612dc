package registry

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/postrider/postrider/internal/secret"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/router/avro"
	"github.com/postrider/postrider/router/connect"
	"github.com/postrider/postrider/router/jsonschema"
	"github.com/postrider/postrider/router/protobuf"
)

// declared writes values by a schema that was given, and not made of a Connect schema.
type declared interface {
	Record() string // the name of the record at the top; empty: it is none
	AppendJSON(dst, doc []byte) ([]byte, error)
	Append(dst []byte, s *connect.Schema, v any) ([]byte, error)
}

// given is a schema that was given, as it is registered.
type given struct {
	declared

	schema sr.Schema
}

// parse reads the text of a schema of the writer's format, with the texts that it refers to.
func (w *Writer) parse(text string, references map[string]string) (declared, error) {
	switch kinds[w.format] {
	case sr.TypeJSON:
		return jsonschema.Parse(text, references, w.json)
	case sr.TypeProtobuf:
		return protobuf.Parse(text, references, w.message, w.proto)
	}
	d, err := avro.Parse(text, slices.Collect(maps.Values(references))...)
	if err == nil {
		d.Options = w.avro
	}
	return d, err
}

// readFile reads the schema to write. One with references is complete when the registry has
// answered with these.
func (w *Writer) readFile() error {
	key := "format." + w.side + ".schema.file"
	if err := secret.CheckPath(w.schemaFile); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	text, err := os.ReadFile(w.schemaFile)
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	w.file.schema = sr.Schema{Schema: string(text), Type: kinds[w.format]}
	for _, text := range w.references {
		r, err := router.ParseReference(text)
		if err != nil {
			return fmt.Errorf("format.%s.schema.references: %w", w.side, err)
		}
		w.file.schema.References = append(w.file.schema.References,
			sr.SchemaReference{Name: r.Name, Subject: r.Subject, Version: r.Version})
	}
	if len(w.references) > 0 {
		return nil
	}
	if w.file.declared, err = w.parse(string(text), nil); err != nil {
		return fmt.Errorf("%s: %s: %w", key, w.schemaFile, err)
	}
	return nil
}

// fromFile writes by the schema of a file. w.mu is held.
func (w *Writer) fromFile(topic string, s *connect.Schema) (*prepared, error) {
	if w.file.declared == nil {
		texts, err := w.server.References(w.file.schema.References)
		if err != nil {
			return nil, err
		}
		d, err := w.parse(w.file.schema.Schema, texts)
		if err != nil {
			return nil, &advised{connect.ErrRegistryHalt, fmt.Sprintf("format.%s.schema.file: %s: %v",
				w.side, w.schemaFile, err), "correct the file, or its references"}
		}
		w.file.declared = d
	}
	subject, err := w.subject(topic, w.file.Record())
	if err != nil {
		return nil, err
	}
	header, err := w.server.header(subject, w.file.schema, w.usage)
	return &prepared{s, by(w.file, s), header, sizeOf(s)}, err
}

// parsedSubjects bounds how many subjects have a parsed schema: their names come from rows.
const parsedSubjects = 1024

// fromLatest writes by the latest version of a topic's subject. w.mu is held.
func (w *Writer) fromLatest(topic string, s *connect.Schema) (*prepared, error) {
	record := ""
	if !w.byTopic() { // the name that the converter would give it
		inferred, _, err := w.infer(s)
		if err != nil {
			return nil, err
		}
		record = inferred.Record()
	}
	subject, err := w.subject(topic, record)
	if err != nil {
		return nil, err
	}
	has, err := w.server.latest(subject)
	if err != nil {
		return nil, err
	}
	unfit := func(format string, args ...any) error {
		return connect.Unwritable("set format."+w.side+".use.latest.version to false",
			"version %d of subject %s "+format, append([]any{has.number, subject}, args...)...)
	}
	if has.schema.Type != kinds[w.format] {
		return nil, unfit("is a schema of type %s, and format.%s is %q", has.schema.Type, w.side,
			w.format)
	}
	d := w.parsed[subject]
	if d == nil {
		texts, err := w.server.References(has.schema.References)
		if err != nil {
			return nil, err
		}
		if d, err = w.parse(has.schema.Schema, texts); err != nil {
			return nil, unfit("cannot be used: %w", err)
		}
		if len(w.parsed) == parsedSubjects {
			clear(w.parsed)
		}
		w.parsed[subject] = d
	}
	return &prepared{s, by(d, s), has.header, sizeOf(s)}, nil
}

// memberSize is about what a member of a Connect schema takes beside its name, in bytes.
const memberSize = 200

// sizeOf estimates the memory of a Connect schema, in bytes. That of an expanded document has all
// members of the document.
func sizeOf(s *connect.Schema) (size int) {
	if s == nil {
		return 0
	}
	if s.Items != nil {
		size = memberSize + sizeOf(s.Items)
	}
	for _, f := range s.Fields {
		size += memberSize + len(f.Name) + sizeOf(f.Schema)
	}
	return size
}

// by writes values of a Connect schema by a declared one: documents by their members.
func by(d declared, s *connect.Schema) func(dst []byte, v any) ([]byte, error) {
	if s != nil && s.Name == "io.debezium.data.Json" {
		return func(dst []byte, v any) ([]byte, error) {
			text, given := v.(connect.Text)
			if !given { // of json_schema; the others have a record without a value
				text = connect.Text("null")
			}
			return d.AppendJSON(dst, text)
		}
	}
	return func(dst []byte, v any) ([]byte, error) { return d.Append(dst, s, v) }
}

// sameSchema compares schemas by what a reader needs of them: a registry may write them in another
// order, or without docs. References are the texts that both refer to.
func sameSchema(a, b sr.Schema, references map[string]string) bool {
	switch {
	case a.Type != b.Type || !sameReferences(a.References, b.References):
		return false
	case a.Schema == b.Schema:
		return true
	case a.Type == sr.TypeProtobuf:
		return protobuf.Equal(a.Schema, b.Schema, references)
	case a.Type == sr.TypeJSON:
		var ours, theirs any
		return json.Unmarshal([]byte(a.Schema), &ours) == nil &&
			json.Unmarshal([]byte(b.Schema), &theirs) == nil && reflect.DeepEqual(ours, theirs)
	}
	texts := slices.Collect(maps.Values(references))
	ours, err := avro.Parse(a.Schema, texts...)
	if err != nil {
		return false
	}
	theirs, err := avro.Parse(b.Schema, texts...)
	return err == nil && ours.Equal(theirs)
}

// sameReferences compares references in any order.
func sameReferences(a, b []sr.SchemaReference) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(r sr.SchemaReference) bool {
		return !slices.Contains(b, r)
	})
}
