package health

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBytesText_UsesOneUnit(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 1<<20 - 1: "1.0 MiB",
		16 << 20: "16.0 MiB",
		5 << 40:  "5.0 TiB", -3 << 30: "-3.0 GiB", math.MaxInt64: "8.0 EiB", math.MinInt64: "-8.0 EiB",
	} {
		require.Equal(t, want, Bytes(n))
	}
}

func TestDurationText_UsesTwoUnits(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 250 * time.Millisecond: "250ms", 12*time.Second +
			900*time.Millisecond: "12s",
		3*time.Minute + 12*time.Second: "3m12s", 5*time.Hour + 2*time.Minute: "5h2m",
		103 * time.Hour: "4d7h",
	} {
		require.Equal(t, want, Duration(d))
	}
}
