package memory

import (
	"bytes"
	"math"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
)

func TestLimitMemory_StaysBelowTheContainer(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	for name, c := range map[string]struct {
		env       []string
		container int64
		limit     int64
		says      string
	}{
		"a container's limit": {nil, 64 << 20, 48 << 20,
			`"container_bytes":67108864,"limit_bytes":50331648`},
		"none": {nil, 0, math.MaxInt64, ""},
		// the runtime itself has read it
		"GOMEMLIMIT, of the user": {[]string{"GOMEMLIMIT=30MiB"}, 64 << 20, math.MaxInt64,
			`"GOMEMLIMIT":"30MiB"`},
	} {
		t.Run(name, func(t *testing.T) {
			debug.SetMemoryLimit(math.MaxInt64)
			var said bytes.Buffer
			limitTo(getenv(c.env...), c.container, zerolog.New(&said))
			require.Equal(t, c.limit, debug.SetMemoryLimit(-1))
			require.Contains(t, said.String(), c.says)
			require.Equal(t, c.says == "", said.Len() == 0)
		})
	}
}

func TestStalled_LeavesRoomForWhatIsInFlight(t *testing.T) {
	const inFlight, wanted = 8 << 20, 64 << 20
	require.EqualValues(t, wanted, Stalled(0, inFlight, wanted), "no container")
	require.Zero(t, Stalled(64<<20, inFlight, wanted), "48 MiB, of which 32 MiB and twice 8 MiB are taken")
	require.EqualValues(t, 24<<20, Stalled(128<<20, inFlight, wanted))
	require.EqualValues(t, wanted, Stalled(1<<30, inFlight, wanted))
	require.Zero(t, Stalled(16<<20, inFlight, wanted))
}

func TestTuneCollector_LeavesGOGCToTheUser(t *testing.T) {
	t.Cleanup(func() { debug.SetGCPercent(100); debug.SetMemoryLimit(math.MaxInt64) })
	// 100: the runtime itself reads the variable, and this process had none
	for env, want := range map[string]int{"GOGC=": gcPercent, "GOGC=80": 100} {
		debug.SetGCPercent(100)
		Tune(getenv(env), zerolog.Nop())
		require.Equal(t, want, debug.SetGCPercent(100), env)
	}
}

// getenv looks up in lines like those of os.Environ.
func getenv(lines ...string) func(string) string {
	return func(name string) string {
		for _, line := range lines {
			if value, ok := strings.CutPrefix(line, name+"="); ok {
				return value
			}
		}
		return ""
	}
}
