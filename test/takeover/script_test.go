package takeover

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

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
		for _, m := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(text,
			-1) {
			blocks = append(blocks, m[1])
		}
		if len(blocks) > 0 {
			o.commands[heading] = strings.Join(blocks, "")
		}
	}
	o.env = parts.Environment("POSTRIDER_HTTP_LISTEN=127.0.0.1:0",
		"PATH="+filepath.Dir(parts.Binary(t))+":"+os.Getenv("PATH"))
	for name, value := range variables {
		o.env = append(o.env, name+"="+value)
	}
	return o
}

// follow runs the commands of a section and returns what they print.
func (o *operator) follow(t *testing.T, heading string) string {
	t.Helper()
	require.NotEmpty(t, o.commands[heading], "section %q has no commands", heading)
	ctx, cancel := context.WithTimeout(t.Context(), parts.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", o.commands[heading])
	cmd.Dir, cmd.Env = o.dir, o.env
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s\n%s", heading, said)
	require.NotContains(t, string(said), "DATA RACE")
	return string(said)
}

// start runs the command of a section that goes on until a signal.
func (o *operator) start(t *testing.T, heading string) *parts.Relay {
	t.Helper()
	require.Len(t, strings.Split(strings.TrimSpace(o.commands[heading]), "\n"), 1)
	args := strings.Fields(o.commands[heading])
	require.Equal(t, "postrider", args[0])
	return parts.StartRelay(t, parts.RelayConfig{Dir: o.dir, Env: o.env}, args[1:]...)
}

// await waits until done returns true.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	require.Eventually(t, done, parts.Patience, 20*time.Millisecond, what)
}
