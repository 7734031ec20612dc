// Package units reads and writes sizes and durations as the configuration file has them.
package units

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

var sizes = []struct {
	suffix string
	bytes  int64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// ParseSize reads a size as "16MiB", in bytes. It refuses MB: PostgreSQL means 1024 * 1024 by it,
// most others 1000 * 1000.
func ParseSize(s string) (int64, error) {
	for _, u := range sizes {
		number, ok := strings.CutSuffix(s, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
		if err == nil && n >= 0 && n <= math.MaxInt64/u.bytes {
			return n * u.bytes, nil
		}
		break
	}
	return 0, fmt.Errorf(`expected a size such as "16MiB" (B, KiB, MiB, GiB, TiB), got %q`, s)
}

// FormatSize writes bytes, none negative, as ParseSize reads them.
func FormatSize(n int64) string {
	for _, u := range sizes {
		if n != 0 && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.suffix
		}
	}
	return "0B"
}

// FormatDuration writes a duration as people do: "1m", not "1m0s".
func FormatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
