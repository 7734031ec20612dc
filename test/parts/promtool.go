package parts

import (
	"os/exec"
	"testing"
)

// Promtool is the path of Prometheus' promtool, which checks alert rules and runs their tests.
func Promtool(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		lacking(t, "promtool", err.Error()+" (Debian package prometheus)")
		t.Skip("no promtool")
	}
	return path
}
