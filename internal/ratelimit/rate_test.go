package ratelimit

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRate_IsReadAsItIsWritten(t *testing.T) {
	for text, want := range map[string]Rate{
		"none": {}, "5000 rows/s": {Rows: 5000}, "10MiB/s": {Bytes: 10 << 20}, "1 rows/s, 1KiB/s": {1, 1 << 10},
	} {
		r, err := Parse(text)
		require.NoError(t, err, text)
		require.Equal(t, want, r)
		require.Equal(t, text, r.String())
		var again Rate
		require.NoError(t, again.UnmarshalText([]byte(r.String())))
		require.Equal(t, r, again)
	}
	for _, text := range []string{"5000rows/s", " 10 MiB/s ,5 rows/s "} {
		_, err := Parse(text)
		require.NoError(t, err, text)
	}
}

func TestRate_RefusesWhatIsNone(t *testing.T) {
	for text, problem := range map[string]string{
		"": "expected a rate", "5000": "expected a rate", "rows/s": "expected a rate", "5.5 rows/s": "expected a rate", "1 rows/m": "expected a rate",
		"10MB/s": "expected a rate", "1 rows/s,": "expected a rate", "none, 1 rows/s": "expected a rate", "99999999999999999999 rows/s": "expected a rate",
		"0 rows/s": "too low", "-1 rows/s": "too low", "0B/s": "too low", "1023B/s": "too low", "1 rows/s, 2 rows/s": "two limits",
	} {
		_, err := Parse(text)
		require.ErrorContains(t, err, problem, text)
	}
}
