package router

import "testing"

func benchmark(b *testing.B, f Format, change func(*Config)) {
	r := newRouter(b, f, change)
	ev := insert(outbox(), baseID, "User", "10711fa5", "UserCreated",
		`{"total": 12.5, "lines": [{"sku": "A-1", "quantity": 2}, {"sku": "B-7", "quantity": 1}], "customer": "Grace Hopper"}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Route(ev); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRoute_String(b *testing.B) { benchmark(b, DefaultFormat(), nil) }

func BenchmarkRoute_Headers(b *testing.B) {
	benchmark(b, DefaultFormat(), func(c *Config) { c.AdditionalPlacement = "type:header:eventType,aggregatetype:header" })
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
