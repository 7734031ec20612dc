package deadletter

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/postrider/postrider/sink"
)

// Headers of the records of the dead-letter topic. They follow the message's own headers.
const (
	prefix           = "postrider.dead_letter."
	HeaderForm       = prefix + "form"        // Form
	HeaderID         = prefix + "id"          // ID
	HeaderCause      = prefix + "cause"       // Cause, or Parked
	HeaderReason     = prefix + "reason"      // as in the log: null_route, too_large, ...
	HeaderError      = prefix + "error"       // for people, shortened
	HeaderTopic      = prefix + "topic"       // of the message, if known
	HeaderPartition  = prefix + "partition"   // of the message, if the row sets it
	HeaderTimestamp  = prefix + "timestamp"   // of the message, Unix milliseconds
	HeaderRelation   = prefix + "relation"    // schema-qualified table, or "message:<prefix>"
	HeaderEventID    = prefix + "event_id"    // text of the id column
	HeaderPosition   = prefix + "position"    // commit LSN / index in the transaction
	HeaderCommitTime = prefix + "commit_time" // RFC 3339, by the server's clock
	HeaderSource     = prefix + "source"      // sink.Source.Header
	HeaderParks      = prefix + "parks"       // "true": parks the key
	HeaderSize       = prefix + "size"        // of a claim: bytes of the message, else of the row
	HeaderSHA256     = prefix + "sha256"      // of a claim's value, hexadecimal, if known
	HeaderAt         = prefix + "at"          // RFC 3339, by the relay's clock
)

// ParseSource returns the system identifier and the slot in a value of HeaderSource. It leaves out
// the timeline, which changes with each promotion. ok is false for another text.
func ParseSource(value []byte) (system, slot string, ok bool) {
	part := strings.SplitN(string(value), "/", 4)
	if len(part) != 4 {
		return "", "", false
	}
	return part[0], part[2], true
}

// HeaderRedriven is the ID of the dead letter, on a message that was redriven. Such a message is
// out of order, so it has no position headers: consumers would take it for a repeat.
const HeaderRedriven = sink.HeaderRedriven

// Form is the kind of a record of the dead-letter topic.
type Form string

// The forms. The first three are dead letters.
const (
	FormMessage    Form = "message"    // the message as it was routed
	FormRow        Form = "row"        // a Document of a row that could not be routed
	FormClaim      Form = "claim"      // a Document by which to find the row
	FormResolution Form = "resolution" // a Resolution
	FormUnparked   Form = "unparked"   // an Unparked
)

// Parked is the cause of a dead letter whose row could be delivered, but whose key was parked.
const Parked Cause = "parked"

// ID identifies a dead letter.
type ID [12]byte

func (id ID) String() string { return hex.EncodeToString(id[:]) }

// MarshalText implements encoding.TextMarshaler.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *ID) UnmarshalText(text []byte) error {
	b, err := hex.DecodeString(string(text))
	if err != nil || len(b) != len(id) {
		return fmt.Errorf("%q is no ID of a dead letter: an ID has %d hexadecimal digits",
			text, 2*len(id))
	}
	*id = ID(b)
	return nil
}

// idOf returns the ID for a row: always the same. The commit time distinguishes rows of copies of
// the database, the relation a row from a logical message at the same position.
func idOf(source, relation string, p position, commitTime time.Time) ID {
	text := []byte(source + "\x00" + relation + "\x00")
	text = binary.BigEndian.AppendUint64(text, uint64(p.lsn))
	text = binary.BigEndian.AppendUint32(text, p.index)
	text = binary.BigEndian.AppendUint64(text, uint64(commitTime.UnixMicro())) //nolint:gosec // ID
	sum := sha256.Sum256(text)
	return ID(sum[:len(ID{})])
}

// position is the place of an event among the commits. Only positions of one source compare.
type position struct {
	lsn   pglogrepl.LSN // of the commit
	index uint32
}

func (p position) compare(q position) int {
	return cmp.Or(cmp.Compare(p.lsn, q.lsn), cmp.Compare(p.index, q.index))
}

func (p position) before(q position) bool { return p.compare(q) < 0 }

func (p position) String() string { return fmt.Sprintf("%s/%d", p.lsn, p.index) }

func parsePosition(text string) (p position, err error) {
	at := strings.LastIndexByte(text, '/')
	if at < 0 {
		return p, fmt.Errorf("position %q", text)
	}
	if p.lsn, err = pglogrepl.ParseLSN(text[:at]); err != nil {
		return p, fmt.Errorf("position %q: %w", text, err)
	}
	n, err := strconv.ParseUint(text[at+1:], 10, 32)
	p.index = uint32(n)
	if err == nil && p.String() != text { // ParseLSN takes 0/1949F48x for 0/1949F48
		err = fmt.Errorf("position %q", text)
	}
	return p, err
}

// Address is a topic and a key: their messages keep their order.
type Address struct{ Topic, Key string }

// Letter is a dead letter without its payload.
type Letter struct {
	ID         ID
	Form       Form
	Cause      Cause
	Reason     string
	Error      string
	Topic      string // of the message; empty: not known
	Key        []byte // of the message; nil: none, or not known
	Partition  int32  // of the message, if the row sets it; else sink.ByKey
	Timestamp  time.Time
	Relation   string
	EventID    string
	Position   string // commit LSN / index
	CommitTime time.Time
	Source     string // sink.Source.Header
	Parks      bool
	Size       int64
	SHA256     string
	At         time.Time

	InPartition int32 // of the dead-letter topic
	Offset      int64
	position    position
}

// Address returns topic and key of the message. They are known if the dead letter parks.
func (l *Letter) Address() Address { return Address{l.Topic, string(l.Key)} }

