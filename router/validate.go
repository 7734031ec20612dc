package router

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/postrider/postrider/router/connect"
	"github.com/postrider/postrider/router/javaregex"
)

// Validate returns every error of the configuration, joined; each names its key, the value and
// what is allowed.
func (c Config) Validate() error {
	var errs []error
	oneOf := func(key, value string, allowed ...string) {
		if !slices.Contains(allowed, strings.ToLower(strings.TrimSpace(value))) {
			errs = append(errs, fmt.Errorf("router.%s = %q: must be one of %s", key, value,
				strings.Join(allowed, ", ")))
		}
	}
	notEmpty := func(key, value, example string) {
		if strings.TrimSpace(value) == "" {
			errs = append(errs, fmt.Errorf("router.%s is empty: must be %s", key, example))
		}
	}
	oneOf("table.op.invalid.behavior", c.OpInvalidBehavior, "warn", "error", "fatal")
	notEmpty("table.field.event.id", c.FieldID, `a column, as "id"`)
	notEmpty("table.field.event.payload", c.FieldPayload, `a column, as "payload"`)
	if _, err := parsePlacements(c.AdditionalPlacement); err != nil {
		errs = append(errs, fmt.Errorf("router.table.fields.additional.placement = %q: %w",
			c.AdditionalPlacement, err))
	}
	oneOf("table.field.additional.missing", c.AdditionalMissing, "error", "ignore")
	oneOf("table.json.payload.null.behavior", c.NullBehavior, "ignore", "optional_bytes")
	oneOf("table.json.payload.empty.array.behavior", c.EmptyArrayBehavior, "ignore",
		"optional_string")
	oneOf("field.name.adjustment.mode", c.FieldNameAdjustment, "none", "avro", "avro_unicode")
	oneOf("decimal.handling.mode", c.DecimalHandling, "precise", "string", "double")
	oneOf("binary.handling.mode", c.BinaryHandling, "bytes", "base64", "base64-url-safe", "hex")
	oneOf("time.precision.mode", c.TimePrecision,
		"adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds",
		"nanoseconds")
	oneOf("interval.handling.mode", c.IntervalHandling, "numeric", "string")
	oneOf("hstore.handling.mode", c.HstoreHandling, "json", "map")
	oneOf("topic_case", c.TopicCase, "none", "lower", "kebab")
	oneOf("null_key", c.NullKey, "refuse", "publish")
	notEmpty("topic.prefix", c.TopicPrefix, `a name, as "orders"`)
	notEmpty("header_id", c.HeaderID, `the name of a header, as "id"`)
	if strings.HasPrefix(c.HeaderID, ownPrefix) {
		errs = append(errs, fmt.Errorf("router.header_id = %q: names of headers that begin with "+
			"%s are the relay's; must be another, as \"id\"", c.HeaderID, ownPrefix))
	}

	if p, err := javaregex.Compile(c.TopicRegex); err != nil {
		errs = append(errs, fmt.Errorf(
			"router.route.topic.regex = %q: %w; must be a Java regular expression", c.TopicRegex,
			err))
	} else if _, err := javaregex.ParseReplacement(c.TopicReplacement, p); err != nil &&
		strings.TrimSpace(c.TopicRegex) != "" {
		errs = append(errs, fmt.Errorf("router.route.topic.replacement = %q: %w",
			c.TopicReplacement, err))
	}
	for _, pattern := range c.TopicAllow {
		if problem := allowProblem(pattern); problem != "" {
			errs = append(errs, fmt.Errorf(
				`router.topic_allow: %q %s; must be a topic, or a pattern as "outbox.event.*"`,
				pattern, problem))
		}
	}
	if c.TopicReplacement == "" {
		errs = append(errs, errors.New(
			`router.route.topic.replacement is empty: every topic name would be empty; must be a text as "outbox.event.${routedByValue}"`))
	}
	return errors.Join(errs...)
}

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
	for _, value := range []*string{&c.TopicPrefix, &c.FieldID, &c.FieldKey, &c.FieldPayload,
		&c.FieldTimestamp, &c.FieldSchemaVersion, &c.RouteByField,
		&c.TopicRegex, &c.TopicReplacement, &c.TracingField} {
		*value = strings.TrimSpace(*value)
	}
	for _, word := range []*string{&c.OpInvalidBehavior, &c.AdditionalMissing, &c.NullBehavior,
		&c.EmptyArrayBehavior, &c.FieldNameAdjustment,
		&c.DecimalHandling, &c.BinaryHandling, &c.TimePrecision, &c.IntervalHandling,
		&c.HstoreHandling, &c.TopicCase, &c.NullKey} {
		*word = strings.ToLower(strings.TrimSpace(*word))
	}
	if c.AdditionalErrorOnMissing != nil {
		c.AdditionalMissing = "ignore"
		if *c.AdditionalErrorOnMissing {
			c.AdditionalMissing = "error"
		}
	}
	return c
}

// Validate returns every error of the formats, joined; each names its key.
func (f Format) Validate() error {
	var errs []error
	oneOf := func(key, value string, allowed ...string) {
		if !slices.Contains(allowed, value) {
			errs = append(errs, fmt.Errorf("format.%s = %q: must be one of %s", key, value,
				strings.Join(allowed, ", ")))
		}
	}
	formats := append([]string{"string", "json", "json+schema", "binary"},
		slices.Sorted(maps.Keys(connect.NumberKinds))...)
	oneOf("key", f.Key, formats...)
	oneOf("value", f.Value, formats...)
	oneOf("headers", f.Headers, "simple", "string", "json", "json+schema")
	for side, c := range map[string]connect.Converter{"key": f.key(), "value": f.value()} {
		oneOf(side+".decimal.format", strings.ToUpper(cmp.Or(c.Decimals, "BASE64")), "BASE64",
			"NUMERIC")
		oneOf(side+".delegate", c.Delegate, "", "json", "json+schema", "string")
		if _, err := connect.CharsetOf(c.Encoding); err != nil {
			errs = append(errs, fmt.Errorf("format.%s.encoding = %q: %w", side, c.Encoding, err))
		}
	}
	return errors.Join(errs...)
}
