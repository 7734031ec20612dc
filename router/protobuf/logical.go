package protobuf

import (
	"math/big"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/postrider/postrider/router/connect"
)

// logicalType is a message that stands for one of Connect's logical types.
type logicalType struct {
	message, file string
	write         func(s *connect.Schema, v any) ([]byte, error)
}

// logical are they by the names of Connect's schemas. Debezium's own types, such as
// io.debezium.time.MicroTimestamp, are plain numbers and texts.
var logical = map[string]logicalType{
	connect.DecimalName: {"confluent.type.Decimal", "confluent/type/decimal.proto", decimal},
	"org.apache.kafka.connect.data.Date": {"google.type.Date", "google/type/date.proto",
		milliseconds(date)},
	"org.apache.kafka.connect.data.Time": {"google.type.TimeOfDay", "google/type/timeofday.proto",
		milliseconds(timeOfDay)},
	"org.apache.kafka.connect.data.Timestamp": {"google.protobuf.Timestamp",
		"google/protobuf/timestamp.proto", milliseconds(timestamp)},
}

// decimalParameters are what a reader learns of a decimal from the schema.
func decimalParameters(s *connect.Schema) (out [][2]string) {
	if s.Name != connect.DecimalName {
		return nil
	}
	for _, names := range [][2]string{{"connect.decimal.precision", "precision"},
		{"scale", "scale"}} {
		for _, p := range s.Params {
			if p.Key == names[0] {
				out = append(out, [2]string{names[1], p.Value})
			}
		}
	}
	return out
}

// decimal writes the unscaled number, how many digits it has, and the scale.
func decimal(s *connect.Schema, v any) ([]byte, error) {
	d, ok := v.(connect.Decimal)
	if !ok {
		return nil, connect.Mismatch(s)
	}
	digits := len(new(big.Int).Abs(d.Unscaled).String())
	b := protowire.AppendTag(nil, 1, protowire.BytesType)
	b = protowire.AppendBytes(b, d.TwosComplement())
	return number(number(b, 2, int64(digits)), 3, int64(d.Scale)), nil
}

// number appends a field that is an integer, unless it is zero.
func number(dst []byte, n protowire.Number, v int64) []byte {
	if v == 0 {
		return dst
	}
	dst = protowire.AppendTag(dst, n, protowire.VarintType)
	return protowire.AppendVarint(dst, uint64(v)) //nolint:gosec // two's complement
}

func milliseconds(write func(ms int64) ([]byte, error)) func(*connect.Schema, any) ([]byte,
	error) {
	return func(s *connect.Schema, v any) ([]byte, error) {
		d, ok := v.(connect.Date)
		if !ok {
			return nil, connect.Mismatch(s)
		}
		return write(d.Millis)
	}
}

// date is a day of Java's calendar.
func date(ms int64) ([]byte, error) {
	if ms%connect.MillisPerDay != 0 {
		return nil, connect.Unwritable("", "a date with a time of day")
	}
	year, month, day := connect.Date{Millis: ms}.Calendar()
	return number(number(number(nil, 1, year), 2, int64(month)), 3, day), nil
}

func timeOfDay(ms int64) ([]byte, error) {
	if ms < 0 || ms > connect.MillisPerDay {
		return nil, connect.Unwritable("", "a number that is no time of day")
	}
	s := ms / 1000 % (24 * 60 * 60)
	b := number(number(number(nil, 1, s/3600), 2, s/60%60), 3, s%60)
	return number(b, 4, ms%1000*1_000_000), nil
}

// The years 1 and 9999, which are the limits of google.protobuf.Timestamp.
var (
	firstTimestamp = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)
	endTimestamp   = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
)

func timestamp(ms int64) ([]byte, error) {
	t := time.UnixMilli(ms)
	if t.Before(firstTimestamp) || !t.Before(endTimestamp) {
		return nil, connect.Unwritable("have the application write a time of the years 1 to 9999",
			"a time that is no google.protobuf.Timestamp")
	}
	return number(number(nil, 1, t.Unix()), 2, int64(t.Nanosecond())), nil
}
