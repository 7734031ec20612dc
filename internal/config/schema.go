package config

import (
	"encoding/json"
	"regexp"
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

var converters = []string{
	"string", "json", "json+schema", "binary", "avro", "json_schema", "protobuf", "framed", "short",
	"integer", "long", "float", "double", "boolean",
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
	"router.interval.handling.mode":      {"numeric", "string"},
	"router.hstore.handling.mode":        {"json", "map"},
	"router.topic_case":                  {"none", "lower", "kebab"},
	"router.null_key":                    {"refuse", "publish"},
	"format.key":                         converters,
	"format.value":                       converters,
	"format.key.decimal.format":          {"BASE64", "NUMERIC"},
	"format.key.delegate":                {"json", "json+schema", "string"},
	"format.value.decimal.format":        {"BASE64", "NUMERIC"},
	"format.value.delegate":              {"json", "json+schema", "string"},
	"format.key.subject.name.strategy":   {"topic", "record", "topic_record"},
	"format.value.subject.name.strategy": {"topic", "record", "topic_record"},
	"registry.on_unavailable":            {"wait", "halt"},
	"registry.framing":                   {"confluent", "apicurio", "glue"},
	"registry.oauth.grant":               {"client_credentials", "jwt_bearer"},
	"format.headers":                     {"simple", "string", "json", "json+schema"},
	"format.cloudevents":                 {"none", "binary", "structured"},
	"postgres.login": {
		"password", "aws_rds_iam", "google_cloud_sql_iam", "azure_entra",
	},
	"sink.kind":              {SinkKafka, SinkStdout},
	"sink.kafka.compression": {"none", "gzip", "snappy", "lz4", "zstd"},
	"sink.kafka.sasl.mechanism": {
		"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI",
	},
	"sink.kafka.sasl.provider": {
		"oidc", "aws_msk_iam", "azure_event_hubs", "google_managed_kafka",
	},
	"sink.kafka.sasl.oauth.grant": {"client_credentials", "jwt_bearer"},
	"log.level":                   LogLevels,
	"log.format":                  LogFormats,
}

// Accepted lists the words that a key takes; nil if it takes other text.
func Accepted(key string) []string { return accepted[key] }

// Schema is the JSON Schema (draft 2020-12) of the configuration file, for editors. Its
// descriptions are the comments of config.example.toml.
func Schema(example string) ([]byte, error) {
	c := Default()
	descriptions := Descriptions(example)
	_, sections := readExample(example)
	root := newSection()
	root.Dialect = "https://json-schema.org/draft/2020-12/schema"
	root.Title = "postrider.toml"
	ix := newIndex(&c)
	for _, name := range ix.names {
		k := ix.byName[name]
		s := k.schema()
		s.Description = descriptions[k.name]
		if k.kind == secretFile {
			s.Description = "File with the value of " + strings.TrimSuffix(k.leaf, fileSuffix) +
				"; read again at each connection."
		}
		parentOf := root
		for part := range strings.SplitSeq(k.section, ".") {
			parentOf = parentOf.property(part)
		}
		if parentOf.Description == "" {
			parentOf.Description = sections[k.section]
		}
		parentOf.Properties[k.leaf] = s
		parentOf.dotted(k.leaf, s)
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

func newSection() *schema {
	return &schema{Type: "object", Properties: map[string]*schema{}, Additional: new(false)}
}

func (s *schema) property(name string) *schema {
	if s.Properties[name] == nil {
		s.Properties[name] = newSection()
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

func (k key) schema() *schema {
	s := &schema{Type: kinds[k.kind].schemaType, Pattern: kinds[k.kind].pattern,
		Enum: Accepted(k.name)}
	switch k.kind {
	case size:
		s.Type = []string{"string", "integer"}
	case list:
		s.Items = &schema{Type: "string"}
	case topicRates:
		s.Items = newSection()
		s.Items.Properties["topics"] = &schema{Type: "array", Items: &schema{Type: "string"},
			MinItems: 1}
		s.Items.Properties["max_rate"] = &schema{Type: "string", Pattern: kinds[rateText].pattern}
	}
	if k.kind != secretFile {
		s.Default = k.value()
	}
	return s
}

// exampleKey matches a line of config.example.toml that shows a key. A # directly before the name
// marks a key without a default: the value is a sample.
var exampleKey = regexp.MustCompile(`^(#?)("?)([A-Za-z0-9_.-]+)"? = (.+)$`)

var exampleSection = regexp.MustCompile(`^\[([a-z._]+)\]`)

// exampleEntry is a key as config.example.toml shows it.
type exampleEntry struct {
	name    string // in full
	comment string // the lines above it, joined
	sample  bool   // not the default
	line    int
}

// readExample lists the keys, and the comments above sections by their names.
func readExample(example string) (keys []exampleEntry, sections map[string]string) {
	sections = map[string]string{}
	section := ""
	var comment []string
	for i, line := range strings.Split(example, "\n") {
		words, isComment := strings.CutPrefix(line, "#")
		words = strings.TrimSpace(words)
		heading, key := exampleSection.FindStringSubmatch(line), exampleKey.FindStringSubmatch(line)
		switch {
		case heading != nil:
			section = heading[1]
			sections[section] = strings.Join(comment, " ")
		case key != nil:
			keys = append(keys, exampleEntry{
				name: section + "." + key[3], comment: strings.Join(comment, " "),
				sample: key[1] == "#", line: i + 1,
			})
		case isComment && words != "":
			comment = append(comment, words)
			continue
		}
		comment = nil
	}
	return keys, sections
}

// Descriptions are the comments of config.example.toml, by full name of the key.
func Descriptions(example string) map[string]string {
	keys, _ := readExample(example)
	descriptions := make(map[string]string, len(keys))
	for _, k := range keys {
		descriptions[k.name] = k.comment
	}
	return descriptions
}
