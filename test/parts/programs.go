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

// Chromium returns the path of a Chromium: POSTRIDER_TEST_CHROMIUM, or the first of the usual
// names that is installed. Without one the test is skipped.
func Chromium(t testing.TB) string {
	t.Helper()
	if path := os.Getenv("POSTRIDER_TEST_CHROMIUM"); path != "" {
		return path
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome",
		"google-chrome-stable", "chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	Lacking(t, "chromium", "no chromium, chromium-browser or google-chrome in PATH, and "+
		"POSTRIDER_TEST_CHROMIUM is not set")
	return ""
}

// Promtool is the path of Prometheus' promtool, which checks alert rules and runs their tests.
func Promtool(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		Lacking(t, "promtool", err.Error()+" (Debian package prometheus)")
	}
	return path
}

var buildBinary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "postrider-binary-")
	if err != nil {
		return "", fmt.Errorf("make a directory for the binary: %w", err)
	}
	AtEnd(func() error { return os.RemoveAll(dir) })
	path := filepath.Join(dir, "postrider")
	// statements: it records those it sends
	args := []string{"build", "-tags", "statements", "-o", path}
	if RaceDetector && packageDir() == raceBinary {
		args = append(args, "-race")
	}
	if err := readSources(); err != nil {
		return "", err
	}
	args = append(args, "github.com/postrider/postrider")
	if output, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build postrider: %w\n%s", err, output)
	}
	recorded.binary = path
	return path, nil
})

// readSources makes the sources of the binary inputs of the test: go test repeats an earlier
// result while the package and the files that the test reads are unchanged, and does not count
// those that a compiler reads.
func readSources() error {
	return filepath.WalkDir(moduleDir(),
		func(path string, d fs.DirEntry, err error) error {
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

// began is where the process was started: go test runs the tests of a package in its directory.
var began, _ = os.Getwd()

// moduleDir is the directory above the tests that has go.mod.
func moduleDir() string {
	for dir := began; ; dir = filepath.Dir(dir) {
		_, err := os.Stat(filepath.Join(dir, "go.mod"))
		if err == nil || dir == filepath.Dir(dir) {
			return dir
		}
	}
}

// packageDir is the directory of the tests, below that of the module.
func packageDir() string {
	dir, _ := filepath.Rel(moduleDir(), began)
	return filepath.ToSlash(dir)
}

// raceBinary is the package whose tests run the binary with the race detector, if they have it
// themselves. It takes three times the CPU time, and the other packages do the same with the
// binary.
const raceBinary = "test/e2e"

// Binary builds postrider once for the tests of a package and returns where it is.
func Binary(t testing.TB) string {
	t.Helper()
	path, err := buildBinary()
	require.NoError(t, err)
	return path
}
