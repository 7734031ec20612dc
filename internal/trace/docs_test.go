package trace

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

// TestDocs_EveryCommandOfThePageRuns types what docs/TRACE.md says.
func TestDocs_EveryCommandOfThePageRuns(t *testing.T) {
	page, err := os.ReadFile("../../docs/TRACE.md")
	require.NoError(t, err)
	const event = "5f0b0bd2-6a3e-4b49-8a0a-0a2b9f1f7c01"
	w := newWorld(t, outbox)
	w.createSlot()
	w.start()
	w.do("INSERT INTO outbox VALUES ('" + event + "', 'order', '17', 'OrderCreated', 'CANARY')")
	w.deliver()
	bin := t.TempDir()
	require.NoError(t, os.Symlink(parts.Binary(t), filepath.Join(bin, "postrider")))
	dir := filepath.Dir(w.file)
	ran := 0
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllSubmatch(page, -1) {
		for line := range strings.Lines(string(block[1])) {
			cmd := exec.Command("sh", "-c",
				strings.ReplaceAll(line, "outbox.event.order", w.topic("order")))
			cmd.Dir = dir
			cmd.Env = parts.Environment("PATH=" + bin + ":" + os.Getenv("PATH"))
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s\n%s", line, out)
			require.NotContains(t, string(out), "CANARY")
			require.Contains(t, string(out), event, line)
			ran++
		}
	}
	require.Equal(t, 6, ran)
	waiting := id(5)
	w.insert(5, "17")
	for args, code := range map[string]int{
		waiting: 75, id(6): 1, "no-uuid": 2, "": 2, event + " --topic " + w.topic("order"): 0,
		event + " --key 17": 2, event + " --max-read 0B": 2, "--key 17 --json": 75,
		event + " --topic x --aggregate-type order": 2, "--key= --topic " + w.topic("order"): 1,
	} {
		r, exited := parts.RunRelay(t, parts.RelayConfig{Dir: dir},
			append([]string{"trace"}, strings.Fields(args)...)...)
		require.Equal(t, code, exited, "%s\n%s%s", args, r.Stdout.String(), r.Log.String())
	}
}
