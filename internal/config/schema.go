package config

import (
	"encoding/json"
	"strings"
)

// schema is the part of JSON Schema that a configuration needs.
type schema struct {
	Dialect     string             `json:"$schema,omitempty"`
	Title       string             `json:"title,omitempty"`
	Description string             `json:"description,omitempty"`
	Type        any                `json:"type,omitempty"` // a string, or several
	Enum        []string           `json:"enum,omitempty"`
	Pattern     string             `json:"pattern,omitempty"`
	Items       *schema            `json:"items,omitempty"`
	MinItems    int                `json:"minItems,omitempty"`
	Default     any                `json:"default,omitempty"`
	Properties  map[string]*schema `json:"properties,omitempty"`
	OneOf       []*schema          `json:"oneOf,omitempty"`
	Additional  *bool              `json:"additionalProperties,omitempty"`
}

const (
	durationPattern = `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`
	sizePattern     = `^[0-9]+ ?(B|KiB|MiB|GiB|TiB)$`
)

var converters = []string{
	"string", "json", "json+schema", "binary", "short", "integer", "long", "float", "double",
	"boolean",
}

// accepted are the keys that take one of a few words. The packages check them; a test compares the
// two.
var accepted = map[string][]string{
	"router.table.op.invalid.behavior":               {"warn", "error", "fatal"},
	"router.table.field.additional.missing":          {"error", "ignore"},
	"router.table.json.payload.null.behavior":        {"ignore", "optional_bytes"},
	"router.table.json.payload.empty.array.behavior": {"ignore", "optional_string"},
	"router.field.name.adjustment.mode":              {"none", "avro", "avro_unicode"},
	"router.decimal.handling.mode":                   {"precise", "string", "double"},
	"router.binary.handling.mode":                    {"bytes", "base64", "base64-url-safe", "hex"},
	"router.time.precision.mode": {
		"adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds",
	},
	"router.interval.handling.mode": {"numeric", "string"},
	"router.hstore.handling.mode":   {"json", "map"},
	"router.topic_case":             {"none", "lower", "kebab"},
	"router.null_key":               {"refuse", "publish"},
	"format.key":                    converters,
	"format.value":                  converters,
	"format.key.decimal.format":     {"BASE64", "NUMERIC"},
	"format.key.delegate":           {"json", "json+schema", "string"},
	"format.value.decimal.format":   {"BASE64", "NUMERIC"},
	"format.value.delegate":         {"json", "json+schema", "string"},
	"format.headers":                {"simple", "string", "json", "json+schema"},
	"sink.kind":                     {SinkKafka, SinkStdout},
	"sink.kafka.compression":        {"none", "gzip", "snappy", "lz4", "zstd"},
	"sink.kafka.sasl.mechanism":     {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"},
	"log.level":                     LogLevels,
	"log.format":                    LogFormats,
}

// Accepted lists the words that a key takes; nil if it takes other text.
func Accepted(key string) []string { return accepted[key] }

// Schema is the JSON Schema (draft 2020-12) of the configuration file, for editors. Its
// descriptions are the comments of config.example.toml.
func Schema(example string) ([]byte, error) {
	c := Default()
	descriptions := Descriptions(example)
	_, sections := readExample(example)
	root := section("")
	root.Dialect = "https://json-schema.org/draft/2020-12/schema"
	root.Title = "postrider.toml"
	ix := newIndex(&c)
	for _, name := range ix.names {
		r := ix.refs[name]
		s := r.schema()
		s.Description = descriptions[r.key.name]
		if r.file {
			s.Description = "File with the value of " + r.leaf + "; read again at each connection."
		}
		parentOf := root
		for part := range strings.SplitSeq(r.section, ".") {
			parentOf = parentOf.property(part)
		}
		if parentOf.Description == "" {
			parentOf.Description = sections[r.section]
		}
		leaf := strings.TrimPrefix(r.name(), r.section+".")
		parentOf.Properties[leaf] = s
		parentOf.dotted(leaf, s)
	}
	rule := root.Properties[routerSection]
	root.Properties[routerSection] = &schema{
		Description: rule.Description,
		OneOf: []*schema{rule, {
			Type: "array", Items: rule, MinItems: 1,
			Description: "One [[router]] for each set of rules, with the tables that it is for.",
		}},
	}
	return json.MarshalIndent(root, "", "  ")
}

func section(description string) *schema {
	no := false
	return &schema{
		Type: "object", Description: description, Properties: map[string]*schema{}, Additional: &no,
	}
}

func (s *schema) property(name string) *schema {
	if s.Properties[name] == nil {
		s.Properties[name] = section("")
	}
	return s.Properties[name]
}

// dotted adds a leaf with dots a second time, as the nested tables that TOML makes of it without
// quotes. It does not where the first part is a key itself (format.key): there the quotes are
// needed.
func (s *schema) dotted(leaf string, value *schema) {
	parts := strings.Split(leaf, ".")
	if first := s.Properties[parts[0]]; len(parts) == 1 || first != nil && first.Properties == nil {
		return
	}
	for _, part := range parts[:len(parts)-1] {
		s = s.property(part)
	}
	s.Properties[parts[len(parts)-1]] = value
}

func (r ref) schema() *schema {
	s := &schema{Type: "string", Enum: Accepted(r.name())}
	switch r.kind {
	case boolean, optionalBoolean:
		s.Type = "boolean"
	case integer:
		s.Type = "integer"
	case float:
		s.Type = "number"
	case size:
		s.Type, s.Pattern = []string{"string", "integer"}, sizePattern
	case duration:
		s.Pattern = durationPattern
	case list:
		s.Type, s.Items = "array", &schema{Type: "string"}
	}
	if !r.file {
		s.Default = r.value()
	}
	return s
}
