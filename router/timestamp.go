package router

import (
	"math"
	"strconv"
	"time"
)

// timestampUsable tells whether a column can be the time of a record. In Debezium that is every INT64, and of those that are no
// timestamp only NULL is taken.
func timestampUsable(c *column, strict bool) bool {
	if strict {
		return c.schema.kind == kindInt64
	}
	switch c.typ.root().Name {
	case "timestamp", "timestamptz", "int8", "date":
		return true
	}
	return false
}

func timestampHint(strict bool) string {
	if strict {
		return "choose a column of type timestamp, or set router.strict_types to false"
	}
	return "choose a column of type timestamp, timestamptz, date or bigint (milliseconds)"
}

// recordTime is the time of a record: of the timestamp column, or the commit time. The zero time is the producer's clock, which
// Kafka Connect takes for the one value -1.
func recordTime(c *column, raw []byte, commit time.Time, strict bool) (time.Time, error) {
	if c == nil || raw == nil {
		return commit, nil
	}
	if strict {
		switch c.schema.name {
		case "io.debezium.time.Timestamp", "io.debezium.time.MicroTimestamp", "io.debezium.time.NanoTimestamp":
		default:
			return commit, fault(ReasonInvalidTimestamp, timestampHint(strict), "column %s is of type %s and not NULL, which is no time of a record with time.precision.mode as it is",
				c.name, c.typ.describe())
		}
	}
	var ms int64
	if c.number {
		v, err := strconv.ParseInt(string(raw), 10, 64)
		if err != nil {
			return commit, fault(ReasonInvalidTimestamp, "", "column %s: %w", c.name, err)
		}
		ms = v
	} else {
		m, err := parseMoment(raw)
		if err != nil {
			return commit, fault(ReasonInvalidTimestamp, "", "column %s: %w", c.name, err)
		}
		if ms = m.epochMicros() / 1000; m.infinity != 0 { // towards zero, as Debezium
			ms = math.MinInt64
		}
	}
	switch {
	case ms == -1:
		return time.Time{}, nil
	case ms < 0:
		return commit, fault(ReasonInvalidTimestamp, "write a time after 1970 to that column, or do not set router.table.field.event.timestamp",
			"column %s: %s is no time that a Kafka record can have", c.name, raw)
	}
	return time.UnixMilli(ms), nil
}
