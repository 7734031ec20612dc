package avro

import (
	"slices"
	"strings"

	"github.com/postrider/postrider/router/connect"
)

// enumParameter has the name of an enum, and its symbols are the parameters below it, as
// AvroConverter writes them when it reads one.
const enumParameter = namespace + ".Enum"

func (o *Options) isEnum(s *connect.Schema) bool {
	return o.Enhanced && s.Kind == connect.KindString && parameter(s, enumParameter) != ""
}

func symbols(s *connect.Schema) []string {
	var out []string
	for _, p := range s.Params {
		if symbol, ok := strings.CutPrefix(p.Key, enumParameter+"."); ok {
			out = append(out, symbol)
		}
	}
	return out
}

// enum writes a text that has symbols: its definition, or its name where that is defined.
func (b *builder) enum(s *connect.Schema) error {
	if s.Name == "" {
		b.unnamed++ // AvroConverter takes the next name, and then does not use it
	}
	name, err := b.split(parameter(s, enumParameter))
	if err != nil {
		return err
	}
	key := name.String()
	if before := b.defined[key]; before != nil {
		if !slices.Equal(symbols(before), symbols(s)) {
			return connect.Unwritable("", "two different enums have the name %s", key)
		}
		b.quote(name.from(b.space))
		return nil
	}
	b.defined[key] = s
	b.head("enum", name)
	b.write(`,"symbols":[`)
	for i, symbol := range symbols(s) {
		if err := valid("symbol", symbol, symbol); err != nil {
			return err
		}
		if i > 0 {
			b.write(",")
		}
		b.quote(symbol)
	}
	b.write("]")
	b.properties(s)
	b.write("}")
	return nil
}
