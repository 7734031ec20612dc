package connect

import "bytes"

// unlisted are types whose arrays Debezium leaves out, whatever include.unknown.datatypes says.
var unlisted = map[string]bool{"money": true, "name": true, "interval": true, "varbit": true,
	"xml": true, "point": true, "refcursor": true}

// listed are types for whose arrays Debezium has a schema with optional items. All others have
// what their item has.
var listed = map[string]bool{
	"int2": true, "int4": true, "int8": true, "oid": true, "char": true, "varchar": true,
	"text": true, "bpchar": true, "inet": true, "cidr": true,
	"macaddr": true, "macaddr8": true, "tsrange": true, "tstzrange": true, "daterange": true,
	"int4range": true, "numrange": true, "int8range": true,
	"numeric": true, "float4": true, "float8": true, "bool": true, "date": true, "uuid": true,
	"json": true, "jsonb": true, "time": true, "timetz": true,
	"timestamp": true, "timestamptz": true, "bytea": true, "citext": true, "hstore": true,
	"ltree": true,
}

func arrayCodec(t *Type, h *Handling) (codec, error) {
	elem := *t.Elem
	elem.Mod = t.Mod
	if unlisted[elem.Name] && (elem.Kind == "b" || elem.Kind == "r") && h.StrictTypes {
		return codec{}, &UnsupportedTypeError{t.Name}
	}
	e, err := CodecOf(&elem, h)
	if err != nil {
		return codec{}, err
	}
	// Debezium takes the array for one of its items, and then finds no value in it
	if elem.Name == "bit" && h.StrictTypes {
		return codec{Schema: e.Schema, Read: func([]byte) (any, error) { return nil, nil }}, nil
	}
	items := e.Schema
	items.Optional = items.Optional || listed[elem.Name] && (elem.Kind == "b" || elem.Kind == "r")
	delimiter := byte(',')
	if elem.Name == "box" {
		delimiter = ';'
	}
	return codec{Schema: Schema{Kind: KindArray, items: &items},
		Read: func(b []byte) (any, error) {
			parts, err := parseArray(b, delimiter)
			if err != nil {
				return nil, err
			}
			out := make([]any, len(parts))
			for i, p := range parts {
				if elem.Name == "time" && h.StrictTypes {
					p = wholeMillis(p)
				}
				switch {
				case p == nil:
				case e.Read == nil:
					out[i] = Text(p)
				default:
					if out[i], err = e.Read(p); err != nil {
						return nil, err
					}
				}
				if h.StrictTypes && out[i] == nil &&
					(!items.Optional || p != nil && items.Kind == KindStruct) {
					// an item that has to be there is not: Debezium drops the whole array
					return nil, nil
				}
			}
			return out, nil
		}}, nil
}

// wholeMillis cuts the text of a time of day to milliseconds: PostgreSQL's Java driver has no more
// in arrays.
func wholeMillis(clock []byte) []byte {
	if at := bytes.IndexByte(clock, '.'); at >= 0 && len(clock) > at+4 {
		return clock[:at+4]
	}
	return clock
}
