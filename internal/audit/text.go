package audit

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// PlainText returns a text or number without the JSON quotes and the schema envelope of Kafka
// Connect's converters. It returns nil for null and for an envelope without a payload.
func PlainText(b []byte) []byte {
	switch {
	case len(b) == 0:
		return nil
	case b[0] == '{' && bytes.Contains(b, []byte(`"payload"`)):
		return PlainText(JSONMember(b, "payload"))
	case b[0] == '"':
		var text string
		if json.Unmarshal(b, &text) == nil {
			return []byte(text)
		}
	case string(b) == "null":
		return nil
	}
	return b
}

// JSONMember returns a member of an object or, by its index, of an array; nil if there is none.
func JSONMember(value []byte, name string) []byte {
	var object map[string]json.RawMessage
	if json.Unmarshal(value, &object) == nil {
		return object[name]
	}
	var array []json.RawMessage
	n, err := strconv.Atoi(name)
	if json.Unmarshal(value, &array) == nil && err == nil && n >= 0 && n < len(array) {
		return array[n]
	}
	return nil
}
