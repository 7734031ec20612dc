package security

import (
	"bytes"
	"debug/buildinfo"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBuild_IsTheSameFromAnotherDirectory builds what `make build` builds, twice, from copies of the sources in different directories.
func TestBuild_IsTheSameFromAnotherDirectory(t *testing.T) {
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	var built [2][]byte
	for i, name := range []string{"a", "another/directory"} {
		dir := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.MkdirAll(dir, 0o700))
		require.NoError(t, os.CopyFS(filepath.Join(dir, "src"), sources{os.DirFS(root)}))
		out := filepath.Join(dir, "postrider")
		cmd := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-trimpath", "-ldflags", "-s -w -X github.com/postrider/postrider/internal/build.Version=v0", "-o", out, ".")
		cmd.Dir = filepath.Join(dir, "src")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		said, err := cmd.CombinedOutput()
		require.NoError(t, err, string(said))
		built[i], err = os.ReadFile(out)
		require.NoError(t, err)
		require.NotContains(t, string(built[i]), dir, "a path of the builder's machine")
	}
	require.True(t, bytes.Equal(built[0], built[1]), "two builds of the same sources differ")

	info, err := buildinfo.Read(bytes.NewReader(built[0]))
	require.NoError(t, err)
	for _, dep := range info.Deps {
		require.NotEmpty(t, dep.Sum, "%s has no checksum", dep.Path)
	}
}
