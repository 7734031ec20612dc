package parts

import (
	"os"
	"os/exec"
	"testing"
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
