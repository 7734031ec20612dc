package router

// expander turns JSON text into Connect values with a schema made of the text, as table.expand.json.payload asks.
type expander struct {
	keepNulls  bool // table.json.payload.null.behavior = optional_bytes
	keepEmpty  bool // table.json.payload.empty.array.behavior = optional_string
	adjustment string
}

func newExpander(cfg *Config) expander {
	return expander{cfg.NullBehavior == "optional_bytes", cfg.EmptyArrayBehavior == "optional_string", cfg.FieldNameAdjustment}
}

// expand gives the schema and value of a JSON text. A nil value means that the text stays what it is.
func (e *expander) expand(t text) (*schema, any, error) { return nil, nil, nil }

// schemaOf is the schema that belongs to an expanded value.
func schemaOf(v any, fallback *schema) *schema {
	if s, ok := v.(*structure); ok {
		return s.schema
	}
	return fallback
}
