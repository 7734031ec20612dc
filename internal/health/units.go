package health

import (
	"fmt"
	"time"
)

// Bytes formats a number of bytes for people: "0 B", "1.5 KiB", "-3.0 GiB".
func Bytes(n int64) string {
	if n < 0 {
		if n == -n { // the lowest int64
			return "-8.0 EiB"
		}
		return "-" + Bytes(-n)
	}
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	value, unit := float64(n)/1024, 0
	for ; value >= 1023.95 && unit < len("KMGTPE")-1; unit++ {
		value /= 1024
	}
	return fmt.Sprintf("%.1f %ciB", value, "KMGTPE"[unit])
}

// Duration formats a duration for people in its two largest units: "12s", "3m12s", "5h2m", "4d7h";
// below a second in milliseconds. A negative one, of clocks that differ, is "0s".
func Duration(d time.Duration) string {
	seconds := d / time.Second
	switch {
	case d <= 0:
		return "0s"
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", seconds)
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", seconds/60, seconds%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%dm", seconds/3600, seconds/60%60)
	}
	return fmt.Sprintf("%dd%dh", seconds/86400, seconds/3600%24)
}
