package router

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/postrider/postrider/router/connect"
)

// timestampUsable reports whether a column can be the time of a record. In Debezium that is every
// INT64, and of those that are no timestamp only NULL is taken.
func timestampUsable(c *connect.Column, strict bool) bool {
	if strict {
		return c.Schema.Kind == connect.KindInt64
	}
	return slices.Contains([]string{"timestamp", "timestamptz", "int8", "date"}, c.Type.Root().Name)
}

func timestampHint(strict bool) string {
	if strict {
		return "choose a column of type timestamp, or set router.strict_types to false"
	}
	return "choose a column of type timestamp, timestamptz, date or bigint (milliseconds)"
}

// recordTime is the time of a record: of the timestamp column, or the commit time. The zero time
// is the producer's clock, which Kafka Connect takes for the one value -1.
func recordTime(c *connect.Column, values [][]byte, commit time.Time, strict bool) (time.Time,
	error) {
	if c == nil || values[c.Index] == nil {
		return commit, nil
	}
	raw := values[c.Index]
	if strict && !slices.Contains(recordTimes, c.Schema.Name) {
		return commit, fault(ReasonInvalidTimestamp, timestampHint(strict),
			"column %s is of type %s and not NULL, which is no time of a record with "+
				"time.precision.mode as it is", c.Name, c.Type.Name)
	}
	var ms int64
	var err error
	if c.Number {
		ms, err = strconv.ParseInt(string(raw), 10, 64)
	} else if m, bad := connect.ParseMoment(raw); bad != nil {
		err = bad
	} else if ms = m.EpochMicros() / 1000; m.Infinity != 0 { // towards zero, as Debezium
		ms = math.MinInt64
	}
	switch {
	case err != nil:
		return commit, fault(ReasonInvalidTimestamp, "", "column %s: %w", c.Name, err)
	case ms == -1:
		return time.Time{}, nil
	case ms < 0:
		return commit, fault(ReasonInvalidTimestamp,
			"write a time after 1970 to that column, or do not set "+
				"router.table.field.event.timestamp",
			"column %s: %s is no time that a Kafka record can have", c.Name, raw)
	}
	return time.UnixMilli(ms), nil
}

// recordTimes are the schemas that Debezium takes for the time of a record.
var recordTimes = []string{"io.debezium.time.Timestamp", "io.debezium.time.MicroTimestamp",
	"io.debezium.time.NanoTimestamp"}
