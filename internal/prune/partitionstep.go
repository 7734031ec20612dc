package prune

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// step is from the begin of one partition to that of the next. Exactly one is not zero.
type step struct {
	months int
	days   int
	width  time.Duration
	ids    int64
}

const day = 24 * time.Hour

// stepOf measures a range. Ranges of days and more are measured in days or months of the time zone
// in which they begin at midnight, so that a change to or from summer time makes no difference.
func stepOf(kind keyKind, s span) step {
	if kind == keyID {
		return step{ids: s.to.id - s.from.id}
	}
	from, to := localMidnight(s.from.at), localMidnight(s.to.at)
	moved := from.Sub(s.from.at) - to.Sub(s.to.at) // by which a change of summer time shows
	switch months := (to.Year()-from.Year())*12 + int(to.Month()-from.Month()); {
	case s.width() < shortest || moved.Abs() > 2*time.Hour:
		return step{width: s.width()}
	case months > 0 && from.Day() <= 28 && from.AddDate(0, months, 0).Equal(to):
		return step{months: months}
	default:
		return step{days: int(to.Sub(from) / day)}
	}
}

// shortest is a day, on which summer time begins.
const shortest = 23 * time.Hour

func (s span) width() time.Duration { return s.to.at.Sub(s.from.at) }

// localMidnight moves a time by less than a day to what it is in the time zone where its hour is
// midnight. Zones are at most 14 hours before UTC and 12 behind; what is both counts as before.
func localMidnight(at time.Time) time.Time {
	past := at.Sub(at.Truncate(day))
	if past >= 10*time.Hour {
		return at.Add(day - past)
	}
	return at.Add(-past)
}

// after returns where a range of this step ends; ok is false beyond the largest id.
func (s step) after(from bound) (to bound, ok bool) {
	switch {
	case s.ids > 0:
		return bound{id: from.id + s.ids}, from.id <= math.MaxInt64-s.ids
	case s.width > 0:
		return bound{at: from.at.Add(s.width)}, true
	}
	local := localMidnight(from.at)
	return bound{at: local.AddDate(0, s.months, s.days).Add(from.at.Sub(local))}, true
}

const noLargerID = "there is no larger id"

// following is the next partition after another one that is not of the past alone, or of ids that
// are reached: what came then is elsewhere. why is not empty if there can be none.
func (r *partitionRun) following(p partition, s step) (next partition, why string) {
	next = partition{Schema: p.Schema, ranged: true, span: span{from: p.span.to}}
	if from := next.span.from.id; r.reached != nil && from <= *r.reached {
		// int64 may not hold the difference
		within := (uint64(*r.reached) - uint64(from)) % uint64(s.ids)
		next.span.from.id = *r.reached - int64(within)
		var ok bool
		if next.span.from, ok = s.after(next.span.from); !ok {
			return partition{}, noLargerID
		}
	}
	to, ok := s.after(next.span.from)
	for ok && r.table.kind != keyID && !to.at.After(r.table.Now) {
		next.span.from = to
		to, ok = s.after(to)
	}
	if !ok {
		return partition{}, noLargerID
	}
	next.span.from.text = boundText(r.table.KeyType, next.span.from)
	to.text = boundText(r.table.KeyType, to)
	next.span.to = to
	if next.Name = nextName(r.table, p, next.span); len(next.Name) > longestName {
		return next, "its name is longer than 63 bytes"
	}
	return next, ""
}

// longestName is in bytes. PostgreSQL cuts a longer one off, which may make it another table's.
const longestName = 63

// boundText is a value as the server reads it, whatever DateStyle and time zone.
func boundText(keyType string, b bound) string {
	switch keyType {
	case "timestamptz":
		return b.at.Format("2006-01-02 15:04:05.999999+00")
	case "timestamp":
		return b.at.Format("2006-01-02 15:04:05.999999")
	case "date":
		return b.at.Format("2006-01-02")
	}
	return strconv.FormatInt(b.id, 10)
}

// nameLayouts are how the begin of a partition is written in its name, the longest first, with the
// shortest range for which they are: a month does not say which of its days.
var nameLayouts = []struct {
	layout string
	from   time.Duration
}{
	{"20060102_150405", 0}, {"2006_01_02_1504", 0}, {"2006_01_02_15", time.Hour},
	{"2006010215", time.Hour}, {"2006_01_02", shortest}, {"2006-01-02", shortest},
	{"20060102", shortest}, {"2006_01", 28 * day}, {"2006-01", 28 * day}, {"200601", 28 * day},
	{"2006", 365 * day},
}

// nextName continues the names: outbox_2026_01 becomes outbox_2026_02, outbox_p1000 outbox_p2000.
// Where the name does not have the begin of its range, the next is named by table and begin.
func nextName(t *partitionedTable, p partition, next span) string {
	if t.kind == keyID {
		begin, follows := strconv.FormatInt(p.span.from.id, 10), strconv.FormatInt(next.from.id, 10)
		if stem, ok := strings.CutSuffix(p.Name, begin); ok {
			return stem + follows
		}
		return t.Name + "_" + follows
	}
	was, is := p.span.localBegin(), next.localBegin()
	for _, n := range nameLayouts {
		begin := was.Format(n.layout)
		i := strings.LastIndex(p.Name, begin)
		if i >= 0 && p.span.width() >= n.from {
			return p.Name[:i] + is.Format(n.layout) + p.Name[i+len(begin):]
		}
	}
	if next.width() < shortest {
		return t.Name + is.Format("_20060102_150405")
	}
	return t.Name + is.Format("_20060102")
}

// localBegin is the begin of a range in its time zone, or in UTC if it is one of hours.
func (s span) localBegin() time.Time {
	if s.width() < shortest {
		return s.from.at
	}
	return localMidnight(s.from.at)
}
