package connect

import (
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

// moment is a parsed date or timestamp of PostgreSQL's ISO style. With infinity not zero the rest
// is meaningless.
type moment struct {
	Infinity int   // -1, 0, +1
	days     int64 // since 1970-01-01, proleptic Gregorian
	micros   int64 // of the day
}

func (m moment) epochMillis() int64 { return m.days*86_400_000 + m.micros/1000 }

// EpochMicros is as Debezium counts: the seconds are cut to what there is room for, and what is
// added to that begins anew.
func (m moment) EpochMicros() int64 {
	seconds := m.days*86_400 + m.micros/microsPerSecond
	fraction := m.micros % microsPerSecond
	switch {
	case seconds > math.MaxInt64/microsPerSecond:
		return wrap(math.MaxInt64, fraction)
	case seconds < math.MinInt64/microsPerSecond:
		return wrap(math.MinInt64, fraction)
	}
	return wrap(seconds*microsPerSecond, fraction)
}

func wrap(a, b int64) int64 { return a + b }

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
	y, md, ok1 := strings.Cut(day, "-")
	mo, d, ok2 := strings.Cut(md, "-")
	year, err1 := strconv.ParseInt(y, 10, 32)
	month, err2 := strconv.ParseInt(mo, 10, 32)
	dom, err3 := strconv.ParseInt(d, 10, 32)
	if !ok1 || !ok2 || err1 != nil || err2 != nil || err3 != nil || month < 1 || month > 12 ||
		dom < 1 || dom > 31 {
		return moment{}, fmt.Errorf("%q is no date in ISO style", b)
	}
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

// parseClock reads "20:52:59.123456", with an optional offset which is taken off: the result may
// be negative or beyond a day.
func parseClock(s string) (int64, error) {
	offset := int64(0)
	if i := strings.LastIndexAny(s, "+-"); i > 0 {
		parts := strings.Split(s[i+1:], ":")
		unit := int64(3600)
		for _, p := range parts {
			n, err := strconv.ParseInt(p, 10, 32)
			if err != nil || unit == 0 {
				return 0, fmt.Errorf("%q is no time in ISO style", s)
			}
			offset += n * unit
			unit /= 60
		}
		if s[i] == '-' {
			offset = -offset
		}
		s = s[:i]
	}
	h, ms, ok1 := strings.Cut(s, ":")
	m, sec, ok2 := strings.Cut(ms, ":")
	whole, fraction, _ := strings.Cut(sec, ".")
	hours, err1 := strconv.ParseInt(h, 10, 32)
	minutes, err2 := strconv.ParseInt(m, 10, 32)
	seconds, err3 := strconv.ParseInt(whole, 10, 32)
	micros, err4 := strconv.ParseInt((fraction + "000000")[:6], 10, 32)
	if !ok1 || !ok2 || err1 != nil || err2 != nil || err3 != nil || err4 != nil {
		return 0, fmt.Errorf("%q is no time in ISO style", s)
	}
	return (hours*3600+minutes*60+seconds-offset)*microsPerSecond + micros, nil
}

// julianFromDays is a date in the calendar of before 1582, with a year 0.
func julianFromDays(z int64) (y, m, d int64) {
	z += 719470 // from 0000-03-01 of that calendar
	cycle := floorDiv(z, 1461)
	dayOfCycle := z - cycle*1461
	yearOfCycle := (dayOfCycle - dayOfCycle/1460) / 365
	doy := dayOfCycle - yearOfCycle*365
	mp := (5*doy + 2) / 153
	y = cycle*4 + yearOfCycle
	if m = mp + 3; m > 12 {
		m -= 12
		y++
	}
	return y, m, doy - (153*mp+2)/5 + 1
}

// appendDate writes a day as Java's ISO formatter does: more than four digits get a sign.
func appendDate(dst []byte, days int64) []byte {
	date := time.Unix(days*secondsPerDay, 0).UTC()
	y, m, d := int64(date.Year()), int64(date.Month()), int64(date.Day())
	switch {
	case y < 0:
		dst = append(dst, '-')
		y = -y
	case y > 9999:
		dst = append(dst, '+')
	}
	dst = appendPadded(dst, y, 4)
	dst = append(dst, '-')
	dst = appendPadded(dst, m, 2)
	dst = append(dst, '-')
	return appendPadded(dst, d, 2)
}

// appendClock writes a time of day with that many fraction digits; -1: as many as there are.
func appendClock(dst []byte, micros int64, digits int) []byte {
	s := micros / microsPerSecond
	dst = appendPadded(dst, s/3600, 2)
	dst = append(dst, ':')
	dst = appendPadded(dst, s/60%60, 2)
	dst = append(dst, ':')
	dst = appendPadded(dst, s%60, 2)
	fraction := micros % microsPerSecond
	if digits == 0 || digits < 0 && fraction == 0 {
		return dst
	}
	dst = append(dst, '.')
	dst = appendPadded(dst, fraction, 6)
	if digits > 0 {
		return dst[:len(dst)-6+digits]
	}
	for dst[len(dst)-1] == '0' {
		dst = dst[:len(dst)-1]
	}
	return dst
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
	if fraction := seconds % microsPerSecond; fraction != 0 {
		dst = append(dst, '.')
		dst = appendPadded(dst, fraction, 6)
		for dst[len(dst)-1] == '0' {
			dst = dst[:len(dst)-1]
		}
	}
	return append(dst, 'S')
}
