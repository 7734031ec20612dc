package avro

import (
	"strings"

	"github.com/postrider/postrider/router/connect"
)

const (
	anythingName = namespace + ".Anything"
	// anythings are the members of that record before the array and the map.
	anythings = "boolean bytes double float int long string"
)

// anything is AvroConverter's schema of a value without a schema: a record with a member for each
// type, all but one of them null. Debezium has no schema for a payload that expands to an empty
// array.
var anything = `{"type":"record","name":"Anything","namespace":"` + namespace + `","fields":[` +
	anythingMembers() +
	`{"name":"array","type":["null",{"type":"array","items":"Anything"}],"default":null},` +
	`{"name":"map","type":["null",{"type":"array","items":{"type":"record","name":"MapEntry",` +
	`"fields":[{"name":"key","type":"Anything"},{"name":"value","type":"Anything"}]}}],` +
	`"default":null}]}`

func anythingMembers() string {
	var out strings.Builder
	for _, t := range strings.Fields(anythings) {
		out.WriteString(`{"name":"` + t + `","type":["null","` + t + `"],"default":null},`)
	}
	return out.String()
}

// appendAnything writes a text as that record. Nothing else comes without a schema.
func appendAnything(dst []byte, v any) ([]byte, error) {
	text, ok := v.(connect.Text)
	if !ok {
		return dst, connect.Unwritable("", "a value without a schema that is no text")
	}
	dst = append(dst, 0, 0, 0, 0, 0, 0) // the first type of each union, which is null
	dst = appendText(appendLong(dst, 1), text)
	return append(dst, 0, 0), nil
}
