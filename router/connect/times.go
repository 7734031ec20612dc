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

func dateCodec(mode string) codec {
	days := func(b []byte) (int64, error) {
		m, err := ParseMoment(b)
		switch m.Infinity {
		case 1:
			m.days = dateInfinity
		case -1:
			m.days = dateMinusInfinity
		}
		return m.days, err
	}
	switch mode {
	case "connect":
		return named(KindInt32, "org.apache.kafka.connect.data.Date", func(b []byte) (any, error) {
			d, err := days(b)
			return date{d * 86_400_000, true}, err
		})
	case "isostring":
		return named(KindString, "io.debezium.time.IsoDate", func(b []byte) (any, error) {
			d, err := days(b)
			return Text(append(appendDate(nil, d), 'Z')), err
		})
	}
	return named(KindInt32, "io.debezium.time.Date", func(b []byte) (any, error) {
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
		return named(KindInt32, "org.apache.kafka.connect.data.Time",
			clock(func(v int64) any { return date{v / 1000, false} }))
	case mode == "isostring":
		return named(KindString, "io.debezium.time.IsoTime", clock(func(v int64) any {
			if strict && v == microsPerDay { // 24:00
				v = 0
			}
			return Text(append(appendClock(nil, v, -1), 'Z'))
		}))
	case mode == "nanoseconds":
		return named(KindInt64, "io.debezium.time.NanoTime",
			clock(func(v int64) any { return v * 1000 }))
	case mode == "adaptive" && digits <= 3:
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

func timestampCodec(digits int, mode string, strict bool) codec {
	read := func(infinity, minusInfinity int64,
		finite func(m moment) (any, error)) func([]byte) (any, error) {
		return func(b []byte) (any, error) {
			m, err := ParseMoment(b)
			switch {
			case err != nil:
				return nil, err
			case m.Infinity > 0:
				return infinity, nil
			case m.Infinity < 0:
				return minusInfinity, nil
			}
			return finite(m)
		}
	}
	millis := read(millisInfinity, millisMinusInfinity,
		func(m moment) (any, error) { return m.epochMillis(), nil })
	switch {
	case mode == "connect":
		return named(KindInt64, "org.apache.kafka.connect.data.Timestamp",
			func(b []byte) (any, error) {
				v, err := millis(b)
				if err != nil {
					return nil, err
				}
				return date{v.(int64), false}, nil
			})
	case mode == "isostring":
		return named(KindString, "io.debezium.time.IsoTimestamp", func(b []byte) (any, error) {
			m, err := ParseMoment(b)
			switch {
			case err != nil || m.Infinity != 0 && !strict:
				return Text(b), err
			case m.Infinity > 0:
				return Text("+292278994-08-16T23:00:00Z"), nil
			case m.Infinity < 0:
				return Text("-292275055-05-16T23:00:00Z"), nil
			}
			out := append(appendDate(nil, m.days), 'T')
			return Text(append(appendClock(out, m.micros, -1), 'Z')), nil
		})
	case mode == "nanoseconds":
		return named(KindInt64, "io.debezium.time.NanoTimestamp",
			read(math.MaxInt64, math.MinInt64, func(m moment) (any, error) {
				v := m.EpochMicros()
				switch {
				case v <= math.MaxInt64/1000 && v >= math.MinInt64/1000:
					return v * 1000, nil
				case strict:
					return nil, nil
				}
				return nil, errors.New(
					`the time does not fit in nanoseconds: set time.precision.mode to "adaptive"`)
			}))
	case (mode == "adaptive" || mode == "adaptive_time_microseconds") && digits <= 3:
		return named(KindInt64, "io.debezium.time.Timestamp", millis)
	}
	return named(KindInt64, "io.debezium.time.MicroTimestamp",
		read(math.MaxInt64, math.MinInt64, func(m moment) (any, error) {
			return m.EpochMicros(),
				nil
		}))
}

func timestampTZCodec(digits int) codec {
	return named(KindString, "io.debezium.time.ZonedTimestamp", func(b []byte) (any, error) {
		m, err := ParseMoment(b)
		if err != nil || m.Infinity != 0 {
			return Text(b), err
		}
		out := append(appendDate(make([]byte, 0, 32), m.days), 'T')
		return Text(append(appendClock(out, m.micros, digits), 'Z')), nil
	})
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

func intervalCodec(mode string, strict bool) codec {
	// Debezium reads nothing in an interval that is infinite.
	infinite := func(b []byte) bool {
		return !strict &&
			(string(b) == "infinity" || string(b) == "-infinity")
	}
	if mode == "string" {
		return named(KindString, "io.debezium.time.Interval", func(b []byte) (any, error) {
			if infinite(b) {
				return Text(b), nil
			}
			v, err := parseInterval(b)
			return Text(v.appendISO(nil)), err
		})
	}
	return named(KindInt64, "io.debezium.time.MicroDuration", func(b []byte) (any, error) {
		if infinite(b) {
			return map[bool]int64{false: math.MaxInt64, true: math.MinInt64}[b[0] == '-'], nil
		}
		v, err := parseInterval(b)
		return v.total(), err
	})
}
