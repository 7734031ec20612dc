package connect

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

const (
	microsPerSecond = 1_000_000
	secondsPerDay   = 86_400
	microsPerDay    = secondsPerDay * microsPerSecond
)

// MillisPerDay is a day in the unit of Date.
const MillisPerDay = secondsPerDay * 1000

// moment is a parsed date or timestamp of PostgreSQL's ISO style. With infinity not zero the rest
// is meaningless.
type moment struct {
	Infinity int   // -1, 0, +1
	days     int64 // since 1970-01-01, proleptic Gregorian
	micros   int64 // of the day
}

func (m moment) epochMillis() int64 { return m.days*MillisPerDay + m.micros/1000 }

// EpochMicros is as Debezium counts: the seconds are cut to what there is room for, and adding the
// fraction may overflow.
func (m moment) EpochMicros() int64 {
	seconds, fraction := m.days*secondsPerDay+m.micros/microsPerSecond, m.micros%microsPerSecond
	switch {
	case seconds > math.MaxInt64/microsPerSecond:
		return wrap(math.MaxInt64, fraction)
	case seconds < math.MinInt64/microsPerSecond:
		return wrap(math.MinInt64, fraction)
	}
	return wrap(seconds*microsPerSecond, fraction)
}

func wrap(a, b int64) int64 { return a + b }

// iso is a moment in Java's ISO form, with that many fraction digits; -1: as many as there are.
func (m moment) iso(digits int) Text {
	out := append(appendDate(make([]byte, 0, 32), m.days), 'T')
	return Text(append(appendClock(out, m.micros, digits), 'Z'))
}

// ParseMoment reads "2019-03-24", "2019-03-24 20:52:59.123456", "0044-03-15 10:00:00+05:30 BC",
// "infinity". A time zone offset is taken off, so that the result is UTC.
func ParseMoment(b []byte) (moment, error) {
	s := string(b)
	switch s {
	case "infinity":
		return moment{Infinity: 1}, nil
	case "-infinity":
		return moment{Infinity: -1}, nil
	}
	rest, bc := strings.CutSuffix(s, " BC")
	day, clock, hasClock := strings.Cut(rest, " ")
	date, ok := integers(day, "-", 3)
	if !ok || date[1] < 1 || date[1] > 12 || date[2] < 1 || date[2] > 31 {
		return moment{}, fmt.Errorf("%q is no date in ISO style", b)
	}
	year, month, dom := date[0], date[1], date[2]
	if bc {
		year = 1 - year
	}
	midnight := time.Date(int(year), time.Month(month), int(dom), 0, 0, 0, 0, time.UTC)
	m := moment{days: midnight.Unix() / secondsPerDay}
	if !hasClock {
		return m, nil
	}
	micros, err := parseClock(clock)
	if err != nil {
		return moment{}, err
	}
	m.days += floorDiv(micros, microsPerDay)
	m.micros = micros - floorDiv(micros, microsPerDay)*microsPerDay
	return m, nil
}

// integers reads n numbers, at most three, with something between them.
func integers(s, between string, n int) (out [3]int64, ok bool) {
	for i := range n {
		part, rest, found := strings.Cut(s, between)
		v, err := strconv.ParseInt(part, 10, 32)
		if err != nil || found != (i < n-1) {
			return out, false
		}
		out[i], s = v, rest
	}
	return out, true
}

// parseClock reads "20:52:59.123456", with an optional offset which is taken off: the result may
// be negative or beyond a day.
func parseClock(s string) (int64, error) {
	bad := func() error { return fmt.Errorf("%q is no time in ISO style", s) }
	clock, offset := s, int64(0)
	if i := strings.LastIndexAny(s, "+-"); i > 0 {
		clock = s[:i]
		hms, ok := integers(s[i+1:], ":", min(1+strings.Count(s[i:], ":"), 3))
		if !ok {
			return 0, bad()
		}
		offset = hms[0]*3600 + hms[1]*60 + hms[2]
		if s[i] == '-' {
			offset = -offset
		}
	}
	whole, fraction, _ := strings.Cut(clock, ".")
	hms, ok := integers(whole, ":", 3)
	micros, err := strconv.ParseInt((fraction + "000000")[:6], 10, 32)
	if !ok || err != nil {
		return 0, bad()
	}
	return (hms[0]*3600+hms[1]*60+hms[2]-offset)*microsPerSecond + micros, nil
}

// julianFromDays is a date in the calendar of before 1582, with a year 0.
func julianFromDays(z int64) (year int64, month time.Month, day int64) {
	z += 719470 // from 0000-03-01 of that calendar
	cycle := floorDiv(z, 1461)
	dayOfCycle := z - cycle*1461
	yearOfCycle := (dayOfCycle - dayOfCycle/1460) / 365
	doy := dayOfCycle - yearOfCycle*365
	mp := (5*doy + 2) / 153
	year, m := cycle*4+yearOfCycle, mp+3
	if m > 12 {
		m -= 12
		year++
	}
	return year, time.Month(m), doy - (153*mp+2)/5 + 1
}

