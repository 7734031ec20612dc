package auditor

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/postrider/postrider/internal/audit"
	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/sink"
)

// Where a record may have the id of its row.
const (
	FromHeader = "header"
	FromKey    = "key"
	FromValue  = "value"
)

// EventID finds the id of a row in a record.
type EventID struct {
	from string   // FromHeader, FromKey or FromValue
	name string   // of the header
	path []string // of the JSON pointer into the value
}

// ParseEventID reads header:NAME, key, or value:/JSON/POINTER.
func ParseEventID(text string) (EventID, error) {
	kind, rest, _ := strings.Cut(text, ":")
	switch {
	case kind == FromKey && rest == "":
		return EventID{from: FromKey}, nil
	case kind == FromHeader && rest != "":
		return EventID{from: FromHeader, name: rest}, nil
	case kind == FromValue && strings.HasPrefix(rest, "/"):
		path := strings.Split(rest[1:], "/")
		for i := range path {
			path[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(path[i])
		}
		return EventID{from: FromValue, path: path}, nil
	}
	return EventID{}, errors.New("expected header:NAME, key or value:/JSON/POINTER")
}

// of returns nil if the record has no id.
func (e *EventID) of(m *sink.Message) []byte {
	switch e.from {
	case FromKey:
		return audit.PlainText(m.Key)
	case FromHeader:
		return audit.PlainText(header(m, e.name))
	}
	value := json.RawMessage(m.Value)
	for _, name := range e.path {
		value = audit.JSONMember(value, name)
	}
	return audit.PlainText(value)
}

func header(m *sink.Message, name string) []byte {
	for i := range m.Headers {
		if m.Headers[i].Key == name {
			return m.Headers[i].Value
		}
	}
	return nil
}

// deadLetterID returns the id of a dead letter's row. A row that could not be routed has it in a
// header of its own. Records about what became of dead letters have none.
func deadLetterID(m *sink.Message, id []byte) []byte {
	if named := header(m, deadletter.HeaderEventID); named != nil {
		return named
	}
	return id
}
