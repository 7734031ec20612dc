package conformance

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// difference is one member of one record that is not as Debezium wrote it.
type difference struct {
	member string // topic, partition, key, value, headers, timestamp, error or count
	text   string
}

// result is what postrider made of a case.
type result struct {
	records map[string]map[int32][]*kgo.Record // by topic and partition, in order
	failure error                              // what ended the case
	from    time.Time                          // no record was committed before
}

// compare lists what differs from the recording.
func (g *golden) compare(got *result) []difference {
	var all []difference
	if len(g.SeenOutcomes) > 0 {
		for i := range g.SeenOutcomes {
			if all = g.with(&g.SeenOutcomes[i]).compareOne(got); len(all) == 0 {
				return nil
			}
		}
	}
	return g.compareOne(got)
}

// with is the recording with another of the outcomes that were seen.
func (g *golden) with(o *outcome) *golden {
	c := *g
	c.SeenOutcomes, c.Error, c.Volatile = nil, o.Error, nil
	if o.Error != nil {
		c.Records = nil
	}
	if o.Value != nil {
		c.Records = slices.Clone(g.Records)
		c.Records[0].Value = *o.Value
	}
	return &c
}

func (g *golden) compareOne(got *result) []difference {
	var d []difference
	switch {
	case g.varies("error"):
	case g.Error != nil && got.failure == nil:
		d = append(d, difference{"error", fmt.Sprintf("Debezium fails: %s: %s; postrider does not", g.Error.Class, g.Error.Message)})
	case g.Error == nil && got.failure != nil:
		d = append(d, difference{"error", fmt.Sprintf("postrider fails: %v", got.failure)})
	}
	left := map[string]map[int32][]*kgo.Record{}
	for topic, partitions := range got.records {
		left[topic] = map[int32][]*kgo.Record{}
		for p, records := range partitions {
			left[topic][p] = records
		}
	}
	for i := range g.Records {
		want := &g.Records[i]
		r := g.next(left, want)
		if r == nil {
			d = append(d, difference{"count", fmt.Sprintf("record %d is missing: topic %q, partition %s, key %s", i, want.Topic, number(want.Partition), want.Key)})
			continue
		}
		d = append(d, g.compareRecord(i, want, r, got.from)...)
	}
	if !g.varies("count") {
		for topic, partitions := range left {
			for p, records := range partitions {
				for _, r := range records {
					d = append(d, difference{"count", fmt.Sprintf("a record too many: topic %q, partition %d, time %d, key %q, value %.200q", topic, p, r.Timestamp.UnixMilli(), r.Key, r.Value)})
				}
			}
		}
	}
	return d
}

// next takes the record that stands where the recording has one: the next in its topic and partition. One in another place is
// taken if there is none, so that what differs is named.
func (g *golden) next(left map[string]map[int32][]*kgo.Record, want *record) *kgo.Record {
	pop := func(topic string, p int32) *kgo.Record {
		records := left[topic][p]
		if len(records) == 0 {
			return nil
		}
		left[topic][p] = records[1:]
		return records[0]
	}
	if want.Partition != nil {
		if r := pop(want.Topic, *want.Partition); r != nil {
			return r
		}
	}
	for _, exact := range []bool{true, false} {
		for topic, partitions := range left {
			if topic != want.Topic && exact {
				continue
			}
			for p, records := range partitions {
				if len(records) > 0 && (!exact || want.Value.equal(records[0].Value) || want.Partition != nil) {
					return pop(topic, p)
				}
			}
		}
	}
	return nil
}

func (g *golden) compareRecord(i int, want *record, r *kgo.Record, from time.Time) []difference {
	var d []difference
	differ := func(member, format string, args ...any) {
		d = append(d, difference{member, fmt.Sprintf("record %d: %s: ", i, member) + fmt.Sprintf(format, args...)})
	}
	if want.Topic != r.Topic {
		differ("topic", "want %q, got %q", want.Topic, r.Topic)
	}
	if want.Partition != nil && *want.Partition != r.Partition && !g.varies("partition") {
		differ("partition", "want %d, got %d", *want.Partition, r.Partition)
	}
	content := func(member string, want content, got []byte) {
		switch {
		case g.varies(member):
			if want.null != (got == nil) {
				differ(member, "want null: %t, got null: %t", want.null, got == nil)
			}
		case !want.equal(got):
			differ(member, "%s", firstDifference(want, got))
		}
	}
	content("key", want.Key, r.Key)
	content("value", want.Value, r.Value)
	for j := range max(len(want.Headers), len(r.Headers)) {
		switch {
		case j >= len(r.Headers):
			differ("headers", "%d: %s is missing", j, want.Headers[j].name)
		case j >= len(want.Headers):
			differ("headers", "%d: %s = %q is one too many", j, r.Headers[j].Key, r.Headers[j].Value)
		case want.Headers[j].name != r.Headers[j].Key:
			differ("headers", "%d: want %s, got %s", j, want.Headers[j].name, r.Headers[j].Key)
		default:
			content("headers", want.Headers[j].value, r.Headers[j].Value)
		}
	}
	switch ms := want.Timestamp.(type) {
	case float64:
		if int64(ms) != r.Timestamp.UnixMilli() {
			differ("timestamp", "want %d, got %d", int64(ms), r.Timestamp.UnixMilli())
		}
	default:
		if r.Timestamp.Before(from.Add(-time.Second)) || r.Timestamp.After(time.Now().Add(time.Second)) {
			differ("timestamp", "want the clock, got %s", r.Timestamp)
		}
	}
	return d
}

// firstDifference shows both sides around the first byte that differs.
func firstDifference(want content, got []byte) string {
	if want.sha256 != "" {
		return fmt.Sprintf("want bytes with SHA-256 %s, got %d others", want.sha256, len(got))
	}
	if want.null || got == nil {
		return fmt.Sprintf("want %s, got %s", want, shown(got))
	}
	at := 0
	for at < min(len(want.bytes), len(got)) && want.bytes[at] == got[at] {
		at++
	}
	around := func(b []byte) []byte { return b[max(0, at-60):min(len(b), at+60)] }
	return fmt.Sprintf("differ from byte %d on\n  want %q\n  got  %q", at, around(want.bytes), around(got))
}

func (c content) String() string {
	switch {
	case c.null:
		return "null"
	case c.sha256 != "":
		return "SHA-256 " + c.sha256
	}
	return shown(c.bytes)
}

func shown(b []byte) string {
	if b == nil {
		return "null"
	}
	if len(b) > 200 {
		return fmt.Sprintf("%q and so on, %d bytes", bytes.Clone(b[:200]), len(b))
	}
	return fmt.Sprintf("%q", b)
}

func number(p *int32) string {
	if p == nil {
		return "any"
	}
	return fmt.Sprint(*p)
}
