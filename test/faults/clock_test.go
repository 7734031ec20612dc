package faults

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

// jumpingClock is what package time gets more, in the binary of TestFault26: the wall clock goes forth and back by FAULTS_CLOCK seconds, and stays for
// two seconds where it is. The monotonic clock goes on as it does when somebody sets the clock of a machine.
const jumpingClock = `

var wallStep = func() (seconds int64) {
	text, _ := syscall.Getenv("FAULTS_CLOCK")
	for _, digit := range []byte(text) {
		seconds = seconds*10 + int64(digit-'0')
	}
	return seconds
}()

func wallOffset(mono int64) int64 {
	return [...]int64{0, wallStep, 0, -wallStep}[mono/2e9%4]
}
`

// binaryWithAJumpingClock builds the relay with another package time.
func binaryWithAJumpingClock(t *testing.T) string {
	t.Helper()
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	require.NoError(t, err)
	original := filepath.Join(strings.TrimSpace(string(goroot)), "src", "time", "time.go")
	source, err := os.ReadFile(original)
	require.NoError(t, err)
	text := string(source)
	const read = "	sec, nsec, mono := runtimeNow()\n"
	require.Equal(t, 1, strings.Count(text, read), "package time of %s reads the clock in another way", runtime.Version())
	text = strings.Replace(text, read, read+"	sec += wallOffset(mono)\n", 1)
	text = strings.Replace(text, "import (\n", "import (\n	\"syscall\"\n", 1) + jumpingClock

	dir := t.TempDir()
	changed, overlay, binary := filepath.Join(dir, "time.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "postrider")
	require.NoError(t, os.WriteFile(changed, []byte(text), 0o600))
	replaces, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(overlay, replaces, 0o600))
	// Every package is built anew, in two thirds of the time if it is not optimized.
	said, err := exec.Command("go", "build", "-overlay", overlay, "-gcflags", "all=-N -l", "-ldflags", "-w", "-o", binary,
		"github.com/postrider/postrider").CombinedOutput()
	require.NoError(t, err, string(said))
	return binary
}

// The relay's wall clock jumps by an hour every two seconds. Its latencies are differences to the server's clock, so a jump of the server's is the
// same to it.
func TestFault26_AJumpingWallClockLosesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, server(t, parts.AnyVersion), parts.RealKafka(t))
	r.command = []string{binaryWithAJumpingClock(t)}
	r.env = []string{"FAULTS_CLOCK=3600"}
	p := r.started(t)
	l := r.load(t, rate())
	pid := r.walsender(t)
	cpu := p.metric(t, "process_cpu_seconds_total")
	lasted := fullFor(t, 12*time.Second, 10*time.Minute)
	var ahead, behind bool
	look := func() {
		p.requireRunning(t)
		resp, err := p.http.Get("http://" + p.Address() + "/livez")
		if err != nil {
			return
		}
		defer resp.Body.Close()
		there, err := http.ParseTime(resp.Header.Get("Date"))
		require.NoError(t, err)
		ahead, behind = ahead || time.Until(there) > 30*time.Minute, behind || time.Since(there) > 30*time.Minute
	}
	during(lasted, look)
	eventually(t, time.Minute, "the clock of the relay jumps both ways", func() bool {
		look()
		return ahead && behind
	})
	l.end(t)
	r.drained(t, time.Minute)
	require.Equal(t, pid, r.walsender(t), "a clock is no reason to connect again")
	used := p.metric(t, "process_cpu_seconds_total") - cpu
	require.Less(t, used, lasted.Seconds(), "timers that fire all the time")
	body, _ := p.get("/metrics")
	for line := range strings.Lines(string(body)) {
		if strings.HasPrefix(line, "postrider_") && strings.Contains(line, "_seconds") && !strings.Contains(line, "clock_skew") {
			_, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
			require.False(t, strings.HasPrefix(value, "-"), "negative time: %s", line)
		}
	}
	p.stop(t)
	requireExact(t, r.judge(t))
	matrix(t, 26, "", "the relay's clock off by +1 h, 0, -1 h in turns of 2 s for "+lasted.String())
}
