package prune

import (
	"cmp"
	"strconv"
	"strings"
	"time"
)

// keyKind is how the values of a range key are ordered and whether they are times.
type keyKind int

const (
	keyOther keyKind = iota // no range over one column of a known type
	keyTime                 // timestamptz
	keyLocal                // timestamp or date: in which time zone is not in the value
	keyID                   // smallint, integer, bigint
	keyUUID                 // ordered by its bytes, as UUIDs of version 7
)

// keyKindOf returns the kind of a type of pg_catalog.
func keyKindOf(typeName string) keyKind {
	switch typeName {
	case "timestamptz":
		return keyTime
	case "timestamp", "date":
		return keyLocal
	case "int2", "int4", "int8":
		return keyID
	case "uuid":
		return keyUUID
	}
	return keyOther
}

// localMargin is how far a local time may be behind UTC: a value without time zone is that much
// younger than it looks.
const localMargin = 12 * time.Hour

// bound is one end of a partition's range.
type bound struct {
	text string    // as the server writes it; empty: MINVALUE or MAXVALUE
	at   time.Time // of a time key
	id   int64     // of an id key
}

// span is the range of a partition: from is inside, to is not.
type span struct{ from, to bound }

// parseSpan reads a range of one column as pg_get_expr(relpartbound) writes it with DateStyle ISO
// and time zone UTC. Times that Go cannot hold, as infinity and years BC, are not read.
func parseSpan(kind keyKind, expr string) (s span, ok bool) {
	rest, ok := strings.CutPrefix(expr, "FOR VALUES FROM (")
	if !ok {
		return span{}, false
	}
	if s.from, rest, ok = parseBound(kind, rest, "MINVALUE"); !ok {
		return span{}, false
	}
	if rest, ok = strings.CutPrefix(rest, ") TO ("); !ok {
		return span{}, false
	}
	if s.to, rest, ok = parseBound(kind, rest, "MAXVALUE"); !ok {
		return span{}, false
	}
	return s, rest == ")"
}

// parseBound reads one value, or open, and returns what comes after it. A quoted value with a
// quote in it is none of these types.
func parseBound(kind keyKind, text, open string) (b bound, rest string, ok bool) {
	if rest, ok = strings.CutPrefix(text, open); ok {
		return bound{}, rest, true
	}
	if quoted, isQuoted := strings.CutPrefix(text, "'"); isQuoted {
		b.text, rest, ok = strings.Cut(quoted, "'")
	} else {
		end := strings.IndexByte(text, ')')
		if ok = end > 0; ok {
			b.text, rest = text[:end], text[end:]
		}
	}
	if !ok || b.text == "" {
		return bound{}, "", false
	}
	var err error
	switch kind {
	case keyTime, keyLocal:
		b.at, err = parseTime(b.text)
	case keyID:
		b.id, err = strconv.ParseInt(b.text, 10, 64)
	case keyUUID, keyOther:
	}
	return b, rest, err == nil
}

// timeLayouts are those of date, timestamp and timestamptz. Go reads fractions of a second without
// being asked to.
var timeLayouts = []string{"2006-01-02 15:04:05-07", "2006-01-02 15:04:05", "2006-01-02"}

func parseTime(text string) (at time.Time, err error) {
	for _, layout := range timeLayouts {
		if at, err = time.Parse(layout, text); err == nil {
			return at.UTC(), nil
		}
	}
	return at, err
}

func (b bound) open() bool { return b.text == "" }

// compare orders two bounds that are not open.
func (b bound) compare(kind keyKind, other bound) int {
	switch kind {
	case keyTime, keyLocal:
		return b.at.Compare(other.at)
	case keyID:
		return cmp.Compare(b.id, other.id)
	case keyUUID, keyOther:
	}
	return strings.Compare(b.text, other.text)
}

// before reports whether all of the range is before a time, in any time zone. It is false for a
// range without an end or without times.
func (s span) before(kind keyKind, cutoff time.Time) bool {
	switch {
	case s.to.open():
		return false
	case kind == keyTime:
		return !s.to.at.After(cutoff)
	case kind == keyLocal:
		return !s.to.at.Add(localMargin).After(cutoff)
	}
	return false
}
