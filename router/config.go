package router

import "github.com/postrider/postrider/router/connect"

// Config holds the options of Debezium's Outbox Event Router under Debezium's own names, and what postrider adds to them.
// The toml tags are the dotted option names, literally. The zero value is not valid: start from DefaultConfig.
type Config struct {
	// Debezium's options, with Debezium's defaults. A column name that is empty is found in the table: see Check.

	OpInvalidBehavior        string `toml:"table.op.invalid.behavior"`                // warn | error | fatal: what to do with an updated row, of a publication that has updates
	FieldID                  string `toml:"table.field.event.id"`                     // column of the event id
	FieldKey                 string `toml:"table.field.event.key"`                    // column of the record key; empty: aggregate_id or aggregateid
	FieldType                string `toml:"table.field.event.type"`                   // column of the event type; empty: event_type or type; used by placements alone
	FieldPayload             string `toml:"table.field.event.payload"`                // column of the record value
	FieldTimestamp           string `toml:"table.field.event.timestamp"`              // column of the record time; empty: the commit time
	FieldSchemaVersion       string `toml:"table.field.event.schema.version"`         // column of the version of the envelope's schema; empty: none
	AdditionalPlacement      string `toml:"table.fields.additional.placement"`        // list of column:placement[:alias]
	AdditionalMissing        string `toml:"table.field.additional.missing"`           // error | ignore
	AdditionalErrorOnMissing *bool  `toml:"table.fields.additional.error.on.missing"` // retired name of the above; nil: not given
	RouteByField             string `toml:"route.by.field"`                           // column that is routed by; empty: aggregate_type or aggregatetype
	TopicRegex               string `toml:"route.topic.regex"`                        // a Java regular expression that has to match the whole routed value
	TopicReplacement         string `toml:"route.topic.replacement"`                  // a Java replacement: $1, ${name}, backslash escapes
	TombstoneOnEmptyPayload  bool   `toml:"route.tombstone.on.empty.payload"`
	ExpandJSONPayload        bool   `toml:"table.expand.json.payload"`
	NullBehavior             string `toml:"table.json.payload.null.behavior"`        // ignore | optional_bytes
	EmptyArrayBehavior       string `toml:"table.json.payload.empty.array.behavior"` // ignore | optional_string
	FieldNameAdjustment      string `toml:"field.name.adjustment.mode"`              // none | avro | avro_unicode
	TracingField             string `toml:"tracing.span.context.field"`              // column with a span context in Java properties format
	TracingOperation         string `toml:"tracing.operation.name"`
	TracingContextOnly       bool   `toml:"tracing.with.context.field.only"`

	// Options of Debezium's connector that change what the router sees, with their defaults.

	DecimalHandling  string `toml:"decimal.handling.mode"`         // precise | string | double
	BinaryHandling   string `toml:"binary.handling.mode"`          // bytes | base64 | base64-url-safe | hex
	TimePrecision    string `toml:"time.precision.mode"`           // adaptive | adaptive_time_microseconds | connect | isostring | microseconds | nanoseconds
	IntervalHandling string `toml:"interval.handling.mode"`        // numeric | string
	HstoreHandling   string `toml:"hstore.handling.mode"`          // json | map
	IncludeUnknown   bool   `toml:"include.unknown.datatypes"`     // columns of unknown type as bytes instead of left out
	MoneyDigits      int    `toml:"money.fraction.digits"`         // of columns of type money, with decimal.handling.mode=precise
	Unavailable      string `toml:"unavailable.value.placeholder"` // in the place of a value that an update does not bring, of a row whose primary key changed
	TopicPrefix      string `toml:"topic.prefix"`                  // the first part of the names of schemas
	ContextHeaders   bool   `toml:"extended.headers.enabled"`      // headers __debezium.context.*, before all others; Debezium's default is true
	MessageNulls     bool   `toml:"fields.null.include"`           // members of logical messages that are null are columns; of the transform DecodeLogicalDecodingMessageContent

	// postrider's additions: nothing of this kind exists in Debezium.

	Tables          []string `toml:"tables"`            // outbox tables that these options are for, of those in replication.tables; empty: see Divide
	Messages        []string `toml:"messages"`          // prefixes of logical messages, of those in replication.messages; empty: see Divide
	HeaderID        string   `toml:"header_id"`         // name of the header that carries the id; default "id"
	HeadersColumn   string   `toml:"headers_column"`    // a json or jsonb column with one object: its members become headers, after all others
	TopicCase       string   `toml:"topic_case"`        // none | lower | kebab (ORDER_CREATED and OrderCreated to order-created), applied to the routed value before the regex
	TopicAllow      []string `toml:"topic_allow"`       // topics that events may go to, with * for any characters; empty: all but those of Kafka and of the relay itself
	NullKey         string   `toml:"null_key"`          // refuse | publish: what to do with a row whose key is NULL
	NullDefaults    bool     `toml:"null_defaults"`     // a column's default in the place of NULL, as Debezium does
	PositionHeaders bool     `toml:"position_headers"`  // headers postrider.lsn and postrider.index: the event position
	TracingHeaders  bool     `toml:"tracing_headers"`   // span context to headers, with a new span; Debezium does so where its tracing library is installed
	JavaText        bool     `toml:"java_text"`         // format string prints bytes as Java does (java.nio.HeapByteBuffer[pos=0 lim=3 cap=3]); false: the bytes themselves, Base64 inside of structs
	FirstSchemaName bool     `toml:"first_schema_name"` // an envelope's schema keeps the name of the first aggregate type, as in Debezium's cache
	StrictTypes     bool     `toml:"strict_types"`      // types as Debezium takes them: timestamptz, date and numbers are no times of a record, smallint and bigint no partitions, and a column of type name has no value
}

// Format says how keys, values and headers are written to bytes, as Kafka Connect's converters do. Beside the names of key and value stand
// the options of their converters, under Connect's names for them.
type Format struct {
	Key     string `toml:"key"`     // string | json | json+schema | binary | short | integer | long | float | double | boolean
	Value   string `toml:"value"`   // the same
	Headers string `toml:"headers"` // simple | string | json | json+schema

	KeyDecimals   string `toml:"key.decimal.format"`              // of json: BASE64 | NUMERIC
	KeyDefaults   bool   `toml:"key.replace.null.with.default"`   // of json: the default of a column in the place of NULL; see Config.NullDefaults, which does so in every format
	KeyEncoding   string `toml:"key.encoding"`                    // of string: UTF-8, UTF-16, UTF-32, or a character set with one byte for each character
	KeyDelegate   string `toml:"key.delegate"`                    // of binary: the format of what is no bytes: json | json+schema | string; empty: an error
	ValueDecimals string `toml:"value.decimal.format"`            // as for the key
	ValueDefaults bool   `toml:"value.replace.null.with.default"` // as for the key
	ValueEncoding string `toml:"value.encoding"`                  // as for the key
	ValueDelegate string `toml:"value.delegate"`                  // as for the key
}

func (f Format) key() connect.Converter {
	return connect.Converter{
		Format: f.Key, Decimals: f.KeyDecimals, Encoding: f.KeyEncoding,
		Delegate: f.KeyDelegate, Defaults: f.KeyDefaults,
	}
}

func (f Format) value() connect.Converter {
	return connect.Converter{
		Format: f.Value, Decimals: f.ValueDecimals, Encoding: f.ValueEncoding,
		Delegate: f.ValueDelegate, Defaults: f.ValueDefaults,
	}
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
		KeyDecimals: "BASE64", ValueDecimals: "BASE64", KeyEncoding: "UTF-8", ValueEncoding: "UTF-8",
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
