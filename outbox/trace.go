package outbox

import (
	"context"
	"maps"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/propagation"
)

// traceHeaders are traceparent and tracestate of the span in the context, as the propagator of
// W3C Trace Context writes them; none without a span.
func traceHeaders(ctx context.Context) map[string]string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier
}

// traceProperties is the trace in Java's properties format, which Debezium reads. Neither header
// has a character that the format would have to escape but = and :, which it takes in values.
func traceProperties(headers map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		b.WriteString(name + "=" + headers[name] + "\n")
	}
	return b.String()
}
