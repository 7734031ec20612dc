package avro

import (
	"encoding/base64"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/router/connect"
)

// clock is what a number counts: a time of day, or a date or point in time.
type clock struct {
	unit time.Duration
	day  bool // a time of day
}

const day = 24 * time.Hour

// noSchema stands for that of a value that has none.
var noSchema = &connect.Schema{}

// avroClocks are those of Avro's logical types, connectClocks those of the names of Connect's and
// Debezium's schemas.
var (
	avroClocks = map[string]clock{
		logicalDate: {day, false}, logicalTimeMillis: {time.Millisecond, true},
		logicalTimeMicros: {time.Microsecond, true}, logicalTimestampMillis: {time.Millisecond, false},
		logicalTimestampMicros: {time.Microsecond, false},
		logicalTimestampNanos:  {time.Nanosecond, false},
		logicalLocalMillis:     {time.Millisecond, false},
		logicalLocalMicros:     {time.Microsecond, false},
		logicalLocalNanos:      {time.Nanosecond, false},
	}
	connectClocks = map[string]clock{
		dateName: {day, false}, timeName: {time.Millisecond, true},
		timestampName: {time.Millisecond, false}, "io.debezium.time.Date": {day, false},
		"io.debezium.time.Time":           {time.Millisecond, true},
		"io.debezium.time.MicroTime":      {time.Microsecond, true},
		"io.debezium.time.NanoTime":       {time.Nanosecond, true},
		"io.debezium.time.Timestamp":      {time.Millisecond, false},
		"io.debezium.time.MicroTimestamp": {time.Microsecond, false},
		"io.debezium.time.NanoTimestamp":  {time.Nanosecond, false},
	}
)

// integer is the number that is written for an int or a long.
func (f *fitter) integer(n *node, s *connect.Schema, v any) (int64, error) {
	i, ok := f.number(n, s, v)
	if !ok {
		return 0, unfit(n, v)
	}
	if n.kind == typeInt && (i < math.MinInt32 || i > math.MaxInt32) {
		return 0, connect.Unwritable("", "a number out of the range of int")
	}
	return i, nil
}

func (f *fitter) number(n *node, s *connect.Schema, v any) (int64, bool) {
	to, timed := avroClocks[n.logical]
	if s == nil {
		s = noSchema
	}
	switch v := v.(type) {
	case json.Number:
		return wholeNumber(string(v))
	case connect.Text:
		if timed {
			return parseTime(n.logical, to, string(v))
		}
	case int64:
		if from, known := connectClocks[s.Name]; timed && known {
			return convert(v, from, to)
		}
		return v, true
	case connect.Date:
		i, err := dateNumber(s, v)
		if err != nil || !timed {
			return i, err == nil
		}
		return convert(i, connectClocks[s.Name], to)
	}
	return 0, false
}

// exactInteger is the largest integer up to which a double has every one.
const exactInteger = 1 << 53

// wholeNumber reads a number that has no fraction, however it is written.
func wholeNumber(text string) (int64, bool) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, true
	}
	if !strings.ContainsAny(text, ".eE") {
		return 0, false
	}
	d, err := strconv.ParseFloat(text, 64)
	exact := err == nil && d == math.Trunc(d) && math.Abs(d) <= exactInteger
	return int64(d), exact
}

// convert counts in another unit. A coarser one cuts what it does not have.
func convert(n int64, from, to clock) (int64, bool) {
	switch {
	case from.day != to.day:
		return 0, false
	case from.unit >= to.unit:
		times := int64(from.unit / to.unit)
		return n * times, n <= math.MaxInt64/times && n >= math.MinInt64/times
	}
	by := int64(to.unit / from.unit)
	q := n / by
	if n%by < 0 {
		q--
	}
	return q, true
}

// parseTime reads ISO 8601. A point in time has a zone, a local one has none.
func parseTime(logical string, c clock, text string) (int64, bool) {
	layout := time.RFC3339Nano
	switch logical {
	case logicalDate:
		layout, text = "2006-01-02", strings.TrimSuffix(text, "Z")
	case logicalTimeMillis, logicalTimeMicros:
		layout, text = "15:04:05.999999999", strings.TrimSuffix(text, "Z")
	case logicalLocalMillis, logicalLocalMicros, logicalLocalNanos:
		layout, text = "2006-01-02T15:04:05.999999999", strings.TrimSuffix(text, "Z")
	}
	at, err := time.Parse(layout, text)
	if err != nil {
		return 0, false
	}
	if c.day {
		at = at.AddDate(1970, 0, 0) // a layout without a date gives the year 0
	}
	switch c.unit {
	case day:
		return at.Unix() / int64(day/time.Second), true
	case time.Millisecond:
		return at.UnixMilli(), true
	case time.Nanosecond:
		const first, last = 1678, 2261 // years of which a long holds all nanoseconds
		return at.UnixNano(), at.Year() >= first && at.Year() <= last
	}
	return at.UnixMicro(), true
}

// float reads a number for a float or a double. JSON has texts for those that are not finite.
func (f *fitter) float(n *node, v any, bits int) (float64, error) {
	switch v := v.(type) {
	case json.Number:
		if x, err := strconv.ParseFloat(string(v), bits); err == nil {
			return x, nil
		}
		return 0, connect.Unwritable("", "a number out of the range of %s", n.describe())
	case connect.Text:
		if notFinite[string(v)] {
			return strconv.ParseFloat(string(v), bits)
		}
	case float32:
		return float64(v), nil
	case float64:
		if bits == 64 || v != v || float64(float32(v)) == v {
			return v, nil
		}
		return 0, connect.Unwritable("", "a double that a float does not hold")
	case int64:
		if limit := int64(1) << min(bits-8, 53); v <= limit && v >= -limit {
			return float64(v), nil
		}
		return 0, connect.Unwritable("", "an integer that %s does not hold", n.describe())
	}
	return 0, unfit(n, v)
}

// bytes are those that are written for bytes or a fixed.
func (f *fitter) bytes(n *node, v any) (b []byte, err error) {
	if n.logical == logicalDecimal {
		b, err = f.decimal(n, v)
	} else {
		b, err = f.plainBytes(n, v)
	}
	if err == nil && n.kind == typeFixed && len(b) != n.size {
		err = connect.Unwritable("", "%d bytes where the schema has %s of %d", len(b), n.describe(),
			n.size)
	}
	return b, err
}

func (f *fitter) plainBytes(n *node, v any) ([]byte, error) {
	switch v := v.(type) {
	case connect.Buffer:
		return v, nil
	case connect.ByteArray:
		return v, nil
	case connect.Text:
		if f.json {
			b, err := base64.StdEncoding.Strict().DecodeString(string(v))
			if err != nil {
				return nil, connect.Unwritable("", "a text that is no Base64, where the schema has %s",
					n.describe())
			}
			return b, nil
		}
	}
	return nil, unfit(n, v)
}
