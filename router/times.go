package router

import (
	"errors"
	"math"
)

// What Debezium makes of a date that is infinite.
const (
	dateInfinity      = 2146033979
	dateMinusInfinity = -2147472691
)

func dateCodec(mode string) codec {
	days := func(b []byte) (int64, error) {
		m, err := parseMoment(b)
		switch m.infinity {
		case 1:
			m.days = dateInfinity
		case -1:
			m.days = dateMinusInfinity
		}
		return m.days, err
	}
	switch mode {
	case "connect":
		return named(kindInt32, "org.apache.kafka.connect.data.Date", func(b []byte) (any, error) {
			d, err := days(b)
			return date{d * 86_400_000, true}, err
		})
	case "isostring":
		return named(kindString, "io.debezium.time.IsoDate", func(b []byte) (any, error) {
			d, err := days(b)
			return text(append(appendDate(nil, d), 'Z')), err
		})
	}
	return named(kindInt32, "io.debezium.time.Date", func(b []byte) (any, error) {
		d, err := days(b)
		return d, err
	})
}

func timeCodec(digits int, mode string, strict bool) codec {
	clock := func(scale func(int64) any) func([]byte) (any, error) {
		return func(b []byte) (any, error) {
			v, err := parseClock(string(b))
			return scale(v), err
		}
	}
	switch {
	case mode == "connect":
		return named(kindInt32, "org.apache.kafka.connect.data.Time", clock(func(v int64) any { return date{v / 1000, false} }))
	case mode == "isostring":
		return named(kindString, "io.debezium.time.IsoTime", clock(func(v int64) any {
			if strict && v == microsPerDay { // 24:00
				v = 0
			}
			return text(append(appendClock(nil, v, -1), 'Z'))
		}))
	case mode == "nanoseconds":
		return named(kindInt64, "io.debezium.time.NanoTime", clock(func(v int64) any { return v * 1000 }))
	case mode == "adaptive" && digits <= 3:
		return named(kindInt32, "io.debezium.time.Time", clock(func(v int64) any { return v / 1000 }))
	}
	return named(kindInt64, "io.debezium.time.MicroTime", clock(func(v int64) any { return v }))
}

// What Debezium makes of a timestamp that is infinite, where it counts milliseconds: PostgreSQL's Java driver has these for it.
const (
	millisInfinity      = 9223372036825200000
	millisMinusInfinity = -9223372036832400000
)

func timestampCodec(digits int, mode string, strict bool) codec {
	read := func(infinity, minusInfinity int64, finite func(m moment) (any, error)) func([]byte) (any, error) {
		return func(b []byte) (any, error) {
			m, err := parseMoment(b)
			switch {
			case err != nil:
				return nil, err
			case m.infinity > 0:
				return infinity, nil
			case m.infinity < 0:
				return minusInfinity, nil
			}
			return finite(m)
		}
	}
	millis := read(millisInfinity, millisMinusInfinity, func(m moment) (any, error) { return m.epochMillis(), nil })
	switch {
	case mode == "connect":
		return named(kindInt64, "org.apache.kafka.connect.data.Timestamp", func(b []byte) (any, error) {
			v, err := millis(b)
			if err != nil {
				return nil, err
			}
			return date{v.(int64), false}, nil
		})
	case mode == "isostring":
		return named(kindString, "io.debezium.time.IsoTimestamp", func(b []byte) (any, error) {
			m, err := parseMoment(b)
			switch {
			case err != nil || m.infinity != 0 && !strict:
				return text(b), err
			case m.infinity > 0:
				return text("+292278994-08-16T23:00:00Z"), nil
			case m.infinity < 0:
				return text("-292275055-05-16T23:00:00Z"), nil
			}
			out := append(appendDate(nil, m.days), 'T')
			return text(append(appendClock(out, m.micros, -1), 'Z')), nil
		})
	case mode == "nanoseconds":
		return named(kindInt64, "io.debezium.time.NanoTimestamp", read(math.MaxInt64, math.MinInt64, func(m moment) (any, error) {
			v := m.epochMicros()
			switch {
			case v <= math.MaxInt64/1000 && v >= math.MinInt64/1000:
				return v * 1000, nil
			case strict:
				return nil, nil
			}
			return nil, errors.New("the time does not fit in nanoseconds: set time.precision.mode to \"adaptive\"")
		}))
	case (mode == "adaptive" || mode == "adaptive_time_microseconds") && digits <= 3:
		return named(kindInt64, "io.debezium.time.Timestamp", millis)
	}
	return named(kindInt64, "io.debezium.time.MicroTimestamp", read(math.MaxInt64, math.MinInt64, func(m moment) (any, error) { return m.epochMicros(), nil }))
}

func timestampTZCodec(digits int) codec {
	return named(kindString, "io.debezium.time.ZonedTimestamp", func(b []byte) (any, error) {
		m, err := parseMoment(b)
		if err != nil || m.infinity != 0 {
			return text(b), err
		}
		out := append(appendDate(make([]byte, 0, 32), m.days), 'T')
		return text(append(appendClock(out, m.micros, digits), 'Z')), nil
	})
}

func readTimeTZ(b []byte) (any, error) {
	if string(b) == "24:00:00+00" { // the one time of day that is no other day's
		return text("24:00:00Z"), nil
	}
	v, err := parseClock(string(b))
	if err != nil {
		return nil, err
	}
	v -= floorDiv(v, microsPerDay) * microsPerDay
	return text(append(appendClock(nil, v, -1), 'Z')), nil
}

func intervalCodec(mode string, strict bool) codec {
	// Debezium reads nothing in an interval that is infinite.
	infinite := func(b []byte) bool { return !strict && (string(b) == "infinity" || string(b) == "-infinity") }
	if mode == "string" {
		return named(kindString, "io.debezium.time.Interval", func(b []byte) (any, error) {
			if infinite(b) {
				return text(b), nil
			}
			v, err := parseInterval(b)
			return text(v.appendISO(nil)), err
		})
	}
	return named(kindInt64, "io.debezium.time.MicroDuration", func(b []byte) (any, error) {
		if infinite(b) {
			return map[bool]int64{false: math.MaxInt64, true: math.MinInt64}[b[0] == '-'], nil
		}
		v, err := parseInterval(b)
		return v.total(), err
	})
}
