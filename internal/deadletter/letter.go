package deadletter

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/sink"
)

// overhead bounds the bytes of a record beside key, value and headers.
const overhead = 1 << 10

// writer makes the records of dead letters; it does not send them.
type writer struct {
	topic  string
	source string
	limit  int // of a record of the topic, in bytes
	now    func() time.Time
}

// errNowhere: a logical message is too large. No claim can refer to it.
var errNowhere = fmt.Errorf("%w for the dead-letter topic, and a logical message is in no table "+
	"to which a dead letter could refer", sink.ErrTooLarge)

// row is a row or logical message that becomes a dead letter.
type row struct {
	Letter
	ev     *replication.Event // nil: only the message is known
	m      *sink.Message      // nil: it could not be routed
	origin sink.Origin
}

func newRow(source string, ev *replication.Event, m *sink.Message) *row {
	r := &row{ev: ev, m: m}
	if m != nil {
		r.Letter = Letter{Topic: m.Topic, Key: bytes.Clone(m.Key), Partition: m.Partition,
			Timestamp: m.Timestamp}
		r.origin = m.Origin
	} else {
		r.Partition = sink.ByKey
		r.origin = sink.Origin{LSN: ev.LSN, Index: ev.Index, CommitTime: ev.Time}
		r.origin.Relation, r.origin.EventID = describe(ev)
	}
	r.Source, r.position = source, position{r.origin.LSN, r.origin.Index}
	r.Relation, r.CommitTime = r.origin.Relation, r.origin.CommitTime
	r.ID = idOf(source, r.Relation, r.position, r.CommitTime)
	return r
}

// letter makes the record of a dead letter: a message, a row or, where it is too large, a claim.
func (w *writer) letter(r *row, p Poison, parks bool) (*sink.Message, error) {
	r.Cause, r.Reason, r.Error, r.Parks = p.Cause, p.Reason, errorText(p.Err), parks
	r.Position, r.EventID, r.At = r.position.String(), r.origin.EventID, w.now()
	out := &sink.Message{Topic: w.topic, Partition: sink.ByKey, Key: r.Key, Origin: r.origin}
	var err error
	if p.Cause != TooLarge {
		if r.m != nil {
			r.Form, out.Value = FormMessage, r.m.Value
			out.Headers = r.headers(r.m.Headers)
		} else {
			r.Form = FormRow
			out.Headers = r.headers(nil)
			if out.Value, err = documentOf(r.ev).encode(); err != nil {
				return nil, err
			}
		}
		if out.Size()+overhead <= w.limit {
			return out, nil
		}
	}
	if strings.HasPrefix(r.Relation, "message:") {
		return nil, errNowhere
	}
	return out, w.claim(out, r)
}

// claim sets form, headers and value of a claim. If it is too large, it omits the message's own
// headers, then the columns.
func (w *writer) claim(out *sink.Message, r *row) (err error) {
	d := Document{Kind: "insert", Relation: r.Relation, OID: r.origin.OID}
	if r.ev != nil {
		d = claimOf(r.ev)
		d.Size = r.ev.Oversize
	}
	d.EventID, d.Position = r.EventID, r.Position
	var own []sink.Header
	if r.m != nil {
		own = r.m.Headers
		if d.Size == 0 { // else the message has a part of the row only
			sum := sha256.Sum256(r.m.Value)
			d.Size, d.SHA256 = int64(r.m.Size()), hex.EncodeToString(sum[:])
		}
	}
	if d.Size == 0 {
		for _, v := range r.ev.Values {
			d.Size += int64(len(v))
		}
	}
	r.Form, r.Size, r.SHA256 = FormClaim, d.Size, d.SHA256
	out.Headers = r.headers(own)
	if out.Value, err = d.encode(); err != nil || out.Size()+overhead <= w.limit {
		return err
	}
	out.Headers = r.headers(nil)
	if out.Size()+overhead > w.limit {
		d.Columns = nil
		out.Value, err = d.encode()
	}
	return err
}

func (d Document) encode() ([]byte, error) {
	value, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("describe a row: %w", err)
	}
	return value, nil
}

// describe returns the relation of an event and, as its id, the first short key column. With
// REPLICA IDENTITY FULL it is not known which column names the row.
func describe(ev *replication.Event) (relation, id string) {
	if ev.Kind == replication.Message {
		return "message:" + ev.Prefix, ""
	}
	if ev.Relation == nil {
		return "", ""
	}
	columns := ev.Relation.Columns
	other := func(c replication.Column) bool { return !c.Key }
	if len(columns) > 1 && !slices.ContainsFunc(columns, other) {
		return ev.Relation.String(), ""
	}
	for i, c := range columns {
		if c.Key && i < len(ev.Values) && len(ev.Values[i]) <= maxKeyColumn {
			return ev.Relation.String(), string(ev.Values[i])
		}
	}
	return ev.Relation.String(), ""
}
