package audit

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/sink"
)

// CompareReport is the result of a comparison, or its state so far.
type CompareReport struct {
	Compared  int64 `json:"compared"` // events that both sides have
	Equal     int64 `json:"equal"`
	Differing int64 `json:"differing"`
	// Members counts the events that differ in topic, partition, key, value, timestamp,
	// "header NAME" or "header order".
	Members       map[string]int64 `json:"members"`
	OnlyPostrider int64            `json:"only_postrider"` // messages that only postrider has
	OnlyOther     int64            `json:"only_other"`     // messages that only the other relay has
	Duplicated    int64            `json:"duplicated"`     // repetitions of the other relay
	OutOfOrder    int64            `json:"out_of_order"`   // pairs, within their key
	Late          int64            `json:"late"`           // messages of the other after Settle
	GivenUp       int64            `json:"given_up"`       // messages not waited for
	LeftAside     int64            `json:"left_aside"`     // of the other, from before the start
	Clocks        int64            `json:"timestamps_not_compared"`
	NoPartition   int64            `json:"partitions_not_compared"`
	Postrider     int64            `json:"postrider_messages"`
	Other         int64            `json:"other_messages"`
	Waiting       int              `json:"waiting"` // unmatched messages
	Hints         []Hint           `json:"hints,omitempty"`
	Differences   []Difference     `json:"differences,omitempty"` // the first
	Unmatched     []Unmatched      `json:"unmatched,omitempty"`   // the first
}

// Same reports whether the two sides have at least one event, and the same events.
func (r *CompareReport) Same() bool {
	return r.Compared > 0 && r.Differing == 0 && r.OnlyPostrider == 0 && r.OnlyOther == 0 &&
		r.Duplicated == 0 && r.OutOfOrder == 0 && r.Late == 0 && r.GivenUp == 0
}

// Hint is a configuration key that would remove differences, and their number.
type Hint struct {
	Text  string `json:"text"`
	Count int64  `json:"count"`
}

// Difference is one event that differs. Partition and Offset are those of the other relay's
// record.
type Difference struct {
	EventID   string   `json:"event_id"`
	LSN       string   `json:"lsn"`
	Table     string   `json:"table"`
	Topic     string   `json:"topic"`
	Partition int32    `json:"partition"`
	Offset    int64    `json:"offset"`
	Members   []Member `json:"members"`
}

// Member is one part of a message that differs. Values are quoted, with escapes; null and missing
// are not quoted.
type Member struct {
	Name   string `json:"member"`
	At     int    `json:"first_differing_byte"`
	Ours   string `json:"postrider"`
	Theirs string `json:"other"`
	Hint   string `json:"hint,omitempty"`
}

