package avro

import (
	"encoding/base64"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"

	hamba "github.com/hamba/avro/v2"

	"github.com/postrider/postrider/router/connect"
)

func logicalOf(a hamba.Schema) hamba.LogicalType {
	if t, ok := a.(hamba.LogicalTypeSchema); ok && t.Logical() != nil {
		return t.Logical().Type()
	}
	return ""
}

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
	avroClocks = map[hamba.LogicalType]clock{
		hamba.Date: {day, false}, hamba.TimeMillis: {time.Millisecond, true},
		hamba.TimeMicros: {time.Microsecond, true}, hamba.TimestampMillis: {time.Millisecond, false},
		hamba.TimestampMicros:      {time.Microsecond, false},
		hamba.LocalTimestampMillis: {time.Millisecond, false},
		hamba.LocalTimestampMicros: {time.Microsecond, false},
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
func (f *fitter) integer(a *hamba.PrimitiveSchema, s *connect.Schema, v any) (int64, error) {
	n, ok := f.number(a, s, v)
	if !ok {
		return 0, unfit(a, v)
	}
	if a.Type() == hamba.Int && (n < math.MinInt32 || n > math.MaxInt32) {
		return 0, connect.Unwritable("", "a number out of the range of int")
	}
	return n, nil
}

func (f *fitter) number(a *hamba.PrimitiveSchema, s *connect.Schema, v any) (int64, bool) {
	to, timed := avroClocks[logicalOf(a)]
	if s == nil {
		s = noSchema
	}
	switch v := v.(type) {
	case json.Number:
		return wholeNumber(string(v))
	case connect.Text:
		if timed {
			return parseTime(logicalOf(a), to, string(v))
		}
	case int64:
		if from, known := connectClocks[s.Name]; timed && known {
			return convert(v, from, to)
		}
		return v, true
	case connect.Date:
		n, err := dateNumber(s, v)
		if err != nil || !timed {
			return n, err == nil
		}
		return convert(n, connectClocks[s.Name], to)
	}
	return 0, false
}

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
func parseTime(t hamba.LogicalType, c clock, text string) (int64, bool) {
	layout := time.RFC3339Nano
	switch t {
	case hamba.Date:
		layout, text = "2006-01-02", strings.TrimSuffix(text, "Z")
	case hamba.TimeMillis, hamba.TimeMicros:
		layout, text = "15:04:05.999999999", strings.TrimSuffix(text, "Z")
	case hamba.LocalTimestampMillis, hamba.LocalTimestampMicros:
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
	}
	return at.UnixMicro(), true
}

// float reads a number for a float or a double. JSON has texts for those that are not finite.
func (f *fitter) float(a hamba.Schema, v any, bits int) (float64, error) {
	switch v := v.(type) {
	case json.Number:
		if n, err := strconv.ParseFloat(string(v), bits); err == nil {
			return n, nil
		}
		return 0, connect.Unwritable("", "a number out of the range of %s", describe(a))
	case connect.Text:
		switch text := string(v); text {
		case "NaN", "Infinity", "-Infinity":
			return strconv.ParseFloat(text, bits)
		}
	case float32:
		return float64(v), nil
	case float64:
		if bits == 64 || v != v || float64(float32(v)) == v {
			return v, nil
		}
		return 0, connect.Unwritable("", "a double that a float does not hold")
	case int64:
		n := float64(v)
		if limit := int64(1) << min(bits-8, 53); v <= limit && v >= -limit {
			return n, nil
		}
		return 0, connect.Unwritable("", "an integer that %s does not hold", describe(a))
	}
	return 0, unfit(a, v)
}

// bytes are those that are written for bytes or a fixed.
func (f *fitter) bytes(a hamba.Schema, s *connect.Schema, v any) (b []byte, err error) {
	fixed, isFixed := a.(*hamba.FixedSchema)
	if t, ok := a.(hamba.LogicalTypeSchema); ok && logicalOf(a) == hamba.Decimal {
		d, err := f.decimal(a, t.Logical().(*hamba.DecimalLogicalSchema), v)
		if err != nil {
			return nil, err
		}
		b = d.TwosComplement()
		if isFixed { // the sign fills the rest
			fill := byte(0)
			if d.Unscaled.Sign() < 0 {
				fill = 0xFF
			}
			for len(b) < fixed.Size() {
				b = append([]byte{fill}, b...)
			}
		}
	} else if b, err = f.plainBytes(a, v); err != nil {
		return nil, err
	}
	if isFixed && len(b) != fixed.Size() {
		return nil, connect.Unwritable("", "%d bytes where the schema has %s of %d", len(b),
			describe(a), fixed.Size())
	}
	return b, nil
}

func (f *fitter) plainBytes(a hamba.Schema, v any) ([]byte, error) {
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
					describe(a))
			}
			return b, nil
		}
	}
	return nil, unfit(a, v)
}
