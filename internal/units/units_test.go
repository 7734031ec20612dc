package units

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSize_IsReadAsItIsWritten(t *testing.T) {
	for n, text := range map[int64]string{
		0: "0B", 1: "1B", 1000: "1000B", 1 << 10: "1KiB", 1025: "1025B", 1536 << 10: "1536KiB",
		16 << 20: "16MiB", 3 << 30: "3GiB", 1 << 40: "1TiB", math.MaxInt64: "9223372036854775807B",
	} {
		require.Equal(t, text, FormatSize(n))
		parsed, err := ParseSize(text)
		require.NoError(t, err)
		require.Equal(t, n, parsed)
	}
	for _, text := range []string{"", "1", "1MB", "1.5MiB", "-1B", "8388608TiB"} {
		_, err := ParseSize(text)
		require.ErrorContains(t, err, "expected a size", text)
	}
}

func TestFormatDuration_LeavesOutZeroes(t *testing.T) {
	for d, text := range map[time.Duration]string{
		0: "0s", 1500 * time.Millisecond: "1.5s", time.Minute: "1m", 90 * time.Second: "1m30s",
		10 * time.Second: "10s", time.Hour: "1h", time.Hour + time.Second: "1h0m1s",
		100 * time.Minute: "1h40m",
	} {
		require.Equal(t, text, FormatDuration(d))
	}
}
