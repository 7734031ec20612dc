// Package memory sets Go's collector for a relay, within the limit of the container.
package memory

import (
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/rs/zerolog"
)

// gcPercent lets the heap grow by three tenths of its live part before a collection. The live part
// is what is in flight, about ten megabytes, and almost nothing is allocated for a row
// (docs/decisions/0019): drains of 500,000 rows of 200 bytes took 49.5 MiB and 2.4 s of CPU per
// million rows at 50, 47.5 MiB and 2.4 s at 35. A soft limit of 24 MiB did no better.
const gcPercent = 30

// GoShare is the part of a container's memory that Go may fill before its collector works harder.
// The rest is for the program's pages, page tables, and the kernel's buffers of the sockets.
const GoShare = 0.75

// What a relay needs: messages in flight are in memory as read and as sent, and garbage is
// collected before the limit is reached. With 16 MiB in flight the peak was 54 MiB in a container
// of 64 MiB. Shown by TestFault31_ContainerLimitSuffices.
const (
	Base           = 32 << 20
	InFlightCopies = 2
)

// Stalled returns how many bytes stalled messages may take: wanted, or what the container has for
// them besides what is in flight. limit is that of the container, 0 if there is none.
func Stalled(limit, inFlight, wanted int64) int64 {
	if limit == 0 {
		return wanted
	}
	left := int64(float64(limit)*GoShare) - Base - InFlightCopies*inFlight
	return max(0, min(wanted, left/InFlightCopies))
}

// Tune sets how Go's collector trades memory for CPU. It leaves GOGC and GOMEMLIMIT as they are.
func Tune(getenv func(string) string, log zerolog.Logger) {
	if getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	limitTo(getenv, Limit(os.DirFS("/")), log)
}

// limitTo gives the collector a soft limit below that of the container, in bytes, so that it
// collects garbage before the kernel kills the process. Zero: no limit, and nothing changes.
func limitTo(getenv func(string) string, container int64, log zerolog.Logger) {
	if set := getenv("GOMEMLIMIT"); set != "" {
		log.Info().Str("GOMEMLIMIT", set).Msg("memory limit taken from the environment")
		return
	}
	if container == 0 {
		return
	}
	soft := int64(float64(container) * GoShare)
	debug.SetMemoryLimit(soft)
	log.Info().Int64("container_bytes", container).Int64("limit_bytes",
		soft).Msg("memory limit taken from the container")
}

// Limit is the least of the limits of this process' control group and of those above it, in bytes;
// zero: none, or none that can be read. root is the root of the file system.
func Limit(root fs.FS) int64 {
	groups, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0
	}
	var least int64
	for line := range strings.Lines(string(groups)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3) // hierarchy, controllers, path
		if len(fields) != 3 {
			continue
		}
		mount, file := "sys/fs/cgroup", "memory.max"
		switch {
		case fields[0] == "0" && fields[1] == "":
		case strings.Contains(","+fields[1]+",", ",memory,"): // version 1
			mount, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		for group := path.Clean("/" + fields[2]); ; group = path.Dir(group) {
			text, err := fs.ReadFile(root, path.Join(mount, group, file))
			n, parseErr := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
			// "max", and in version 1 a number close to the largest, are no limit.
			if err == nil && parseErr == nil && n < math.MaxInt64/2 && (least == 0 || n < least) {
				least = n
			}
			if group == "/" {
				break
			}
		}
	}
	return least
}
