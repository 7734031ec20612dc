package router

import (
	"slices"

	"github.com/postrider/postrider/router/connect"
)

// Config holds the options of Debezium's Outbox Event Router under Debezium's own names, and what
// postrider adds to them. The toml tags are the dotted option names, literally. The zero value is
// not valid: start from DefaultConfig.
type Config struct {
	// Debezium's options, with Debezium's defaults. A column name that is empty is found in the
	// table: see Check.

	// warn | error | fatal: what to do with an updated row, of a publication that has updates
	OpInvalidBehavior string `toml:"table.op.invalid.behavior"`
	FieldID           string `toml:"table.field.event.id"` // column of the event id
	// column of the record key; empty: aggregate_id or aggregateid
	FieldKey string `toml:"table.field.event.key"`
	// column of the event type; empty: event_type or type; used by format.cloudevents alone
	FieldType    string `toml:"table.field.event.type"`
	FieldPayload string `toml:"table.field.event.payload"` // column of the record value
	// column of the record time; empty: the commit time
	FieldTimestamp string `toml:"table.field.event.timestamp"`
	// column of the version of the envelope's schema; empty: none
	FieldSchemaVersion string `toml:"table.field.event.schema.version"`
	// list of column:placement[:alias]
	AdditionalPlacement string `toml:"table.fields.additional.placement"`
	AdditionalMissing   string `toml:"table.field.additional.missing"` // error | ignore
	// retired name of the above; nil: not given
	AdditionalErrorOnMissing *bool `toml:"table.fields.additional.error.on.missing"`
	// column that is routed by; empty: aggregate_type or aggregatetype
	RouteByField string `toml:"route.by.field"`
	// a Java regular expression that has to match the whole routed value
	TopicRegex string `toml:"route.topic.regex"`
	// a Java replacement: $1, ${name}, backslash escapes
	TopicReplacement        string `toml:"route.topic.replacement"`
	TombstoneOnEmptyPayload bool   `toml:"route.tombstone.on.empty.payload"`
	ExpandJSONPayload       bool   `toml:"table.expand.json.payload"`
	// ignore | optional_bytes
	NullBehavior string `toml:"table.json.payload.null.behavior"`
	// ignore | optional_string
	EmptyArrayBehavior  string `toml:"table.json.payload.empty.array.behavior"`
	FieldNameAdjustment string `toml:"field.name.adjustment.mode"` // none | avro | avro_unicode
	// column with a span context in Java properties format
	TracingField       string `toml:"tracing.span.context.field"`
	TracingOperation   string `toml:"tracing.operation.name"`
	TracingContextOnly bool   `toml:"tracing.with.context.field.only"`

	// Options of Debezium's connector that change what the router sees, with their defaults.

	DecimalHandling string `toml:"decimal.handling.mode"` // precise | string | double
	BinaryHandling  string `toml:"binary.handling.mode"`  // bytes | base64 | base64-url-safe | hex
	// adaptive | adaptive_time_microseconds | connect | isostring | microseconds | nanoseconds
	TimePrecision    string `toml:"time.precision.mode"`
	IntervalHandling string `toml:"interval.handling.mode"` // numeric | string
	HstoreHandling   string `toml:"hstore.handling.mode"`   // json | map
	// columns of unknown type as bytes instead of left out
	IncludeUnknown bool `toml:"include.unknown.datatypes"`
	// of columns of type money, with decimal.handling.mode=precise
	MoneyDigits int `toml:"money.fraction.digits"`
	// in the place of a value that an update does not bring, of a row whose primary key changed
	Unavailable string `toml:"unavailable.value.placeholder"`
	TopicPrefix string `toml:"topic.prefix"` // the first part of the names of schemas
	// headers __debezium.context.*, before all others; Debezium's default is true
	ContextHeaders bool `toml:"extended.headers.enabled"`
	// members of logical messages that are null are columns; of the transform
	// DecodeLogicalDecodingMessageContent
	MessageNulls bool `toml:"fields.null.include"`

	// postrider's additions: nothing of this kind exists in Debezium.

	// outbox tables that these options are for, of those in replication.tables; empty: see Divide
	Tables []string `toml:"tables"`
	// prefixes of logical messages, of those in replication.messages; empty: see Divide
	Messages []string `toml:"messages"`
	HeaderID string   `toml:"header_id"` // name of the header that carries the id; default "id"
	// a json or jsonb column with one object: its members become headers, after all others
	HeadersColumn string `toml:"headers_column"`
	// none | lower | kebab (ORDER_CREATED and OrderCreated to order-created), applied to the
	// routed value before the regex
	TopicCase string `toml:"topic_case"`
	// topics that events may go to, with * for any characters; empty: all but those of Kafka and
	// of the relay itself
	TopicAllow []string `toml:"topic_allow"`
	// refuse | publish: what to do with a row whose key is NULL
	NullKey string `toml:"null_key"`
	// a column's default in the place of NULL, as Debezium does
	NullDefaults bool `toml:"null_defaults"`
	// headers postrider.lsn and postrider.index: the event position
	PositionHeaders bool `toml:"position_headers"`
	// span context to headers, with a new span; Debezium does so where its tracing library is
	// installed
	TracingHeaders bool `toml:"tracing_headers"`
	// format string prints bytes as Java does (java.nio.HeapByteBuffer[pos=0 lim=3 cap=3]); false:
	// the bytes themselves, Base64 inside of structs
	JavaText bool `toml:"java_text"`
	// an envelope's schema keeps the name of the first aggregate type, as in Debezium's cache
	FirstSchemaName bool `toml:"first_schema_name"`
	// types as Debezium takes them: timestamptz, date and numbers are no times of a record,
	// smallint and bigint no partitions, and a column of type name has no value
	StrictTypes bool `toml:"strict_types"`
}

