package avro

import "github.com/postrider/postrider/router/connect"

// Options are those options of AvroConverter that what Debezium makes of an outbox depends on. The
// zero value differs from AvroConverter's defaults in MetaData alone.
type Options struct {
	// Enhanced is enhanced.avro.schema.support: a text with the symbols of an enum among its
	// parameters is an enum.
	Enhanced bool
	// MetaData is connect.meta.data, true by default in AvroConverter: schemas carry what Avro has
	// no place for, such as connect.name and connect.version.
	MetaData bool
	// Scrub is scrub.invalid.names: characters that Avro refuses in names are replaced.
	Scrub bool
	// KeepNulls is ignore.default.for.nullables: a member that is null stays null, although it has
	// a default.
	KeepNulls bool
}

// Converter makes Avro schemas of Connect schemas. It has no state: several goroutines may use
// one.
type Converter struct{ Options }

// New makes a Converter.
func New(o Options) *Converter { return &Converter{o} }

// Schema is a Connect schema with the Avro schema that AvroConverter makes of it. It is immutable.
type Schema struct {
	options Options
	source  *connect.Schema
	text    string
	record  string
}

// Schema makes the Avro schema of a Connect schema. Schemas that are equal have the same text. It
// keeps a reference to s. Errors are connect.Unwritable's: a name that Avro refuses, or one name
// for two different structs.
func (c *Converter) Schema(s *connect.Schema) (*Schema, error) {
	if s == nil {
		return &Schema{c.Options, nil, anything, anythingName}, nil
	}
	b := newBuilder(c.Options)
	if err := b.schema(s); err != nil {
		return nil, err
	}
	out := &Schema{c.Options, s, string(b.out), ""}
	if s.Kind == connect.KindStruct && !s.Optional {
		out.record = b.first
	}
	return out, nil
}

// Text is the schema in JSON, as it is registered.
func (s *Schema) Text() string { return s.text }

// Record is the full name of the record at the top; empty where the top is no record. A struct
// that is optional is a union, which has no name.
func (s *Schema) Record() string { return s.record }
