package cli

import (
	"os"
	"runtime/debug"

	"github.com/rs/zerolog"
)

// gcPercent lets the heap grow to four times what is alive before it is collected. What is alive is bounded by what is in flight, a few
// megabytes; at Go's default of 100 the collector took a fifth of the CPU of a drain. With 5,000 messages in flight the
// peak was 74 MiB at 300, 61 MiB at 200, 85 MiB at 400.
const gcPercent = 300

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
