package outbox

import (
	"context"
	"encoding/json"
	"time"

	"go.opentelemetry.io/otel/trace"
)

// envelope is what a payload is put into with Config.Envelope.
type envelope struct {
	EventID       string          `json:"eventId"`
	EventType     string          `json:"eventType,omitempty"`
	SchemaVersion int32           `json:"schemaVersion,omitempty"`
	OccurredAt    string          `json:"occurredAt"` // RFC 3339, in UTC
	TraceID       string          `json:"traceId,omitempty"`
	Data          json.RawMessage `json:"data"`
}

// enveloped returns the payload of the event in its envelope; nil for NULL.
func enveloped(ctx context.Context, e Event) ([]byte, error) {
	data, err := payloadBytes(JSON, e.Payload)
	if data == nil || err != nil {
		return nil, err
	}
	around := envelope{EventID: e.ID, EventType: e.Type, SchemaVersion: e.SchemaVersion,
		OccurredAt: e.OccurredAt.Format(time.RFC3339Nano), Data: data}
	if span := trace.SpanContextFromContext(ctx); span.HasTraceID() {
		around.TraceID = span.TraceID().String()
	}
	return marshalJSON(around)
}