// appendDate writes a day as Java's ISO formatter does: more than four digits get a sign.
func appendDate(dst []byte, days int64) []byte {
	date := time.Unix(days*secondsPerDay, 0).UTC()
	y := int64(date.Year())
	switch {
	case y < 0:
		dst = append(dst, '-')
		y = -y
	case y > 9999:
		dst = append(dst, '+')
	}
	return date.AppendFormat(appendPadded(dst, y, 4), "-01-02")
}

// appendClock writes a time of day with that many fraction digits; -1: as many as there are.
func appendClock(dst []byte, micros int64, digits int) []byte {
	s := micros / microsPerSecond
	dst = append(appendPadded(dst, s/3600, 2), ':')
	dst = append(appendPadded(dst, s/60%60, 2), ':')
	return appendFraction(appendPadded(dst, s%60, 2), micros%microsPerSecond, digits)
}

// appendFraction writes the digits behind the point, if there are some: that many, or with -1 all
// but zeros at the end.
func appendFraction(dst []byte, micros int64, digits int) []byte {
	if digits == 0 || digits < 0 && micros == 0 {
		return dst
	}
	dst = appendPadded(append(dst, '.'), micros, 6)
	if digits > 0 {
		return dst[:len(dst)-6+digits]
	}
	return bytes.TrimRight(dst, "0")
}

func appendPadded(dst []byte, v int64, width int) []byte {
	var buf [20]byte
	digits := strconv.AppendInt(buf[:0], v, 10)
	for n := len(digits); n < width; n++ {
		dst = append(dst, '0')
	}
	return append(dst, digits...)
}

// interval is a parsed interval of PostgreSQL's own style. Each part has its own sign.
type interval struct {
	years, months, days int64
	micros              int64
}

// parseInterval reads "1 year 2 mons -3 days +04:05:06.789". One that is infinite is empty, as for
// Debezium.
func parseInterval(b []byte) (interval, error) {
	var v interval
	words := strings.Fields(string(b))
	if string(b) == "infinity" || string(b) == "-infinity" {
		return v, nil
	}
	bad := fmt.Errorf("%q is no interval in PostgreSQL's style", b)
	for i := 0; i < len(words); i++ {
		w := words[i]
		if strings.Contains(w, ":") {
			sign := int64(1)
			if w[0] == '-' {
				sign = -1
			}
			micros, err := parseClock(strings.TrimLeft(w, "+-"))
			if err != nil {
				return v, bad
			}
			v.micros = sign * micros
			continue
		}
		n, err := strconv.ParseInt(w, 10, 64)
		if err != nil || i+1 == len(words) {
			return v, bad
		}
		i++
		switch {
		case strings.HasPrefix(words[i], "year"):
			v.years = n
		case strings.HasPrefix(words[i], "mon"):
			v.months = n
		case strings.HasPrefix(words[i], "day"):
			v.days = n
		default:
			return v, bad
		}
	}
	return v, nil
}

// total is the interval as one number of microseconds, counted in floating point as Debezium does;
// what does not fit is cut to the largest there is. A month is the twelfth part of 365.25 days.
func (v interval) total() int64 {
	const daysPerMonth = 365.25 / 12
	hours, minutes := v.micros/(3600*microsPerSecond), v.micros/(60*microsPerSecond)%60
	seconds := float64(v.micros%(60*microsPerSecond)/microsPerSecond) +
		float64(v.micros%microsPerSecond)/1e6
	days := float64(float64(v.years*12+v.months)*daysPerMonth) + float64(v.days)
	all := float64((float64((float64(days*24)+float64(hours))*60)+float64(minutes))*60) + seconds
	switch micros := all * 1e6; {
	case micros >= math.MaxInt64:
		return math.MaxInt64
	case micros <= math.MinInt64:
		return math.MinInt64
	default:
		return int64(micros)
	}
}

// appendISO writes all parts, also those that are zero.
func (v interval) appendISO(dst []byte) []byte {
	part := func(n int64, unit byte) {
		dst = append(strconv.AppendInt(dst, n, 10), unit)
	}
	dst = append(dst, 'P')
	part(v.years, 'Y')
	part(v.months, 'M')
	part(v.days, 'D')
	dst = append(dst, 'T')
	part(v.micros/(3600*microsPerSecond), 'H')
	part(v.micros/(60*microsPerSecond)%60, 'M')
	seconds := v.micros % (60 * microsPerSecond)
	if seconds < 0 {
		dst = append(dst, '-')
		seconds = -seconds
	}
	dst = strconv.AppendInt(dst, seconds/microsPerSecond, 10)
	return append(appendFraction(dst, seconds%microsPerSecond, -1), 'S')
}
