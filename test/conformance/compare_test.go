package conformance

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// difference is one member of one record that is not as Debezium wrote it.
type difference struct {
	member string // one of the constants below
	text   string
}

const (
	memberTopic     = "topic"
	memberPartition = "partition"
	memberKey       = "key"
	memberValue     = "value"
	memberHeaders   = "headers"
	memberTimestamp = "timestamp"
	memberError     = "error" // one of both fails, the other does not
	memberCount     = "count" // a record is missing, or is too many
	memberRun       = "run"   // the case could not be run; never a deviation
)

// result is what postrider made of a case.
type result struct {
	records map[string]map[int32][]*kgo.Record // by topic and partition, in order
	failure error                              // what ended the case
	from    time.Time                          // no record was committed before
}

// compare lists what differs from the recording; where Debezium had several outcomes, from the one that was recorded, unless it is
// one of the others.
func (g *golden) compare(got *result) []difference {
	for i := range g.SeenOutcomes {
		if len(g.with(&g.SeenOutcomes[i]).compareOne(got)) == 0 {
			return nil
		}
	}
	if len(g.SeenOutcomes) > 0 {
		g = g.with(&outcome{Error: g.Error, Records: g.Records}) // what varies between the outcomes must still be one of them
	}
	return g.compareOne(got)
}

// with is the recording with another of the outcomes that were seen.
func (g *golden) with(o *outcome) *golden {
	c := *g
	c.SeenOutcomes, c.Error = nil, o.Error
	c.Volatile = slices.DeleteFunc(slices.Clone(g.Volatile), func(m string) bool { return m == memberValue || m == memberError })
	switch {
	case o.Records != nil:
		c.Records = o.Records
	case o.Error != nil:
		c.Records = nil
	case o.Value != nil && len(g.Records) > 0:
		c.Records = slices.Clone(g.Records)
		c.Records[0].Value = *o.Value
	}
	return &c
}

func (g *golden) compareOne(got *result) []difference {
	var d []difference
	switch {
	case g.Error != nil && got.failure == nil:
		d = append(d, difference{memberError, fmt.Sprintf("Debezium fails: %s: %s; postrider does not", g.Error.Class, g.Error.Message)})
	case g.Error == nil && got.failure != nil:
		d = append(d, difference{memberError, fmt.Sprintf("postrider fails: %v", got.failure)})
	}
	left := map[string]map[int32][]*kgo.Record{}
	for topic, partitions := range got.records {
		left[topic] = maps.Clone(partitions)
	}
	came := map[string]bool{} // topics
	for i := range g.Records {
		want := &g.Records[i]
		r := g.next(left, want)
		switch {
		case r != nil:
			d = append(d, g.compareRecord(i, want, r, got.from)...)
		case g.varies(memberCount) && came[want.Topic]:
			// How often it came is of that run.
		default:
			d = append(d, difference{memberCount, fmt.Sprintf("record %d is missing: topic %q, partition %s, key %s", i, want.Topic, number(want.Partition), want.Key)})
			continue
		}
		came[want.Topic] = true
	}
	for topic, partitions := range left {
		for p, records := range partitions {
			for _, r := range records {
				d = append(d, difference{memberCount, fmt.Sprintf("a record too many: topic %q, partition %d, key %.200q, value %.200q", topic, p, r.Key, r.Value)})
			}
		}
	}
	return d
}

// next takes the record that stands where the recording has one: the first of those left in its topic and partition. If there is none, it
// takes the one that is most like it, so that what differs is named.
func (g *golden) next(left map[string]map[int32][]*kgo.Record, want *record) *kgo.Record {
	var best *kgo.Record
	most := -1
	for _, topic := range slices.Sorted(maps.Keys(left)) {
		if topic != want.Topic && g.varies(memberCount) {
			continue
		}
		for _, p := range slices.Sorted(maps.Keys(left[topic])) {
			if len(left[topic][p]) == 0 {
				continue
			}
			r, likeness := left[topic][p][0], 0
			for i, alike := range []bool{
				want.Key.equal(r.Key), want.Value.equal(r.Value),
				want.Partition != nil && *want.Partition == p && !g.varies(memberPartition), topic == want.Topic,
			} {
				if alike {
					likeness += 1 << i
				}
			}
			if likeness > most {
				best, most = r, likeness
			}
		}
	}
	if best != nil {
		left[best.Topic][best.Partition] = left[best.Topic][best.Partition][1:]
	}
	return best
}

func (g *golden) compareRecord(i int, want *record, r *kgo.Record, from time.Time) []difference {
	var d []difference
	differ := func(member, format string, args ...any) {
		d = append(d, difference{member, fmt.Sprintf("record %d: %s: ", i, member) + fmt.Sprintf(format, args...)})
	}
	if want.Topic != r.Topic {
		differ(memberTopic, "want %q, got %q", want.Topic, r.Topic)
	}
	if want.Partition != nil && *want.Partition != r.Partition && !g.varies(memberPartition) {
		differ(memberPartition, "want %d, got %d", *want.Partition, r.Partition)
	}
	content := func(member string, want content, got []byte) {
		switch {
		case g.varies(member):
			if want.null != (got == nil) {
				differ(member, "want %s, got %s", want, shown(got))
			}
		case !want.equal(got):
			differ(member, "%s", firstDifference(want, got))
		}
	}
	content(memberKey, want.Key, r.Key)
	content(memberValue, want.Value, r.Value)
	for j := range max(len(want.Headers), len(r.Headers)) {
		switch {
		case j >= len(r.Headers):
			differ(memberHeaders, "%d: %s is missing", j, want.Headers[j].name)
		case j >= len(want.Headers):
			differ(memberHeaders, "%d: %s = %q is one too many", j, r.Headers[j].Key, r.Headers[j].Value)
		case want.Headers[j].name != r.Headers[j].Key:
			differ(memberHeaders, "%d: want %s, got %s", j, want.Headers[j].name, r.Headers[j].Key)
		default:
			content(memberHeaders, want.Headers[j].value, r.Headers[j].Value)
		}
	}
	switch ms := want.Timestamp.(type) {
	case float64:
		if int64(ms) != r.Timestamp.UnixMilli() {
			differ(memberTimestamp, "want %d, got %d", int64(ms), r.Timestamp.UnixMilli())
		}
	default:
		if r.Timestamp.Before(from.Add(-time.Second)) || r.Timestamp.After(time.Now().Add(time.Second)) {
			differ(memberTimestamp, "want the clock, got %s", r.Timestamp)
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
