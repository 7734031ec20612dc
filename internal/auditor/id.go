package auditor

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/sink"
)

// Where a record may have the id of its row.
const (
	FromHeader = "header"
	FromKey    = "key"
	FromValue  = "value"
)

// eventID finds the id of a row in a record.
type eventID struct {
	from string   // idFromHeader, idFromKey or idFromValue
	name string   // of the header
	path []string // of a JSON pointer into the value
}

func ParseEventID(text string) (eventID, error) {
	kind, rest, _ := strings.Cut(text, ":")
	switch {
	case kind == FromKey && rest == "":
		return eventID{from: FromKey}, nil
	case kind == FromHeader && rest != "":
		return eventID{from: FromHeader, name: rest}, nil
	case kind == FromValue && strings.HasPrefix(rest, "/"):
		path := strings.Split(rest[1:], "/")
		for i := range path {
			path[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(path[i])
		}
		return eventID{from: FromValue, path: path}, nil
	}
	return eventID{}, errors.New("expected header:NAME, key or value:/JSON/POINTER")
}

// of returns nil if the record has no id.
func (e *eventID) of(m *sink.Message) []byte {
	switch e.from {
	case FromKey:
		return plainText(m.Key)
	case FromHeader:
		return plainText(header(m, e.name))
	}
	value := json.RawMessage(m.Value)
	for _, name := range e.path {
		value = member(value, name)
	}
	return plainText(value)
}

func header(m *sink.Message, name string) []byte {
	for i := range m.Headers {
		if m.Headers[i].Key == name {
			return m.Headers[i].Value
		}
	}
	return nil
}

// member of an object, or element of an array; nil if there is none.
func member(value []byte, name string) []byte {
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

// plainText undoes what Kafka Connect's converters make of a text or a number: quotes of JSON, and an envelope with its schema. It returns nil for
// null.
func plainText(b []byte) []byte {
	switch {
	case len(b) == 0:
		return nil
	case b[0] == '{' && bytes.Contains(b, []byte(`"payload"`)):
		return plainText(member(b, "payload"))
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

// deadLetterID is the id of a dead letter's row: one that could not be routed has no other header for it. Records that say what became of
// letters have none.
func deadLetterID(m *sink.Message, id []byte) []byte {
	if named := header(m, deadletter.HeaderEventID); named != nil {
		return named
	}
	return id
}