// Unmatched is a message that only one side has.
type Unmatched struct {
	Side      string `json:"side"` // that has the message: postrider or other
	EventID   string `json:"event_id,omitempty"`
	LSN       string `json:"lsn,omitempty"`
	Table     string `json:"table,omitempty"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Key       string `json:"key"`
	Value     string `json:"value"`
}

// volatileHeaders have other values in each run of a connector. They are not compared.
var volatileHeaders = map[string]bool{
	"__debezium.context.runId":         true,
	"__debezium.context.taskId":        true,
	"__debezium.context.connectorName": true,
}

// compareLocked lists the differences of two messages of the same event.
func (c *Comparison) compareLocked(ours, theirs *sink.Message) []Member {
	p := &pair{ours: ours, theirs: theirs}
	if ours.Topic != theirs.Topic {
		p.differ("topic", []byte(ours.Topic), []byte(theirs.Topic))
	}
	p.content("key", ours.Key, theirs.Key)
	partition, known := c.cfg.Partition(ours)
	switch {
	case !known:
		c.report.NoPartition++
	case ours.Topic == theirs.Topic && partition != theirs.Partition:
		p.differ("partition", fmt.Append(nil, partition), fmt.Append(nil, theirs.Partition))
	}
	p.content("value", ours.Value, theirs.Value)
	p.headers()
	switch {
	// If the column is NULL, the timestamp is the time of the commit.
	case !c.cfg.TimeColumn(ours.Origin.Relation), ours.Timestamp.Equal(ours.Origin.CommitTime):
		c.report.Clocks++
	case ours.Timestamp.UnixMilli() != theirs.Timestamp.UnixMilli():
		p.differ("timestamp", timeText(ours.Timestamp), timeText(theirs.Timestamp))
	}
	return p.members
}

type pair struct {
	ours, theirs *sink.Message
	members      []Member
}

func (p *pair) differ(name string, ours, theirs []byte) {
	at := firstDifference(ours, theirs)
	p.members = append(p.members, Member{
		Name: name, At: at, Ours: quote(ours, at), Theirs: quote(theirs, at),
		Hint: p.hint(name, ours, theirs),
	})
}

func firstDifference(a, b []byte) (at int) {
	for at < min(len(a), len(b)) && a[at] == b[at] {
		at++
	}
	return at
}

func (p *pair) content(name string, ours, theirs []byte) {
	if !bytes.Equal(ours, theirs) || (ours == nil) != (theirs == nil) {
		p.differ(name, ours, theirs)
	}
}

// headers compares the headers by name, so that those after a missing one do not differ. Then it
// compares the order of the headers that both sides have.
func (p *pair) headers() {
	matched := make([]bool, len(p.theirs.Headers))
	order := []int{} // indexes of theirs, in our order
	for _, h := range p.ours.Headers {
		found := -1
		for j, t := range p.theirs.Headers {
			if t.Key == h.Key && !matched[j] {
				found = j
				break
			}
		}
		if found < 0 {
			p.oneSided(h, true)
			continue
		}
		matched[found] = true
		order = append(order, found)
		if !volatileHeaders[h.Key] && !sameTrace(h, p.theirs.Headers[found]) {
			p.content("header "+h.Key, h.Value, p.theirs.Headers[found].Value)
		}
	}
	for j, t := range p.theirs.Headers {
		if !matched[j] {
			p.oneSided(t, false)
		}
	}
	if !slices.IsSorted(order) {
		p.members = append(p.members, Member{
			Name: "header order", Ours: names(p.ours.Headers), Theirs: names(p.theirs.Headers),
		})
	}
}

func (p *pair) oneSided(h sink.Header, ours bool) {
	m := Member{
		Name: "header " + h.Key, Ours: quote(h.Value, 0), Theirs: "missing",
		Hint: headerHint(h.Key, ours),
	}
	if !ours {
		m.Ours, m.Theirs = m.Theirs, m.Ours
	}
	p.members = append(p.members, m)
}

// sameTrace reports whether two headers are traceparent and differ in the span alone.
func sameTrace(a, b sink.Header) bool {
	one, other := bytes.Split(a.Value, []byte("-")), bytes.Split(b.Value, []byte("-"))
	if a.Key != "traceparent" || len(one) != 4 || len(other) != 4 {
		return false
	}
	one[2] = other[2]
	return bytes.Equal(bytes.Join(one, nil), bytes.Join(other, nil))
}

func names(headers []sink.Header) string {
	var keys []string
	for _, h := range headers {
		keys = append(keys, h.Key)
	}
	return strings.Join(keys, ", ")
}

// quote returns 40 bytes on either side of an offset, with escapes. ... marks omitted bytes.
func quote(b []byte, at int) string {
	const around = 40
	if b == nil {
		return "null"
	}
	from, to := max(0, min(at, len(b))-around), min(len(b), at+around)
	text := strconv.Quote(string(b[from:to]))
	if from > 0 {
		text = "..." + text
	}
	if to < len(b) {
		text += fmt.Sprintf("... (%d bytes)", len(b))
	}
	return text
}

func timeText(t time.Time) []byte {
	if t.IsZero() {
		return []byte("the producer's clock")
	}
	return []byte(t.UTC().Format("2006-01-02T15:04:05.000Z"))
}
