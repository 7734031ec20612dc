package connect

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

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
		_, err := ParseMoment([]byte(bad))
		require.ErrorContains(t, err, "in ISO style", bad)
	}
	for _, bad := range []string{"1", "P1Y", "1 week", "x days", "1:2"} {
		_, err := parseInterval([]byte(bad))
		require.ErrorContains(t, err, "is no interval", bad)
	}
}

// PostgreSQL keeps the scale of a numeric in eleven bits, Debezium reads a negative one without its sign.
func TestCodecOf_TakesANegativeScaleForALargeOne(t *testing.T) {
	typ := Builtin(1700, 3<<16+(-2&0x7FF)+4) // numeric(3,-2)
	c, err := CodecOf(typ, &Handling{DecimalHandling: "precise"})
	require.NoError(t, err)
	require.Equal(t, []Parameter{{"scale", "2046"}, {"connect.decimal.precision", "3"}}, c.Schema.Params)
	zero, err := c.Read([]byte("0"))
	require.NoError(t, err)
	require.Equal(t, "0E-2046", string(zero.(Decimal).appendText(nil)))
}

func TestDate_IsPrintedInTheCalendarOfItsTime(t *testing.T) {
	for value, want := range map[string]string{
		"0044-03-15 10:00:00 BC": "Fri Mar 17 10:00:00 UTC 44", "1582-10-15 00:00:00": "Fri Oct 15 00:00:00 UTC 1582",
		"1582-10-14 00:00:00": "Thu Oct 04 00:00:00 UTC 1582", "0900-01-05 00:00:00": "Tue Jan 01 00:00:00 UTC 900",
		"0001-06-15 00:00:00 BC": "Thu Jun 17 00:00:00 UTC 1",
	} {
		m, err := ParseMoment([]byte(value))
		require.NoError(t, err)
		require.Equal(t, want, string(Date{m.epochMillis(), false}.appendJava(nil)), value)
	}
}
