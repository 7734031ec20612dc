package router

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/postrider/postrider/router/connect"
	"github.com/postrider/postrider/router/javaregex"
)

// word is an option that takes one of a few words, in any case of letters.
type word struct {
	key     string
	value   *string
	allowed string // with commas between them
}

func (c *Config) words() []word {
	return []word{
		{"table.op.invalid.behavior", &c.OpInvalidBehavior, "warn, error, fatal"},
		{"table.field.additional.missing", &c.AdditionalMissing, "error, ignore"},
		{"table.json.payload.null.behavior", &c.NullBehavior, "ignore, optional_bytes"},
		{"table.json.payload.empty.array.behavior", &c.EmptyArrayBehavior, "ignore, optional_string"},
		{"field.name.adjustment.mode", &c.FieldNameAdjustment, "none, avro, avro_unicode"},
		{"decimal.handling.mode", &c.DecimalHandling, "precise, string, double"},
		{"binary.handling.mode", &c.BinaryHandling, "bytes, base64, base64-url-safe, hex"},
		{"time.precision.mode", &c.TimePrecision, "adaptive, adaptive_time_microseconds, connect, " +
			"isostring, microseconds, nanoseconds"},
		{"interval.handling.mode", &c.IntervalHandling, "numeric, string"},
		{"hstore.handling.mode", &c.HstoreHandling, "json, map"},
		{"topic_case", &c.TopicCase, "none, lower, kebab"},
		{"null_key", &c.NullKey, "refuse, publish"},
	}
}

// faults collects what is wrong with a section.
type faults struct {
	section string
	errs    []error
}

func (f *faults) add(format string, args ...any) {
	f.errs = append(f.errs, fmt.Errorf(f.section+format, args...))
}

func (f *faults) oneOf(key, value, allowed string) {
	if !slices.Contains(strings.Split(allowed, ", "), value) {
		f.add("%s = %q: must be one of %s", key, value, allowed)
	}
}

// Validate returns every error of the configuration, joined; each names its key, the value and
// what is allowed.
func (c Config) Validate() error {
	f := faults{section: "router."}
	for _, w := range c.words() {
		if !slices.Contains(strings.Split(w.allowed, ", "), normal(*w.value)) {
			f.add("%s = %q: must be one of %s", w.key, *w.value, w.allowed)
		}
	}
	for _, o := range [...]struct{ key, value, example string }{
		{"table.field.event.id", c.FieldID, `a column, as "id"`},
		{"table.field.event.payload", c.FieldPayload, `a column, as "payload"`},
		{"topic.prefix", c.TopicPrefix, `a name, as "orders"`},
		{"header_id", c.HeaderID, `the name of a header, as "id"`},
	} {
		if strings.TrimSpace(o.value) == "" {
			f.add("%s is empty: must be %s", o.key, o.example)
		}
	}
	if _, err := parsePlacements(c.AdditionalPlacement); err != nil {
		f.add("table.fields.additional.placement = %q: %w", c.AdditionalPlacement, err)
	}
	if strings.HasPrefix(c.HeaderID, ownPrefix) {
		f.add("header_id = %q: names of headers that begin with %s are the relay's; must be another, "+
			"as \"id\"", c.HeaderID, ownPrefix)
	}
	if p, err := javaregex.Compile(c.TopicRegex); err != nil {
		f.add("route.topic.regex = %q: %w; must be a Java regular expression", c.TopicRegex, err)
	} else if _, err := javaregex.ParseReplacement(c.TopicReplacement, p); err != nil &&
		strings.TrimSpace(c.TopicRegex) != "" {
		f.add("route.topic.replacement = %q: %w", c.TopicReplacement, err)
	}
	for _, pattern := range c.TopicAllow {
		if problem := allowProblem(pattern); problem != "" {
			f.add(`topic_allow: %q %s; must be a topic, or a pattern as "outbox.event.*"`, pattern,
				problem)
		}
	}
	if strings.TrimSpace(c.TopicReplacement) == "" {
		f.add("route.topic.replacement is empty: every topic name would be empty; must be a text as " +
			`"outbox.event.${routedByValue}"`)
	}
	return errors.Join(f.errs...)
}

// normal is a word as Debezium reads it.
func normal(word string) string { return strings.ToLower(strings.TrimSpace(word)) }

// Warnings are sentences about settings that are accepted but do not do what their user may
// expect.
func (c Config) Warnings() []string {
	var out []string
	if c.AdditionalErrorOnMissing != nil {
		out = append(out, "router.table.fields.additional.error.on.missing is the retired name "+
			"of table.field.additional.missing: "+
			"true is \"error\", false is \"ignore\"; it is still followed here")
	}
	if c.FieldSchemaVersion != "" {
		placements, _ := parsePlacements(c.AdditionalPlacement)
		if !slices.ContainsFunc(placements, func(p placement) bool { return p.to == toEnvelope }) {
			out = append(out, "router.table.field.event.schema.version has no effect without a "+
				"column placed in the envelope")
		}
	}
	if strings.TrimSpace(c.TopicRegex) == "" {
		out = append(out, "router.route.topic.regex is empty: it matches nothing, so that the "+
			"routed value is the topic")
	}
	if c.FieldNameAdjustment == "avro" || c.FieldNameAdjustment == "avro_unicode" {
		out = append(out, "router.field.name.adjustment.mode: as in Debezium a member whose "+
			"name is changed loses its value")
	}
	return out
}