// Format is how keys, values and headers are written to bytes, as Kafka Connect's converters do.
// Beside the names of key and value stand the options of their converters, under Connect's names
// for them.
type Format struct {
	// string | json | json+schema | binary | avro | json_schema | protobuf | framed | short |
	// integer | long | float | double | boolean
	Key     string `toml:"key"`
	Value   string `toml:"value"`   // the same
	Headers string `toml:"headers"` // simple | string | json | json+schema

	KeyDecimals string `toml:"key.decimal.format"` // of json: BASE64 | NUMERIC
	// of json: the default of a column in the place of NULL; see Config.NullDefaults, which does
	// so in every format
	KeyDefaults bool `toml:"key.replace.null.with.default"`
	// of string: UTF-8, UTF-16, UTF-32, or a character set with one byte for each character
	KeyEncoding string `toml:"key.encoding"`
	// of binary: the format of what is no bytes: json | json+schema | string; empty: an error
	KeyDelegate   string `toml:"key.delegate"`
	ValueDecimals string `toml:"value.decimal.format"`            // as for the key
	ValueDefaults bool   `toml:"value.replace.null.with.default"` // as for the key
	ValueEncoding string `toml:"value.encoding"`                  // as for the key
	ValueDelegate string `toml:"value.delegate"`                  // as for the key

	// of avro, json_schema, protobuf and framed: the options of Confluent's converters, under their
	// names

	KeyStrategy string `toml:"key.subject.name.strategy"` // topic | record | topic_record
	// a schema that the registry does not have yet is registered
	KeyAutoRegister bool `toml:"key.auto.register.schemas"`
	KeyNormalize    bool `toml:"key.normalize.schemas"` // the registry compares schemas by meaning
	// what is written is the latest version of the subject, or the schema in a file
	KeyLatest     bool   `toml:"key.use.latest.version"`
	KeySchemaFile string `toml:"key.schema.file"`
	// the schemas that the one in the file refers to: NAME=SUBJECT:VERSION
	KeySchemaReferences []string `toml:"key.schema.references"`
	// of protobuf: the full name of the message in the given schema; empty: its first one
	KeySchemaMessage string `toml:"key.schema.message"`
	// what is null stays null, although the column has a default
	KeyKeepNulls bool `toml:"key.ignore.default.for.nullables"`
	// of avro: an enum's text is an enum; schemas carry Connect's names and versions
	KeyEnhanced bool `toml:"key.enhanced.avro.schema.support"`
	KeyMetaData bool `toml:"key.connect.meta.data"`
	// of avro and protobuf: characters that they refuse in names are replaced
	KeyScrub bool `toml:"key.scrub.invalid.names"`
	// of protobuf: what may be null is optional, or a message such as google.protobuf.StringValue
	KeyOptional bool `toml:"key.optional.for.nullables"`
	KeyWrappers bool `toml:"key.wrapper.for.nullables"`
	// of json_schema: objects may have other members than those of the schema
	KeyOpenObjects        bool     `toml:"key.object.additional.properties"`
	ValueStrategy         string   `toml:"value.subject.name.strategy"` // as for the key, and all below
	ValueAutoRegister     bool     `toml:"value.auto.register.schemas"`
	ValueNormalize        bool     `toml:"value.normalize.schemas"`
	ValueLatest           bool     `toml:"value.use.latest.version"`
	ValueSchemaFile       string   `toml:"value.schema.file"`
	ValueSchemaReferences []string `toml:"value.schema.references"`
	ValueSchemaMessage    string   `toml:"value.schema.message"`
	ValueKeepNulls        bool     `toml:"value.ignore.default.for.nullables"`
	ValueEnhanced         bool     `toml:"value.enhanced.avro.schema.support"`
	ValueMetaData         bool     `toml:"value.connect.meta.data"`
	ValueScrub            bool     `toml:"value.scrub.invalid.names"`
	ValueOptional         bool     `toml:"value.optional.for.nullables"`
	ValueWrappers         bool     `toml:"value.wrapper.for.nullables"`
	ValueOpenObjects      bool     `toml:"value.object.additional.properties"`

	// postrider's additions.

	// none | binary | structured: records are CloudEvents 1.0, in that content mode. Columns placed
	// in the envelope become attributes.
	CloudEvents string `toml:"cloudevents"`
	// attribute source: a URI reference, with ${topic.prefix} and ${table} in it
	EventSource string `toml:"cloudevents.source"`
	// attribute datacontenttype of all events; empty: by the type of the payload
	EventContentType string `toml:"cloudevents.datacontenttype"`
}

