package health

import (
	"fmt"
	"time"
)

// Bytes writes a number of bytes for people: "0 B", "1.5 KiB", "-3.0 GiB".
func Bytes(n int64) string {
	if n < 0 {
		if n == -n { // the one number that has no positive twin
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

// Duration writes a duration for people, in its two largest units: "0s", "12s", "3m12s", "5h2m", "4d7h". Below a second it
// says milliseconds, and what is negative, because two clocks differ, is "0s".
func Duration(d time.Duration) string {
	switch {
	case d <= 0:
		return "0s"
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	}
	hours := int(d.Hours())
	return fmt.Sprintf("%dd%dh", hours/24, hours%24)
}
