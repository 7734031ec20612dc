package outbox

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// columns says which part of an event goes to which column; empty: to none.
type columns struct {
	cfg           Config
	aggregateType string
	aggregateID   string
	partitionKey  string
	names         []string // all but that of the payload, each once
	members       []string // all that a logical message needs: the trace may be absent
}

func newColumns(cfg Config) (*columns, error) {
	c := &columns{cfg: cfg}
	c.aggregateType = cfg.AggregateTypeColumn
	if c.aggregateType == "" && cfg.RouteByField != cfg.FieldType &&
		!slices.Contains(cfg.Columns, cfg.RouteByField) {
		c.aggregateType = cfg.RouteByField
	}
	c.aggregateID = cfg.AggregateIDColumn
	if c.aggregateID == "" && cfg.FieldKey != cfg.FieldID &&
		!slices.Contains(cfg.Columns, cfg.FieldKey) {
		c.aggregateID = cfg.FieldKey
	}
	taken := append([]string{cfg.FieldID, cfg.FieldType, c.aggregateType, c.aggregateID,
		cfg.FieldTimestamp, cfg.FieldSchemaVersion, cfg.HeadersColumn, cfg.TracingField},
		cfg.Columns...)
	if !slices.Contains(taken, cfg.FieldKey) {
		c.partitionKey = cfg.FieldKey
		taken = append(taken, cfg.FieldKey)
	}
	if !slices.Contains(taken, cfg.RouteByField) {
		return nil, fmt.Errorf("RouteByField %q decides the topic, and no part of an event goes "+
			"there: add it to Columns, or leave AggregateTypeColumn empty", cfg.RouteByField)
	}
	for _, name := range append([]string{cfg.FieldPayload}, taken...) {
		switch {
		case name == "":
		case slices.Contains(c.names, name):
			return nil, fmt.Errorf("two options name the column %q: each column takes one value",
				name)
		default:
			c.names = append(c.names, name)
		}
	}
	c.members = slices.DeleteFunc(slices.Clone(c.names), func(name string) bool {
		return name == cfg.TracingField
	})
	c.names = c.names[1:]
	return c, nil
}

// placed refuses an event with a value that no column takes, which would be lost.
func (c *columns) placed(e Event) error {
	for _, part := range []struct {
		field string
		given bool
		taken bool
		fix   string
	}{
		{"ID", e.ID != "", c.cfg.FieldID != "", "Config.FieldID to its column"},
		{"AggregateType", e.AggregateType != "", c.aggregateType != "",
			"Config.AggregateTypeColumn to its column"},
		{"AggregateID", e.AggregateID != "", c.aggregateID != "",
			"Config.AggregateIDColumn to its column"},
		{"Type", e.Type != "", c.cfg.FieldType != "" || c.cfg.Envelope,
			"Config.FieldType to its column"},
		{"PartitionKey", e.PartitionKey != "", c.partitionKey != "", "Config.FieldKey to its " +
			"column, and Config.AggregateIDColumn to that of AggregateID"},
		{"OccurredAt", !e.OccurredAt.IsZero(), c.cfg.FieldTimestamp != "" || c.cfg.Envelope,
			"Config.FieldTimestamp to a column of type timestamptz"},
		{"SchemaVersion", e.SchemaVersion != 0, c.cfg.FieldSchemaVersion != "" || c.cfg.Envelope,
			"Config.FieldSchemaVersion to a column of type integer"},
		{"Headers", len(e.Headers) > 0, c.cfg.HeadersColumn != "",
			"Config.HeadersColumn to a column of type jsonb"},
	} {
		if part.given && !part.taken {
			return fmt.Errorf("Event.%s is set, and the table has no column for it: set %s, or "+
				"leave it empty", part.field, part.fix)
		}
	}
	return nil
}

