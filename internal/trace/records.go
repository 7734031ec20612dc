package trace

import (
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/internal/audit"
	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
)

// logAppendTime is kgo.RecordAttrs.TimestampType of a time that the broker sets.
const logAppendTime = 1

// idOf returns the value of the header with the id; nil: there is none.
func idOf(r *kgo.Record, headers []string) []byte {
	for i := range r.Headers {
		if slices.Contains(headers, r.Headers[i].Key) {
			return r.Headers[i].Value
		}
	}
	return nil
}

// recordOf describes a record, of which it keeps no bytes.
func recordOf(r *kgo.Record, id []byte) Record {
	out := Record{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Key: textOf(r.Key),
		Timestamp: r.Timestamp.UTC(), TimestampType: "CreateTime", Bytes: size(r),
		id: string(audit.PlainText(id))}
	if r.Attrs.TimestampType() == logAppendTime {
		out.TimestampType = "LogAppendTime"
	}
	for _, h := range r.Headers { // the relay's are the last
		switch h.Key {
		case router.HeaderLSN:
			if _, err := postgres.ParseLSN(string(h.Value)); err == nil {
				out.LSN = string(h.Value)
			}
		case router.HeaderIndex:
			if n, err := strconv.ParseUint(string(h.Value), 10, 32); err == nil {
				out.Index = new(uint32(n))
			}
		case sink.HeaderSource:
			if source, committed, ok := sink.ParseSignature(h.Value); ok {
				out.source, out.commitTime = string(source), committed.UTC()
			}
		case sink.HeaderRedriven:
			out.Redriven = string(h.Value)
		}
	}
	return out
}

// ownPosition reports whether a position of a source compares with those of our slot.
func (s *search) ownPosition(source string) bool {
	system, slot, ok := deadletter.ParseSource([]byte(source))
	return ok && slot == s.cfg.Slot.Name && (s.system == "" || system == s.system)
}

// addRecords makes events of the records of a topic without rows: the records of one id are one
// event.
func (s *search) addRecords(records []Record) {
	byID := map[string]*event{}
	for _, r := range records {
		e := byID[r.id]
		if e == nil {
			e = s.letterOnly(r.id)
		}
		if e == nil {
			e = &event{hash: -1, partition: -1, topic: r.Topic}
			e.ID = r.id
			s.events = append(s.events, e)
		}
		byID[r.id] = e
		e.Records = append(e.Records, r)
	}
}

// letterOnly is an event of which only a dead letter is known so far.
func (s *search) letterOnly(id string) *event {
	for _, e := range s.events {
		if e.Row == nil && e.ID == id && len(e.Letters) > 0 {
			return e
		}
	}
	return nil
}