func (f Format) key() connect.Converter {
	return connect.Converter{
		Format: f.Key, Decimals: f.KeyDecimals, Encoding: f.KeyEncoding,
		Delegate: f.KeyDelegate, Defaults: defaults(f.Key, f.KeyDefaults, f.KeyKeepNulls),
	}
}

func (f Format) value() connect.Converter {
	return connect.Converter{
		Format: f.Value, Decimals: f.ValueDecimals, Encoding: f.ValueEncoding,
		Delegate: f.ValueDelegate, Defaults: defaults(f.Value, f.ValueDefaults, f.ValueKeepNulls),
	}
}

// defaults reports whether a default takes the place of a null: Confluent's converters have an
// option of their own for it.
func defaults(format string, replace, keepNulls bool) bool {
	if slices.Contains(connect.RegistryFormats, format) {
		return !keepNulls
	}
	return replace
}

// IsCloudEvents reports whether records are CloudEvents.
func (f Format) IsCloudEvents() bool {
	return f.CloudEvents == "binary" || f.CloudEvents == "structured"
}

// DefaultConfig is Debezium's defaults, with column names to be found.
func DefaultConfig() Config {
	return Config{
		OpInvalidBehavior:   "warn",
		FieldID:             "id",
		FieldPayload:        "payload",
		AdditionalMissing:   "error",
		TopicRegex:          "(?<routedByValue>.*)",
		TopicReplacement:    "outbox.event.${routedByValue}",
		NullBehavior:        "ignore",
		EmptyArrayBehavior:  "ignore",
		FieldNameAdjustment: "none",
		TracingField:        "tracingspancontext",
		TracingOperation:    "debezium-read",
		TracingContextOnly:  true,
		DecimalHandling:     "precise",
		BinaryHandling:      "bytes",
		TimePrecision:       "adaptive",
		IntervalHandling:    "numeric",
		HstoreHandling:      "json",
		MoneyDigits:         2,
		Unavailable:         "__debezium_unavailable_value",
		TopicPrefix:         "postrider",
		HeaderID:            "id",
		TopicCase:           "none",
		NullKey:             "refuse",
	}
}

// DefaultFormat writes text as it is: no quotes, no schema.
func DefaultFormat() Format {
	return Format{
		Key: "string", Value: "string", Headers: "simple",
		KeyDecimals: "BASE64", ValueDecimals: "BASE64", KeyEncoding: "UTF-8",
		ValueEncoding: "UTF-8", CloudEvents: "none", EventSource: "/${topic.prefix}/${table}",
		KeyStrategy: "topic", KeyAutoRegister: true, KeyMetaData: true, KeyOpenObjects: true,
		ValueStrategy: "topic", ValueAutoRegister: true, ValueMetaData: true, ValueOpenObjects: true,
	}
}

func (c *Config) handling() connect.Handling {
	return connect.Handling{
		DecimalHandling: c.DecimalHandling, BinaryHandling: c.BinaryHandling,
		TimePrecision: c.TimePrecision, IntervalHandling: c.IntervalHandling,
		HstoreHandling: c.HstoreHandling, IncludeUnknown: c.IncludeUnknown,
		MoneyDigits: c.MoneyDigits, StrictTypes: c.StrictTypes,
	}
}