// row returns the values of the columns, without the payload. A column without a value is absent.
func (c *columns) row(ctx context.Context, e Event) (row, error) {
	r := make(row, 0, len(c.names)+1) // one more for a payload
	for _, text := range []struct {
		field, column, value string
		required             bool
	}{
		{"ID", c.cfg.FieldID, e.ID, true},
		{"AggregateType", c.aggregateType, e.AggregateType, true},
		{"AggregateID", c.aggregateID, e.AggregateID, true},
		{"Type", c.cfg.FieldType, e.Type, false},
		{"PartitionKey", c.partitionKey, cmp.Or(e.PartitionKey, e.AggregateID), false},
	} {
		if err := validText("Event."+text.field, text.value); err != nil {
			return nil, err
		}
		switch {
		case text.column == "":
		case text.value != "":
			r.set(text.column, text.value)
		case text.required:
			return nil, fmt.Errorf("Event.%s is empty, and is needed for column %q: without it "+
				"the event cannot be routed", text.field, text.column)
		}
	}
	if c.cfg.FieldTimestamp != "" {
		r.set(c.cfg.FieldTimestamp, e.OccurredAt.Format(time.RFC3339Nano))
	}
	if e.SchemaVersion != 0 && c.cfg.FieldSchemaVersion != "" {
		r.set(c.cfg.FieldSchemaVersion, int64(e.SchemaVersion))
	}
	if err := c.addHeaders(ctx, &r, e); err != nil {
		return nil, err
	}
	return r, c.addColumns(&r, e)
}

func (c *columns) addHeaders(ctx context.Context, r *row, e Event) error {
	trace := traceHeaders(ctx)
	if c.cfg.TracingField != "" {
		if len(trace) > 0 {
			r.set(c.cfg.TracingField, traceProperties(trace))
		}
		trace = nil
	}
	if c.cfg.HeadersColumn == "" {
		return nil
	}
	// An empty object for none: the column may be NOT NULL, and the router looks for it in a message.
	headers := make(map[string]any, len(e.Headers)+len(trace))
	for name, value := range trace {
		headers[name] = value
	}
	for name, value := range e.Headers {
		if err := validText("Event.Headers", name); err != nil {
			return err
		}
		if text, ok := value.(string); ok {
			if err := validText("Event.Headers["+name+"]", text); err != nil {
				return err
			}
		}
		headers[name] = value
	}
	r.set(c.cfg.HeadersColumn, headers)
	return nil
}

func (c *columns) addColumns(r *row, e Event) error {
	for name, value := range e.Columns {
		if !slices.Contains(c.cfg.Columns, name) {
			return fmt.Errorf("Event.Columns has %q, which is not in Config.Columns (%s)", name,
				strings.Join(c.cfg.Columns, ", "))
		}
		v, err := columnValue("Event.Columns["+name+"]", value)
		if err != nil {
			return err
		}
		r.set(name, v)
	}
	return nil
}

// columnValue is a value that encoding/json writes in the form that PostgreSQL reads.
func columnValue(field string, value any) (any, error) {
	switch v := value.(type) {
	case string:
		return v, validText(field, v)
	case []byte:
		if v == nil {
			return nil, nil
		}
		return `\x` + hex.EncodeToString(v), nil
	}
	encoded, err := marshalJSON(value)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	return json.RawMessage(encoded), nil
}

// appendMessage appends the content of a logical message: the columns of a row as members, in the
// forms that the router takes for them. Payload and headers are text, as it reads the columns of a
// table, and the time is in milliseconds, which is the only time that a member can be.
func (c *columns) appendMessage(dst []byte, e Event, r row, payload []byte) ([]byte, error) {
	if c.cfg.PayloadType == Bytea && payload != nil {
		return nil, errors.New("a logical message is JSON and has no form for bytes: write a row, " +
			"or set Config.PayloadType to JSONB or Text")
	}
	if c.cfg.FieldID == "" {
		return nil, errors.New("a logical message needs an id, which no server makes: set " +
			"Config.FieldID to the name that router.table.field.event.id has")
	}
	if payload != nil {
		r.set(c.cfg.FieldPayload, string(payload))
	}
	if c.cfg.FieldTimestamp != "" {
		r.set(c.cfg.FieldTimestamp, e.OccurredAt.UnixMilli())
	}
	if c.cfg.HeadersColumn != "" {
		headers, err := marshalJSON(r.get(c.cfg.HeadersColumn))
		if err != nil {
			return nil, err
		}
		r.set(c.cfg.HeadersColumn, string(headers))
	}
	for _, name := range c.members {
		switch {
		case r.get(name) != nil:
		case c.cfg.MessageNulls:
			r.set(name, nil)
		default:
			return nil, fmt.Errorf("column %q has no value, and the router takes a member that is "+
				"null for a column that does not exist: give it one, write a row, or set "+
				"router.fields.null.include and Config.MessageNulls to true", name)
		}
	}
	return r.appendJSON(dst)
}
