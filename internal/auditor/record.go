package auditor

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/jackc/pglogrepl"

	"github.com/postrider/postrider/internal/audit"
	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
)

// Where a record may have the id of its row.
const (
	fromHeader = "header"
	fromKey    = "key"
	fromValue  = "value"
)

// EventID finds the id of a row in a record.
type EventID struct {
	from string   // fromHeader, fromKey or fromValue
	name string   // of the header
	path []string // of the JSON pointer into the value
}

// ParseEventID reads header:NAME, key, or value:/JSON/POINTER.
func ParseEventID(text string) (EventID, error) {
	kind, rest, _ := strings.Cut(text, ":")
	switch {
	case kind == fromKey && rest == "":
		return EventID{from: fromKey}, nil
	case kind == fromHeader && rest != "":
		return EventID{from: fromHeader, name: rest}, nil
	case kind == fromValue && strings.HasPrefix(rest, "/"):
		path := strings.Split(rest[1:], "/")
		for i := range path {
			path[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(path[i])
		}
		return EventID{from: fromValue, path: path}, nil
	}
	return EventID{}, errors.New("expected header:NAME, key or value:/JSON/POINTER")
}

// of returns nil if the record has no id.
func (e *EventID) of(m *sink.Message) []byte {
	switch e.from {
	case fromKey:
		return audit.PlainText(m.Key)
	case fromHeader:
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

// positionOf reads the position headers of a record. Where they are missing or malformed, the
// position has no source. The relay's headers follow those of the row itself, so the last
// of a name counts.
func positionOf(m *sink.Message) audit.Position {
	var lsn, index, source []byte
	for i := range m.Headers {
		switch h := &m.Headers[i]; h.Key {
		case router.HeaderLSN:
			lsn = h.Value
		case router.HeaderIndex:
			index = h.Value
		case sink.HeaderSource:
			source = h.Value
		}
	}
	by, committed, ok := sink.ParseSignature(source)
	at, lsnErr := pglogrepl.ParseLSN(string(lsn))
	n, indexErr := strconv.ParseUint(string(index), 10, 32)
	if !ok || errors.Join(lsnErr, indexErr) != nil || at == 0 {
		return audit.Position{}
	}
	return audit.Position{Source: by, LSN: uint64(at), Index: uint32(n),
		Time: committed.UnixMicro()}
}
