package outbox

import (
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
)

// Event is one event. The zero value of a field means that it is not given.
type Event struct {
	// ID identifies the event: consumers recognise by it an event that comes twice. Empty: a new
	// UUIDv7. A table with an id of type uuid takes UUIDs only.
	ID string
	// AggregateType, such as "order", decides the topic. Required.
	AggregateType string
	// AggregateID, such as "17", is the key: events of one aggregate keep their order. Required.
	AggregateID string
	// Type is what happened, such as "OrderCreated".
	Type string
	// Payload is the value. A string, a []byte and a json.RawMessage are taken as they are: with
	// the payload types jsonb and json they have to be JSON. A proto.Message becomes its JSON
	// there, and its binary form in bytea. Any other value is written by encoding/json. nil, and a
	// nil []byte, is NULL: a tombstone.
	Payload any
	// Headers become Kafka headers, if [router] has headers_column: strings as they are, other
	// values as their JSON, nil as a header without a value. Those of the trace are added.
	Headers map[string]any
	// SchemaVersion is the version of the payload's schema.
	SchemaVersion int32
	// OccurredAt is the time of the event, to the microsecond. Zero: the time of the call.
	OccurredAt time.Time
	// PartitionKey is the key instead of AggregateID. It needs a column of its own, see
	// Config.AggregateIDColumn. Empty: AggregateID.
	PartitionKey string
	// Columns are the values of Config.Columns. An absent one is NULL. A []byte is bytes, any other
	// value is written by encoding/json and read as the type of the column.
	Columns map[string]any
}

// complete returns the event with an id and a time.
func (e Event) complete(now time.Time) (Event, error) {
	if e.ID == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return e, fmt.Errorf("make an id: %w", err)
		}
		e.ID = id.String()
	}
	if e.OccurredAt.IsZero() {
		e.OccurredAt = now
	}
	// The server rounds to microseconds: a time in the envelope is the one in the column.
	e.OccurredAt = e.OccurredAt.UTC().Truncate(time.Microsecond)
	if year := e.OccurredAt.Year(); year < 0 || year > 9999 {
		return e, fmt.Errorf("OccurredAt: the year %d has no form in RFC 3339", year)
	}
	return e, nil
}

// validText refuses what encoding/json would replace without an error.
func validText(field, text string) error {
	if !utf8.ValidString(text) {
		return fmt.Errorf("%s: %q is not UTF-8: write bytes as text, for instance as Base64", field,
			text)
	}
	return nil
}
