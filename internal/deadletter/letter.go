package deadletter

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/sink"
)

// overhead is room for what a record has beside key, value and headers.
const overhead = 1 << 10

// writer makes the records of letters.
type writer struct {
	topic  string
	source string
	limit  int // bytes of a record that the topic takes
	now    func() time.Time
}

// errNowhere is for what is too large and cannot be found again.
var errNowhere = errors.New("it is too large for the dead-letter topic, and a logical message " +
	"is in no table where a dead letter could point to")

// row is a row or logical message for which a letter is made, with what is known of it.
type row struct {
	ev       *replication.Event // nil: only the message is known
	m        *sink.Message      // nil: it could not be routed
	at       Address
	hasKey   bool
	origin   sink.Origin
	position position
	id       ID
}

func newRow(source string, ev *replication.Event, m *sink.Message) row {
	r := row{ev: ev, m: m}
	if m != nil {
		r.at, r.hasKey, r.origin = Address{m.Topic, string(m.Key)}, m.Key != nil, m.Origin
	} else {
		r.origin = sink.Origin{LSN: ev.LSN, Index: ev.Index, CommitTime: ev.Time}
		r.origin.Relation, r.origin.EventID = describe(ev)
	}
	r.position = position{r.origin.LSN, r.origin.Index}
	r.id = idOf(source, r.origin.Relation, r.position, r.origin.CommitTime)
	return r
}

// letter makes the record.
func (w *writer) letter(r row, p Poison, parks bool) (*sink.Message, error) {
	out := &sink.Message{Topic: w.topic, Partition: sink.ByKey, Origin: r.origin}
	if r.hasKey {
		out.Key = []byte(r.at.Key)
	}
	reasons := []sink.Header{
		{Key: HeaderID, Value: []byte(r.id.String())},
		{Key: HeaderCause, Value: []byte(p.Cause)},
		{Key: HeaderReason, Value: []byte(p.Reason)},
		{Key: HeaderError, Value: []byte(errorText(p.Err))},
		{Key: HeaderPosition, Value: []byte(r.position.String())},
		{Key: HeaderCommitTime, Value: []byte(r.origin.CommitTime.UTC().Format(time.RFC3339Nano))},
		{Key: HeaderSource, Value: []byte(w.source)},
		{Key: HeaderRelation, Value: []byte(r.origin.Relation)},
		{Key: HeaderEventID, Value: []byte(r.origin.EventID)},
		{Key: HeaderAt, Value: []byte(w.now().UTC().Format(time.RFC3339Nano))},
		{Key: HeaderParks, Value: strconv.AppendBool(nil, parks)},
	}
	add := func(key, value string) {
		reasons = append(reasons,
			sink.Header{Key: key, Value: []byte(value)})
	}
	if r.at.Topic != "" {
		add(HeaderTopic, r.at.Topic)
	}
	if m := r.m; m != nil {
		if m.Partition != sink.ByKey {
			add(HeaderPartition, strconv.Itoa(int(m.Partition)))
		}
		if !m.Timestamp.IsZero() {
			add(HeaderTimestamp, strconv.FormatInt(m.Timestamp.UnixMilli(), 10))
		}
	}
	if p.Cause != TooLarge {
		if err := w.whole(out, r, reasons); err != nil {
			return nil, err
		}
		if out.Size()+overhead <= w.limit {
			return out, nil
		}
	}
	if strings.HasPrefix(r.origin.Relation, "message:") {
		return nil, errNowhere
	}
	return out, w.claim(out, r, reasons)
}

// whole fills in a letter that has everything.
func (w *writer) whole(out *sink.Message, r row, reasons []sink.Header) error {
	if r.m != nil {
		out.Value, out.Headers = r.m.Value, join(r.m.Headers, reasons, FormMessage)
		return nil
	}
	value, err := json.Marshal(documentOf(r.ev))
	if err != nil {
		return fmt.Errorf("describe a row: %w", err)
	}
	out.Value, out.Headers = value, join(nil, reasons, FormRow)
	return nil
}

// claim fills in a letter that says where the row is. What would still be too long is left out,
// the message's own headers first.
func (w *writer) claim(out *sink.Message, r row, reasons []sink.Header) error {
	d := Document{Kind: "insert", Relation: r.origin.Relation, EventID: r.origin.EventID}
	if r.ev != nil {
		d = claimOf(r.ev)
		d.EventID, d.Size = r.origin.EventID, r.ev.Oversize
	}
	d.Position = r.position.String()
	var headers []sink.Header
	if r.m != nil && d.Size == 0 { // else the message was made of a part of the row
		sum := sha256.Sum256(r.m.Value)
		d.Size, d.SHA256 = int64(r.m.Size()), hex.EncodeToString(sum[:])
		reasons = append(reasons, sink.Header{Key: HeaderSHA256, Value: []byte(d.SHA256)})
	}
	if r.m != nil {
		headers = r.m.Headers
	}
	if d.Size == 0 {
		for _, v := range r.ev.Values {
			d.Size += int64(len(v))
		}
	}
	reasons = append(reasons, sink.Header{Key: HeaderSize,
		Value: strconv.AppendInt(nil, d.Size, 10)})
	value, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("describe a row: %w", err)
	}
	out.Value = value
	if out.Headers = join(headers, reasons, FormClaim); out.Size()+overhead <= w.limit {
		return nil
	}
	out.Headers = join(nil, reasons, FormClaim)
	if out.Size()+overhead > w.limit {
		d.Columns = nil
		if out.Value, err = json.Marshal(d); err != nil {
			return fmt.Errorf("describe a row: %w", err)
		}
	}
	return nil
}

func join(own, reasons []sink.Header, form Form) []sink.Header {
	all := make([]sink.Header, 0, len(own)+len(reasons)+1)
	all = append(all, own...)
	all = append(all, sink.Header{Key: HeaderForm, Value: []byte(form)})
	return append(all, reasons...)
}

// describe names an event that was not routed. Its id is the key column, if there is one: what the
// router would take is not known here.
func describe(ev *replication.Event) (relation, id string) {
	if ev.Kind == replication.Message {
		return "message:" + ev.Prefix, ""
	}
	if ev.Relation == nil {
		return "", ""
	}
	for i, c := range ev.Relation.Columns {
		if c.Key && i < len(ev.Values) && len(ev.Values[i]) <= maxKeyColumn {
			return ev.Relation.String(), string(ev.Values[i])
		}
	}
	return ev.Relation.String(), ""
}
