package router

import (
	"math"
	"strings"
	"testing"

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
		require.Equal(t, c.want, written(t, builtin(c.oid, -1), c.value, mode(c.mode)), "%s %s", c.value, c.mode)
	}
}

// The values are those of Debezium's records, but for the last.
func TestInterval_CountsAndPrintsAsDebeziumDoes(t *testing.T) {
	for _, c := range []struct {
		value, printed string
		total          int64
	}{
		{"1 mon", "P0Y1M0DT0H0M0S", 2629800000000},
		{"1 year", "P1Y0M0DT0H0M0S", 31557600000000},
		{"1 mon -1 days", "P0Y1M-1DT0H0M0S", 2543400000000},
		{"-00:00:00.5", "P0Y0M0DT0H0M-0.5S", -500000},
		{"00:00:00.000001", "P0Y0M0DT0H0M0.000001S", 1},
		{"1000000:00:00", "P0Y0M0DT1000000H0M0S", 3600000000000000},
		{"100 years 11 mons 30 days 23:59:59.999999", "P100Y11M30DT23H59M59.999999S", 3187366199999999},
		{"178000000 years", "P178000000Y0M0DT0H0M0S", math.MaxInt64},
		{"infinity", "P0Y0M0DT0H0M0S", 0},
		{"-178000000 years", "P-178000000Y0M0DT0H0M0S", math.MinInt64},
	} {
		v, err := parseInterval([]byte(c.value))
		require.NoError(t, err, c.value)
		require.Equal(t, c.total, v.total(), c.value)
		require.Equal(t, c.printed, string(v.appendISO(nil)), c.value)
	}
}

func TestParse_RefusesWhatIsNotPostgreSQLsText(t *testing.T) {
	for _, bad := range []string{"", "2019", "2019-13-01", "2019-01-00", "01/02/2019", "2019-01-01 10", "2019-01-01 10:00:00+1:2:3:4", "2019-01-01 10:00:00+x"} {
		_, err := parseMoment([]byte(bad))
		require.ErrorContains(t, err, "in ISO style", bad)
	}
	for _, bad := range []string{"1", "P1Y", "1 week", "x days", "1:2"} {
		_, err := parseInterval([]byte(bad))
		require.ErrorContains(t, err, "is no interval", bad)
	}
}

// PostgreSQL keeps the scale of a numeric in eleven bits, Debezium reads a negative one without its sign.
func TestRoute_TakesANegativeScaleForALargeOne(t *testing.T) {
	typ := builtin(1700, 3<<16+(-2&0x7FF)+4) // numeric(3,-2)
	c, err := codecOf(typ, &Config{DecimalHandling: "precise"})
	require.NoError(t, err)
	require.Equal(t, []parameter{{"scale", "2046"}, {"connect.decimal.precision", "3"}}, c.schema.params)
	require.Equal(t, `"12300.`+strings.Repeat("0", 2046)+`"`, written(t, typ, "12300", func(c *Config) { c.DecimalHandling = "string" }))
	zero, err := c.read([]byte("0"))
	require.NoError(t, err)
	require.Equal(t, "0E-2046", string(zero.(decimal).appendText(nil)))
}
