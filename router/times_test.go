package router

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/router/connect"
	"github.com/stretchr/testify/require"
)

// The values are those of Debezium's records.
func TestRoute_WritesTimesAsDebeziumDoes(t *testing.T) {
	mode := func(precision string) func(*Config) {
		return func(c *Config) { c.StrictTypes, c.TimePrecision = true, precision }
	}
	for _, c := range []struct {
		oid         uint32
		value, mode string
		want        string
	}{
		{1082, "infinity", "isostring", `"+5877611-06-21Z"`},
		{1082, "0044-03-15 BC", "isostring", `"-0043-03-15Z"`},
		{1082, "10000-01-01", "isostring", `"+10000-01-01Z"`},
		{1082, "infinity", "adaptive", "2146033979"},
		{1082, "-infinity", "adaptive", "-2147472691"},
		{1114, "-infinity", "isostring", `"-292275055-05-16T23:00:00Z"`},
		{1114, "2019-03-24 20:52:00", "isostring", `"2019-03-24T20:52:00Z"`},
		{1114, "infinity", "adaptive", "9223372036854775807"},
		{1114, "-infinity", "adaptive", "-9223372036854775808"},
		{1114, "-infinity", "connect", "-9223372036832400000"},
		{1114, "0044-03-15 10:00:00 BC", "nanoseconds", "null"},
		{1184, "4713-01-01 00:00:00+00 BC", "adaptive", `"-4712-01-01T00:00:00.000000Z"`},
		{1184, "10000-01-01 00:00:00+00", "adaptive", `"+10000-01-01T00:00:00.000000Z"`},
		{1184, "-infinity", "adaptive", `"-infinity"`},
		{1266, "24:00:00+00", "adaptive", `"24:00:00Z"`},
		{1266, "23:59:59.999999-15:59", "adaptive", `"15:58:59.999999Z"`},
		{1266, "00:00:00+15:59", "adaptive", `"08:01:00Z"`},
		{1266, "12:00:00.5+01", "isostring", `"11:00:00.5Z"`},
		{1083, "24:00:00", "adaptive", "86400000000"},
	} {
		require.Equal(t, c.want, written(t, connect.Builtin(c.oid, -1), c.value, mode(c.mode)), "%s %s", c.value, c.mode)
	}
}

// PostgreSQL keeps the scale of a numeric in eleven bits, Debezium reads a negative one without its sign.
func TestRoute_TakesANegativeScaleForALargeOne(t *testing.T) {
	typ := connect.Builtin(1700, 3<<16+(-2&0x7FF)+4) // numeric(3,-2)
	require.Equal(t, `"12300.`+strings.Repeat("0", 2046)+`"`,
		written(t, typ, "12300", func(c *Config) { c.DecimalHandling = "string" }))
}
