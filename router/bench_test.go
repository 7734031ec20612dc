package router

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/sink"
)

func benchmark(b *testing.B, f Format, change func(*Config)) {
	r := newRouter(b, f, change)
	ev := insert(outbox(), baseID, "User", "10711fa5", "UserCreated",
		`{"total": 12.5, "lines": [{"sku": "A-1", "quantity": 2}, {"sku": "B-7", "quantity": 1}], "customer": "Grace Hopper"}`)
	b.ReportAllocs()
	m := new(sink.Message)
	for b.Loop() {
		if _, err := r.RouteTo(m, ev); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRoute_String(b *testing.B) { benchmark(b, DefaultFormat(), nil) }

func BenchmarkRoute_Headers(b *testing.B) {
	benchmark(b, DefaultFormat(), func(c *Config) { c.AdditionalPlacement = "type:header:eventType,aggregatetype:header" })
}

// manyHeaders gives a row eleven headers.
func manyHeaders(c *Config) {
	c.AdditionalPlacement = "type:header:eventType,aggregatetype:header,aggregateid:header,payload:header:body"
	c.ContextHeaders, c.PositionHeaders = true, true
}

func BenchmarkRoute_ManyHeaders(b *testing.B) { benchmark(b, DefaultFormat(), manyHeaders) }

// Where the bytes of a row are what is published, a message that is used again costs nothing.
func TestRoute_AllocatesNothingPerRow(t *testing.T) {
	for name, change := range map[string]func(*Config){"plain": nil, "many headers": manyHeaders} {
		r := newRouter(t, DefaultFormat(), change)
		ev, m := base(outbox()), new(sink.Message)
		route := func() {
			ev.LSN++
			ours, err := r.RouteTo(m, ev)
			require.NoError(t, err)
			require.True(t, ours)
		}
		route()
		require.Zero(t, testing.AllocsPerRun(10_000, route), name) // the average, rounded down
	}
}

func BenchmarkRoute_JSON(b *testing.B) {
	benchmark(b, Format{Key: "json", Value: "json", Headers: "simple"}, nil)
}

func BenchmarkRoute_JSONSchema(b *testing.B) {
	benchmark(b, Format{Key: "json+schema", Value: "json+schema", Headers: "simple"}, nil)
}

func BenchmarkRoute_Envelope(b *testing.B) {
	benchmark(b, Format{Key: "json", Value: "json", Headers: "simple"}, func(c *Config) { c.AdditionalPlacement = "type:envelope" })
}

func BenchmarkRoute_Expand(b *testing.B) {
	benchmark(b, Format{Key: "json", Value: "json", Headers: "simple"}, func(c *Config) { c.ExpandJSONPayload = true })
}
