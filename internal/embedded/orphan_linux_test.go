package embedded_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/internal/embedded/child"
)

// parentOf is set in the process that TestPostgres_EndsWithItsParent starts of this very test
// binary.
const parentOf = "POSTRIDER_EMBEDDED_TEST_DIR"

func TestPostgres_EndsWithItsParent(t *testing.T) {
	if dir := os.Getenv(parentOf); dir != "" {
		pg, err := embedded.StartPostgres(t.Context(), embedded.PostgresConfig{Dir: dir})
		require.NoError(t, err)
		fmt.Println("data", pg.DataDir())
		<-t.Context().Done() // killed here
	}

	dir := openDir(t, t.TempDir())
	parent := exec.Command(os.Args[0], "-test.run=^TestPostgres_EndsWithItsParent$")
	parent.Env = append(os.Environ(), parentOf+"="+dir)
	stdout, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	t.Cleanup(func() { _ = parent.Process.Kill() })
	data := ""
	for lines := bufio.NewScanner(stdout); data == "" && lines.Scan(); {
		data, _ = strings.CutPrefix(lines.Text(), "data ")
	}
	require.NotEmpty(t, data)
	text, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	require.NoError(t, err)
	var pid int
	_, err = fmt.Sscan(string(text), &pid)
	require.NoError(t, err)
	require.False(t, child.Gone(pid))

	require.NoError(t, parent.Process.Kill())
	_ = parent.Wait()
	require.Eventually(t, func() bool { return child.Gone(pid) }, 30*time.Second,
		10*time.Millisecond)
}
