package test

import (
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What .dockerignore leaves out, the Dockerfile's go build does not see.
func TestDockerignore_LeavesWhatIsBuilt(t *testing.T) {
	patterns := ignored(t)
	require.True(t, leavesOut(patterns, "docs/decisions/0001-x.md"))
	require.True(t, leavesOut(patterns, "router/route_test.go"))
	require.True(t, leavesOut(patterns, "router/testdata/rows.json"))
	require.True(t, leavesOut(patterns, "README.md"))

	list := exec.Command("go", "list", "-deps", "-f", `{{if .Module}}{{if .Module.Main}}{{$dir := slice .ImportPath (len .Module.Path)}}
		{{- range .GoFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}{{range .EmbedFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}{{end}}{{end}}`, ".")
	list.Dir = ".."
	out, err := list.Output()
	require.NoError(t, err)
	files := strings.Fields(string(out))
	require.Contains(t, files, "/main.go")
	require.Contains(t, files, "/docs/RUNBOOKS.md", "an embedded file")
	for _, file := range append(files, "/go.mod", "/go.sum") {
		require.False(t, leavesOut(patterns, file[1:]), "%s is not sent to the builder", file[1:])
	}
}

func ignored(t *testing.T) (patterns []string) {
	t.Helper()
	text, err := os.ReadFile("../.dockerignore")
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			require.NotContains(t, line, "!", "leavesOut knows no exceptions")
			patterns = append(patterns, line)
		}
	}
	return patterns
}

// leavesOut matches a file and the directories that hold it, as Docker does: only behind **/ does a
// pattern match below the root.
func leavesOut(patterns []string, file string) bool {
	for at := file; at != "."; at = path.Dir(at) {
		if slices.ContainsFunc(patterns, func(pattern string) bool {
			name := at
			if anywhere, found := strings.CutPrefix(pattern, "**/"); found {
				pattern, name = anywhere, path.Base(at)
			}
			matches, err := path.Match(pattern, name)
			return matches || err != nil
		}) {
			return true
		}
	}
	return false
}
