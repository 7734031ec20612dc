package connect

import (
	"bytes"
	"slices"
	"strings"
)

// unlisted are types whose arrays Debezium leaves out, whatever include.unknown.datatypes is.
var unlisted = []string{"money", "name", "interval", "varbit", "xml", "point", "refcursor"}

// listed are types for whose arrays Debezium has a schema with optional items. All others have
// what their item has.
var listed = strings.Fields(`int2 int4 int8 oid char varchar text bpchar inet cidr macaddr macaddr8
	tsrange tstzrange daterange int4range numrange int8range numeric float4 float8 bool date uuid json
	jsonb time timetz timestamp timestamptz bytea citext hstore ltree`)

func arrayCodec(t *Type, h *Handling) (codec, error) {
	elem := *t.Elem
	elem.Mod = t.Mod
	base := elem.Kind == "b" || elem.Kind == "r"
	if base && slices.Contains(unlisted, elem.Name) && h.StrictTypes {
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
	items.Optional = items.Optional || base && slices.Contains(listed, elem.Name)
	delimiter := byte(',')
	if elem.Name == "box" {
		delimiter = ';'
	}
	read := func(b []byte) (any, error) {
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
			// an item that has to be there is not: Debezium drops the whole array
			if missing := out[i] == nil && h.StrictTypes; missing &&
				(!items.Optional || p != nil && items.Kind == KindStruct) {
				return nil, nil
			}
		}
		return out, nil
	}
	return codec{Schema: Schema{Kind: KindArray, Items: &items}, Read: read}, nil
}

// wholeMillis cuts the text of a time of day to milliseconds: PostgreSQL's Java driver has no more
// in arrays.
func wholeMillis(clock []byte) []byte {
	if at := bytes.IndexByte(clock, '.'); at >= 0 && len(clock) > at+4 {
		return clock[:at+4]
	}
	return clock
}
