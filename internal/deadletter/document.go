package deadletter

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/postrider/postrider/replication"
)

// Document is the value of a dead letter of the form row or claim.
type Document struct {
	Kind     string `json:"kind"` // insert, update or message
	Relation string `json:"relation,omitempty"`
	Schema   string `json:"schema,omitempty"`
	Table    string `json:"table,omitempty"`
	OID      uint32 `json:"oid,omitempty"`
	XID      uint32 `json:"xid,omitempty"`
	// of a row all; of a claim those by which to find the row
	Columns []Column `json:"columns,omitempty"`
	Prefix  string   `json:"prefix,omitempty"`
	Content *Text    `json:"content,omitempty"`

	// Of a claim alone.
	EventID  string `json:"event_id,omitempty"` // text of the id column
	Position string `json:"position,omitempty"` // commit LSN / index in the transaction
	Size     int64  `json:"size,omitempty"`     // as in the header
	SHA256   string `json:"sha256,omitempty"`
}

// Column is a value in PostgreSQL's text format.
type Column struct {
	Name      string `json:"name"`
	Type      uint32 `json:"type"` // OID
	Modifier  int32  `json:"type_modifier"`
	Key       bool   `json:"key,omitempty"`       // part of the replica identity
	Value     *Text  `json:"value"`               // null: NULL
	Old       *Text  `json:"old,omitempty"`       // of an update
	Unchanged bool   `json:"unchanged,omitempty"` // of an update: the server did not send it
}

// Text is a JSON string, or {"base64": ...} for bytes that are no UTF-8.
type Text []byte

// MarshalJSON implements json.Marshaler.
func (t Text) MarshalJSON() ([]byte, error) {
	if utf8.Valid(t) {
		return json.Marshal(string(t))
	}
	return json.Marshal(map[string][]byte{"base64": t})
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *Text) UnmarshalJSON(document []byte) error {
	var s string
	if json.Unmarshal(document, &s) == nil {
		*t = Text(s)
		return nil
	}
	var b struct{ Base64 []byte }
	err := json.Unmarshal(document, &b)
	*t = b.Base64
	return err
}

func text(value []byte) *Text {
	if value == nil {
		return nil
	}
	return new(Text(value))
}

func (t *Text) bytes() []byte {
	if t == nil {
		return nil
	}
	return *t
}

// maxKeyColumn bounds a column of a claim, in bytes.
const maxKeyColumn = 4 << 10

// documentOf makes the document of an event: a row or logical message that was not routed.
func documentOf(ev *replication.Event) Document {
	d := Document{XID: ev.XID}
	switch ev.Kind {
	case replication.Message:
		d.Kind, d.Prefix, d.Content = "message", ev.Prefix, text(ev.Content)
		return d
	case replication.Update:
		d.Kind = "update"
	default:
		d.Kind = "insert"
	}
	rel := ev.Relation
	d.Relation, d.Schema, d.Table, d.OID = rel.String(), rel.Namespace, rel.Name, rel.OID
	for i, c := range rel.Columns {
		out := Column{Name: c.Name, Type: c.TypeOID, Modifier: c.TypeMod, Key: c.Key}
		switch {
		case i >= len(ev.Values):
		case replication.IsUnchanged(ev.Values[i]):
			out.Unchanged = true
		default:
			out.Value = text(ev.Values[i])
		}
		if i < len(ev.Old) {
			out.Old = text(ev.Old[i])
		}
		d.Columns = append(d.Columns, out)
	}
	return d
}

// claimOf makes the document of a claim: short key columns or, without any, all short columns.
func claimOf(ev *replication.Event) Document {
	d := documentOf(ev)
	d.Content = nil
	var keys, others []Column
	for _, c := range d.Columns {
		c.Old = nil
		switch {
		case c.Value == nil || len(*c.Value) > maxKeyColumn:
		case c.Key:
			keys = append(keys, c)
		default:
			others = append(others, c)
		}
	}
	d.Columns = keys
	if len(keys) == 0 {
		d.Columns = others
	}
	return d
}

// event returns the event of documentOf, without its position.
func (d Document) event() (*replication.Event, error) {
	ev := &replication.Event{XID: d.XID}
	switch d.Kind {
	case "message":
		ev.Kind, ev.Prefix, ev.Content = replication.Message, d.Prefix, d.Content.bytes()
		return ev, nil
	case "update":
		ev.Kind = replication.Update
	case "insert":
		ev.Kind = replication.Insert
	default:
		return nil, fmt.Errorf("rows of the kind %q are unknown to this version", d.Kind)
	}
	ev.Relation = &replication.Relation{OID: d.OID, Namespace: d.Schema, Name: d.Table}
	var old [][]byte
	hasOld := false
	for _, c := range d.Columns {
		ev.Relation.Columns = append(ev.Relation.Columns,
			replication.Column{Name: c.Name, TypeOID: c.Type, TypeMod: c.Modifier, Key: c.Key})
		value := c.Value.bytes()
		if c.Unchanged {
			value = replication.Unchanged
		}
		ev.Values, old = append(ev.Values, value), append(old, c.Old.bytes())
		hasOld = hasOld || c.Old != nil
	}
	if hasOld {
		ev.Old = old
	}
	return ev, nil
}

func parseDocument(value []byte) (d Document, err error) {
	if len(value) == 0 {
		return d, errors.New("it has no value")
	}
	if err := json.Unmarshal(value, &d); err != nil {
		return d, fmt.Errorf("read its document: %w", err)
	}
	return d, nil
}

const maxErrorText = 500

// errorText returns the text of an error, shortened and without control characters.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	clean := strings.Map(func(r rune) rune {
		if r < 0x20 || r >= 0x7f && r < 0xa0 || r == utf8.RuneError {
			return ' '
		}
		return r
	}, err.Error())
	if runes := []rune(clean); len(runes) > maxErrorText {
		clean = string(runes[:maxErrorText-1]) + "…"
	}
	return clean
}
