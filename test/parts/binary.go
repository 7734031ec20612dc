package parts

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

var buildBinary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "postrider-binary-")
	if err != nil {
		return "", fmt.Errorf("make a directory for the binary: %w", err)
	}
	stopAtEnd(func() error { return os.RemoveAll(dir) })
	path := filepath.Join(dir, "postrider")
	args := []string{"build", "-o", path}
	if RaceDetector {
		args = append(args, "-race")
	}
	if said, err := exec.Command("go", append(args, "postrider")...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build postrider: %w\n%s", err, said)
	}
	return path, nil
})

// Binary builds postrider once for the tests of a package and returns where it is: with the race detector if the tests have it.
func Binary(t testing.TB) string {
	t.Helper()
	path, err := buildBinary()
	require.NoError(t, err)
	return path
}
