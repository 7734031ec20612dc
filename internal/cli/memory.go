package cli

import (
	"os"
	"runtime/debug"

	"github.com/rs/zerolog"
)

// gcPercent lets the heap grow by three tenths of what is alive before it is collected. What is alive is bounded by what is in flight, some ten megabytes, and
// next to nothing is made for a row (docs/decisions/0019), so that collecting often costs nothing: drains of 500,000 rows of 200 bytes took 49.5 MiB and 2.4 s of CPU per
// million rows at 50, 47.5 MiB and 2.4 s at 35, and 47.8 MiB at 30 on a busier day. 26 MiB of each are pages of the program. A soft limit of 24 MiB did no better, and where more is alive, by larger
// rows or limits, it would do nothing but collect, while a share grows with it.
const gcPercent = 30

// goShare is the part of a container's memory that Go may fill before its collector works harder. The rest is for what is counted and is
// not Go's: pages of the program itself, page tables, and the kernel's buffers of the sockets, which are full while a broker is slow.
const goShare = 0.75

// tuneCollector sets how Go's collector trades memory for CPU. GOGC and GOMEMLIMIT, where they are set, stay as they are.
func (a *app) tuneCollector(log zerolog.Logger) {
	if a.env("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	a.limitMemory(memoryLimit(os.DirFS("/")), log)
}

// limitMemory gives the collector a soft limit below that of the container, so that garbage is collected before the kernel kills the process.
// container is in bytes, zero for none: then nothing changes.
func (a *app) limitMemory(container int64, log zerolog.Logger) {
	if set := a.env("GOMEMLIMIT"); set != "" {
		log.Info().Str("GOMEMLIMIT", set).Msg("memory limit taken from the environment")
		return
	}
	if container == 0 {
		return
	}
	soft := int64(float64(container) * goShare)
	debug.SetMemoryLimit(soft)
	log.Info().Int64("container_bytes", container).Int64("limit_bytes", soft).Msg("memory limit taken from the container")
}
