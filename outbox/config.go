package outbox

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// The types of a payload column. Others are read as one of these: varchar as text.
const (
	JSONB = "jsonb"
	JSON  = "json" // the text stays as it is written
	Text  = "text"
	Bytea = "bytea"
)

// None in the place of a column's name: the table has no such column.
const None = "-"

// Config is a table and its columns. The toml tags are the option names of [router] in postrider's
// configuration, with their meaning and defaults, so that one definition serves both. Names are
// written as in the catalog, without quotes.
type Config struct {
	// Table, as in replication.tables: "schema.table". Without a schema it is in public.
	Table string `toml:"table"`

	// FieldID is the column of Event.ID; empty: id; None: the server makes the id.
	FieldID string `toml:"table.field.event.id"`
	// RouteByField is the column that decides the topic, of Event.AggregateType unless
	// AggregateTypeColumn is set or it is also FieldType; empty: aggregate_type.
	RouteByField string `toml:"route.by.field"`
	// FieldKey is the column of the record key, of Event.AggregateID unless AggregateIDColumn is
	// set or it is also FieldID; empty: aggregate_id.
	FieldKey string `toml:"table.field.event.key"`
	// FieldType is the column of Event.Type; empty: event_type; or None.
	FieldType string `toml:"table.field.event.type"`
	// FieldPayload is the column of Event.Payload; empty: payload.
	FieldPayload string `toml:"table.field.event.payload"`
	// FieldTimestamp is the column of Event.OccurredAt, of type timestamptz, timestamp (in UTC) or
	// date; empty: none.
	FieldTimestamp string `toml:"table.field.event.timestamp"`
	// FieldSchemaVersion is the column of Event.SchemaVersion; empty: none.
	FieldSchemaVersion string `toml:"table.field.event.schema.version"`
	// HeadersColumn is the column of Event.Headers and of the trace; empty: none.
	HeadersColumn string `toml:"headers_column"`
	// TracingField is the column of the trace in Java's properties format, for
	// router.tracing_headers; empty: none, and the trace is written to the headers.
	TracingField string `toml:"tracing.span.context.field"`
	// MessageNulls is that of the router that reads the messages: without it a message cannot have
	// NULL as payload.
	MessageNulls bool `toml:"fields.null.include"`

	// What [router] does not have.

	// AggregateTypeColumn is the column of Event.AggregateType if that does not decide the topic.
	AggregateTypeColumn string `toml:"aggregate_type_column"`
	// AggregateIDColumn is the column of Event.AggregateID if that is not the key. FieldKey is then
	// the column of Event.PartitionKey.
	AggregateIDColumn string `toml:"aggregate_id_column"`
	// Columns are further columns that events write, for instance those of
	// table.fields.additional.placement.
	Columns []string `toml:"columns"`
	// PayloadType is the type of the column FieldPayload: JSONB, JSON, Text or Bytea; empty: JSONB.
	PayloadType string `toml:"payload_type"`
	// Envelope puts the payload into a JSON object with the members eventId, eventType,
	// schemaVersion, occurredAt, traceId and data. Those that an event does not have are left out.
	// A NULL payload stays NULL.
	Envelope bool `toml:"envelope"`
}

// DefaultConfig is the table of sql/outbox.sql and sql/outbox_partitioned.sql.
func DefaultConfig() Config {
	return Config{Table: "public.outbox", FieldTimestamp: "created_at", HeadersColumn: "headers"}
}

// DebeziumConfig is the table of sql/outbox_debezium.sql, which has the columns that Debezium's
// documentation has.
func DebeziumConfig() Config {
	return Config{Table: "public.outbox", RouteByField: "aggregatetype", FieldKey: "aggregateid",
		FieldType: "type"}
}

// withDefaults has a name for every column that the table has, and none for the others.
func (c Config) withDefaults() Config {
	c.Columns = slices.Clone(c.Columns)
	c.PayloadType = cmp.Or(c.PayloadType, JSONB)
	for _, column := range []struct {
		name     *string
		standard string
	}{
		{&c.FieldID, "id"}, {&c.RouteByField, "aggregate_type"}, {&c.FieldKey, "aggregate_id"},
		{&c.FieldType, "event_type"}, {&c.FieldPayload, "payload"}, {&c.FieldTimestamp, ""},
		{&c.FieldSchemaVersion, ""}, {&c.HeadersColumn, ""}, {&c.TracingField, ""},
		{&c.AggregateTypeColumn, ""}, {&c.AggregateIDColumn, ""},
	} {
		if *column.name = cmp.Or(*column.name, column.standard); *column.name == None {
			*column.name = ""
		}
	}
	return c
}

// validate is for a configuration with defaults.
func (c Config) validate() error {
	switch {
	case c.Table == "":
		return errors.New("Table is empty: write \"schema.table\", or start from DefaultConfig")
	case !slices.Contains([]string{JSONB, JSON, Text, Bytea}, c.PayloadType):
		return fmt.Errorf("PayloadType %q is none of jsonb, json, text and bytea: write the type "+
			"that is closest to that of the column", c.PayloadType)
	case c.FieldPayload == "" || c.RouteByField == "" || c.FieldKey == "":
		return errors.New("FieldPayload, RouteByField and FieldKey cannot be None: the router " +
			"needs these columns")
	case c.Envelope && c.FieldID == "":
		return errors.New("Envelope needs FieldID: an id that the server makes is not known " +
			"when the envelope is written")
	}
	return nil
}

// quotedTable is the name of the table for SQL, which does not depend on search_path.
func (c Config) quotedTable() string {
	schema, name, found := strings.Cut(c.Table, ".")
	if !found {
		schema, name = "public", schema
	}
	return quote(schema) + "." + quote(name)
}

// quote returns a name for SQL.
func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