// normalised has the case-insensitive words in lower case and the retired option carried over.
func (c Config) normalised() Config {
	// Kafka Connect trims what it reads.
	for _, value := range []*string{&c.TopicPrefix, &c.FieldID, &c.FieldKey, &c.FieldType,
		&c.FieldPayload, &c.FieldTimestamp, &c.FieldSchemaVersion, &c.RouteByField,
		&c.TopicRegex, &c.TopicReplacement, &c.TracingField} {
		*value = strings.TrimSpace(*value)
	}
	for _, w := range c.words() {
		*w.value = normal(*w.value)
	}
	if c.AdditionalErrorOnMissing != nil {
		c.AdditionalMissing = "ignore"
		if *c.AdditionalErrorOnMissing {
			c.AdditionalMissing = "error"
		}
	}
	return c
}

// Strategies are how the subject of a schema is named, as Confluent's TopicNameStrategy and the
// others.
const Strategies = "topic, record, topic_record"

// Registered reports whether keys or values are written for a schema registry.
func (f Format) Registered() (key, value bool) {
	return slices.Contains(connect.RegistryFormats, f.Key),
		slices.Contains(connect.RegistryFormats, f.Value)
}

// Reference is a schema in the registry that another one refers to.
type Reference struct {
	Name    string // as the other one has it
	Subject string
	Version int
}

// ParseReference reads "NAME=SUBJECT:VERSION".
func ParseReference(text string) (r Reference, err error) {
	name, version, _ := strings.Cut(text, "=")
	r.Name = name
	if colon := strings.LastIndexByte(version, ':'); colon > 0 {
		r.Subject = version[:colon]
		r.Version, _ = strconv.Atoi(version[colon+1:])
	}
	if r.Name == "" || r.Subject == "" || r.Version < 1 {
		return r, fmt.Errorf("%q is not NAME=SUBJECT:VERSION, like "+
			`"customer.proto=customers-value:1"`, text)
	}
	return r, nil
}

// declared reports errors about a schema that is given.
func (f Format) declared(side, format string, latest bool, file, message string,
	references []string, bad *faults) {
	if latest && file != "" {
		bad.add("%s.schema.file and %[1]s.use.latest.version are two schemas: remove one", side)
	}
	given := latest || file != ""
	if given && !slices.Contains([]string{"avro", "json_schema", "protobuf"}, format) {
		bad.add("%s.schema.file and %[1]s.use.latest.version need format.%[1]s = \"avro\", "+
			"\"json_schema\" or \"protobuf\"", side)
	}
	if message != "" && (!given || format != "protobuf") {
		bad.add("%s.schema.message needs format.%[1]s = \"protobuf\" with %[1]s.schema.file or "+
			"%[1]s.use.latest.version", side)
	}
	if len(references) > 0 && file == "" {
		bad.add("%s.schema.references needs %[1]s.schema.file: a schema in the registry has its "+
			"references there", side)
	}
	for _, text := range references {
		if _, err := ParseReference(text); err != nil {
			bad.add("%s.schema.references: %v", side, err)
		}
	}
}

// Validate returns every error of the formats, joined; each names its key.
func (f Format) Validate() error {
	bad := faults{section: "format."}
	formats := slices.Concat([]string{"string", "json", "json+schema", "binary"},
		connect.RegistryFormats, slices.Sorted(maps.Keys(connect.NumberKinds)))
	bad.oneOf("key", f.Key, strings.Join(formats, ", "))
	bad.oneOf("value", f.Value, strings.Join(formats, ", "))
	bad.oneOf("headers", f.Headers, "simple, string, json, json+schema")
	bad.oneOf("cloudevents", cmp.Or(f.CloudEvents, "none"), "none, binary, structured")
	bad.oneOf("key.subject.name.strategy", cmp.Or(f.KeyStrategy, "topic"), Strategies)
	bad.oneOf("value.subject.name.strategy", cmp.Or(f.ValueStrategy, "topic"), Strategies)
	f.declared("key", f.Key, f.KeyLatest, f.KeySchemaFile, f.KeySchemaMessage,
		f.KeySchemaReferences, &bad)
	f.declared("value", f.Value, f.ValueLatest, f.ValueSchemaFile, f.ValueSchemaMessage,
		f.ValueSchemaReferences, &bad)
	for side, two := range map[string]bool{"key": f.KeyOptional && f.KeyWrappers,
		"value": f.ValueOptional && f.ValueWrappers} {
		if two {
			bad.add("%s.optional.for.nullables and %[1]s.wrapper.for.nullables are two ways for one "+
				"thing: remove one", side)
		}
	}
	if key, value := f.Registered(); (key || value) && f.IsCloudEvents() {
		bad.add("cloudevents = %q has no place with values or keys for a schema registry",
			f.CloudEvents)
	}
	for side, c := range map[string]connect.Converter{"key": f.key(), "value": f.value()} {
		decimals := strings.ToUpper(cmp.Or(c.Decimals, "BASE64"))
		bad.oneOf(side+".decimal.format", decimals, "BASE64, NUMERIC")
		if c.Delegate != "" {
			bad.oneOf(side+".delegate", c.Delegate, "json, json+schema, string")
		}
		if _, err := connect.CharsetOf(c.Encoding); err != nil {
			bad.add("%s.encoding = %q: %w", side, c.Encoding, err)
		}
	}
	return errors.Join(bad.errs...)
}