// Resolution is the value of a record: dead letters were redriven or discarded.
type Resolution struct {
	Action  string    `json:"action"` // redriven or discarded
	Letters []ID      `json:"letters"`
	Who     string    `json:"who"` // user@host
	At      time.Time `json:"at"`
	Hold    bool      `json:"hold,omitempty"` // rows of their keys wait for the next resolution
}

// The actions of a Resolution.
const (
	Redriven  = "redriven"
	Discarded = "discarded"
)

// Unparked is the value of a record: the relay publishes the rows of a key again.
type Unparked struct {
	Topic string    `json:"topic"`
	Key   []byte    `json:"key"` // base64
	At    time.Time `json:"at"`
}

// entry is a parsed record: one of the three is set.
type entry struct {
	letter     *Letter
	resolution *Resolution
	unparked   *Unparked
}

// parse parses a record of the dead-letter topic. The entry is empty for an unknown form.
func parse(m *sink.Message, offset int64) (e entry, err error) {
	h := headersOf(m)
	form := Form(h[HeaderForm])
	switch form {
	case FormMessage, FormRow, FormClaim:
		e.letter, err = parseLetter(form, m, h, offset)
	case FormResolution:
		e.resolution = new(Resolution)
		err = json.Unmarshal(m.Value, e.resolution)
	case FormUnparked:
		e.unparked = new(Unparked)
		err = json.Unmarshal(m.Value, e.unparked)
	}
	if err != nil {
		return entry{}, fmt.Errorf("record of the form %s at offset %d of partition %d: %w", form,
			offset, m.Partition, err)
	}
	return e, nil
}

// headersOf returns the dead letter's headers: the last of each name, after the message's.
func headersOf(m *sink.Message) map[string]string {
	h := map[string]string{}
	for _, header := range m.Headers {
		if strings.HasPrefix(header.Key, prefix) {
			h[header.Key] = string(header.Value)
		}
	}
	return h
}

// headers returns own, the message's headers, followed by those of the dead letter.
func (l *Letter) headers(own []sink.Header) []sink.Header {
	all := make([]sink.Header, 0, len(own)+17)
	all = append(all, own...)
	add := func(key, value string) {
		all = append(all, sink.Header{Key: key, Value: []byte(value)})
	}
	for _, h := range [...][2]string{
		{HeaderForm, string(l.Form)}, {HeaderID, l.ID.String()}, {HeaderCause, string(l.Cause)},
		{HeaderReason, l.Reason}, {HeaderError, l.Error}, {HeaderPosition, l.Position},
		{HeaderCommitTime, l.CommitTime.UTC().Format(time.RFC3339Nano)},
		{HeaderSource, l.Source}, {HeaderRelation, l.Relation}, {HeaderEventID, l.EventID},
		{HeaderAt, l.At.UTC().Format(time.RFC3339Nano)},
		{HeaderParks, strconv.FormatBool(l.Parks)},
	} {
		add(h[0], h[1])
	}
	if l.Topic != "" {
		add(HeaderTopic, l.Topic)
	}
	if l.Partition != sink.ByKey {
		add(HeaderPartition, strconv.Itoa(int(l.Partition)))
	}
	if !l.Timestamp.IsZero() {
		add(HeaderTimestamp, strconv.FormatInt(l.Timestamp.UnixMilli(), 10))
	}
	if l.SHA256 != "" {
		add(HeaderSHA256, l.SHA256)
	}
	if l.Form == FormClaim {
		add(HeaderSize, strconv.FormatInt(l.Size, 10))
	}
	return all
}

// parseLetter parses the headers of a dead letter.
func parseLetter(form Form, m *sink.Message, h map[string]string, offset int64) (*Letter, error) {
	l := &Letter{InPartition: m.Partition, Offset: offset,
		Form: form, Cause: Cause(h[HeaderCause]), Reason: h[HeaderReason], Error: h[HeaderError],
		Topic: h[HeaderTopic], Key: m.Key, Partition: sink.ByKey,
		Relation: h[HeaderRelation], EventID: h[HeaderEventID], Position: h[HeaderPosition],
		Source: h[HeaderSource], Parks: h[HeaderParks] == "true", SHA256: h[HeaderSHA256],
	}
	var err error
	if err = l.ID.UnmarshalText([]byte(h[HeaderID])); err != nil {
		return nil, err
	}
	if l.position, err = parsePosition(l.Position); err != nil {
		return nil, err
	}
	// The order does not depend on the rest: what cannot be parsed is omitted.
	if n, err := strconv.ParseInt(h[HeaderPartition], 10, 32); err == nil {
		l.Partition = int32(n)
	}
	if n, err := strconv.ParseInt(h[HeaderTimestamp], 10, 64); err == nil {
		l.Timestamp = time.UnixMilli(n).UTC()
	}
	l.Size, _ = strconv.ParseInt(h[HeaderSize], 10, 64)
	l.CommitTime, _ = time.Parse(time.RFC3339Nano, h[HeaderCommitTime])
	l.At, _ = time.Parse(time.RFC3339Nano, h[HeaderAt])
	return l, nil
}

// originalMessage returns the message of a dead letter of the form message, as it was routed.
func originalMessage(l *Letter, m *sink.Message) *sink.Message {
	out := &sink.Message{Topic: l.Topic, Key: m.Key, Value: m.Value, Partition: l.Partition,
		Timestamp: l.Timestamp}
	for _, h := range m.Headers {
		if !strings.HasPrefix(h.Key, prefix) {
			out.Headers = append(out.Headers, h)
		}
	}
	return out
}
