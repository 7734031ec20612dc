package parts

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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
	args := []string{"build", "-tags", "statements", "-o", path} // which has it write down the statements that it sends
	if RaceDetector && packageDir() == raceBinary {
		args = append(args, "-race")
	}
	if err := lookAtSources(); err != nil {
		return "", err
	}
	if said, err := exec.Command("go", append(args, "github.com/postrider/postrider")...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build postrider: %w\n%s", err, said)
	}
	recorded.binary = path
	return path, nil
})

// lookAtSources makes what the binary is built from an input of the test, as far as go test knows: it has results of before come again for a test
// whose package and opened files are as they were, and what a compiler reads is not among them.
func lookAtSources() error {
	gomod, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return fmt.Errorf("ask for the directory of the module: %w", err)
	}
	return filepath.WalkDir(filepath.Dir(strings.TrimSpace(string(gomod))), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && (name == ".git" || name == "testdata") {
			return filepath.SkipDir
		}
		if strings.HasSuffix(path, "_test.go") {
			return nil
		}
		_, err = os.Stat(path)
		return err
	})
}

// raceBinary is the package whose tests run the binary with the race detector, if they have it themselves. It
// takes three times the CPU time, and what the others do with the binary is what this one does.
const raceBinary = "test/e2e"

// Binary builds postrider once for the tests of a package and returns where it is.
func Binary(t testing.TB) string {
	t.Helper()
	path, err := buildBinary()
	require.NoError(t, err)
	return path
}
