package takeover

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded/child"
	"github.com/postrider/postrider/test/parts"
)

// patience bounds every wait for something that is expected within a few seconds.
const patience = 2 * time.Minute

// operator types what the page says, in one directory and with its variables set.
type operator struct {
	dir      string
	env      []string
	commands map[string]string // of each section of the page that has any, by its heading
}

func newOperator(t *testing.T, variables map[string]string) *operator {
	t.Helper()
	_, err := exec.LookPath("curl")
	require.NoError(t, err, "the page's commands need curl")
	page, err := os.ReadFile("../../docs/MIGRATING-FROM-DEBEZIUM.md")
	require.NoError(t, err)
	o := &operator{dir: t.TempDir(), commands: map[string]string{}}
	for _, section := range strings.Split(string(page), "\n## ")[1:] {
		heading, text, _ := strings.Cut(section, "\n")
		var blocks []string
		for _, m := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(text, -1) {
			blocks = append(blocks, m[1])
		}
		if len(blocks) > 0 {
			o.commands[heading] = strings.Join(blocks, "")
		}
	}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "POSTRIDER_") && !strings.HasPrefix(v, "PG") && !strings.HasPrefix(v, "PATH=") {
			o.env = append(o.env, v)
		}
	}
	o.env = append(o.env, "PATH="+filepath.Dir(parts.Binary(t))+":"+os.Getenv("PATH"), "GORACE=atexit_sleep_ms=0", "POSTRIDER_HTTP_LISTEN=127.0.0.1:0")
	for name, value := range variables {
		o.env = append(o.env, name+"="+value)
	}
	return o
}

// follow runs the commands of a section and returns what they print.
func (o *operator) follow(t *testing.T, heading string) string {
	t.Helper()
	require.NotEmpty(t, o.commands[heading], "section %q has no commands", heading)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", o.commands[heading])
	cmd.Dir, cmd.Env = o.dir, o.env
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s\n%s", heading, said)
	require.NotContains(t, string(said), "DATA RACE")
	return string(said)
}

// start runs the command of a section that goes on until a signal, and kills what still runs at the end of the test.
func (o *operator) start(t *testing.T, heading string) *child.Process {
	t.Helper()
	require.Len(t, strings.Split(strings.TrimSpace(o.commands[heading]), "\n"), 1)
	args := strings.Fields(o.commands[heading])
	require.Equal(t, "postrider", args[0])
	cmd := exec.Command(parts.Binary(t), args[1:]...)
	var log child.Output
	cmd.Dir, cmd.Env, cmd.Stderr, cmd.SysProcAttr = o.dir, o.env, &log, &syscall.SysProcAttr{}
	process, err := child.Start(cmd, syscall.SIGKILL)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, process.Signal(syscall.SIGKILL))
		<-process.Done
		if t.Failed() {
			t.Logf("postrider ended with %v; its log:\n%s", process.Err, log.String())
		}
		require.NotContains(t, log.String(), "DATA RACE")
	})
	return process
}

// await waits until done returns true.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	require.Eventually(t, done, patience, 20*time.Millisecond, what)
}
