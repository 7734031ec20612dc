package connect

import (
	"errors"
	"math"
)

// What Debezium makes of a date that is infinite.
const (
	dateInfinity      = 2146033979
	dateMinusInfinity = -2147472691
)

func dateCodec(_ *Type, h *Handling) codec {
	days := func(form func(days int64) any) func([]byte) (any, error) {
		return func(b []byte) (any, error) {
			m, err := ParseMoment(b)
			switch m.Infinity {
			case 1:
				m.days = dateInfinity
			case -1:
				m.days = dateMinusInfinity
			}
			return form(m.days), err
		}
	}
	switch h.TimePrecision {
	case "connect":
		return named(KindInt32, "org.apache.kafka.connect.data.Date",
			days(func(d int64) any { return Date{d * MillisPerDay, true} }))
	case "isostring":
		return named(KindString, "io.debezium.time.IsoDate",
			days(func(d int64) any { return Text(append(appendDate(nil, d), 'Z')) }))
	}
	return named(KindInt32, "io.debezium.time.Date", days(func(d int64) any { return d }))
}

func timeCodec(t *Type, h *Handling) codec {
	clock := func(scale func(micros int64) any) func([]byte) (any, error) {
		return func(b []byte) (any, error) {
			v, err := parseClock(string(b))
			return scale(v), err
		}
	}
	switch mode := h.TimePrecision; {
	case mode == "connect":
		return named(KindInt32, "org.apache.kafka.connect.data.Time",
			clock(func(v int64) any { return Date{v / 1000, false} }))
	case mode == "isostring":
		return named(KindString, "io.debezium.time.IsoTime", clock(func(v int64) any {
			if h.StrictTypes && v == microsPerDay { // 24:00
				v = 0
			}
			return Text(append(appendClock(nil, v, -1), 'Z'))
		}))
	case mode == "nanoseconds":
		return named(KindInt64, "io.debezium.time.NanoTime",
			clock(func(v int64) any { return v * 1000 }))
	case mode == "adaptive" && precision(t.Mod) <= 3:
		return named(KindInt32, "io.debezium.time.Time",
			clock(func(v int64) any { return v / 1000 }))
	}
	return named(KindInt64, "io.debezium.time.MicroTime", clock(func(v int64) any { return v }))
}

// What Debezium makes of a timestamp that is infinite, where it counts milliseconds: PostgreSQL's
// Java driver has these for it.
const (
	millisInfinity      = 9223372036825200000
	millisMinusInfinity = -9223372036832400000
)

// readMoment reads a timestamp, with the values of one that is infinite.
func readMoment(plus, minus any, finite func(m moment) (any, error)) func([]byte) (any, error) {
	return func(b []byte) (any, error) {
		m, err := ParseMoment(b)
		switch {
		case err != nil:
			return nil, err
		case m.Infinity > 0:
			return plus, nil
		case m.Infinity < 0:
			return minus, nil
		}
		return finite(m)
	}
}

func timestampCodec(t *Type, h *Handling) codec {
	const most, least = int64(math.MaxInt64), int64(math.MinInt64)
	switch mode := h.TimePrecision; {
	case mode == "connect":
		return named(KindInt64, "org.apache.kafka.connect.data.Timestamp",
			readMoment(Date{millisInfinity, false}, Date{millisMinusInfinity, false},
				func(m moment) (any, error) { return Date{m.epochMillis(), false}, nil }))
	case mode == "isostring":
		plus, minus := Text("infinity"), Text("-infinity")
		if h.StrictTypes {
			plus, minus = Text("+292278994-08-16T23:00:00Z"), Text("-292275055-05-16T23:00:00Z")
		}
		return named(KindString, "io.debezium.time.IsoTimestamp",
			readMoment(plus, minus, func(m moment) (any, error) { return m.iso(-1), nil }))
	case mode == "nanoseconds":
		return named(KindInt64, "io.debezium.time.NanoTimestamp",
			readMoment(most, least, func(m moment) (any, error) {
				v := m.EpochMicros()
				switch {
				case v <= most/1000 && v >= least/1000:
					return v * 1000, nil
				case h.StrictTypes:
					return nil, nil
				}
				return nil, errors.New(
					`the time does not fit in nanoseconds: set time.precision.mode to "adaptive"`)
			}))
	case mode != "microseconds" && precision(t.Mod) <= 3:
		return named(KindInt64, "io.debezium.time.Timestamp",
			readMoment(int64(millisInfinity), int64(millisMinusInfinity),
				func(m moment) (any, error) { return m.epochMillis(), nil }))
	}
	return named(KindInt64, "io.debezium.time.MicroTimestamp",
		readMoment(most, least, func(m moment) (any, error) { return m.EpochMicros(), nil }))
}

func timestampTZCodec(t *Type, _ *Handling) codec {
	digits := precision(t.Mod)
	return named(KindString, "io.debezium.time.ZonedTimestamp",
		readMoment(Text("infinity"), Text("-infinity"),
			func(m moment) (any, error) { return m.iso(digits), nil }))
}

func readTimeTZ(b []byte) (any, error) {
	if string(b) == "24:00:00+00" { // the one time of day that is no other day's
		return Text("24:00:00Z"), nil
	}
	v, err := parseClock(string(b))
	if err != nil {
		return nil, err
	}
	v -= floorDiv(v, microsPerDay) * microsPerDay
	return Text(append(appendClock(nil, v, -1), 'Z')), nil
}

func intervalCodec(_ *Type, h *Handling) codec {
	read := func(plus, minus any, finite func(interval) any) func([]byte) (any, error) {
		return func(b []byte) (any, error) {
			switch text := string(b); { // Debezium reads nothing in an interval that is infinite.
			case text == "infinity" && !h.StrictTypes:
				return plus, nil
			case text == "-infinity" && !h.StrictTypes:
				return minus, nil
			}
			v, err := parseInterval(b)
			return finite(v), err
		}
	}
	if h.IntervalHandling == "string" {
		return named(KindString, "io.debezium.time.Interval",
			read(Text("infinity"), Text("-infinity"),
				func(v interval) any { return Text(v.appendISO(nil)) }))
	}
	return named(KindInt64, "io.debezium.time.MicroDuration",
		read(int64(math.MaxInt64), int64(math.MinInt64), func(v interval) any { return v.total() }))
}
