package config

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var tomlBlock = regexp.MustCompile("(?s)```toml\n(.*?)```")

// Each block is complete for its cluster, server or registry.
func TestSignIn_EveryBlockIsAValidConfiguration(t *testing.T) {
	require.Equal(t, []string{"postgres", "sink"}, validateBlocks(t, "SIGN-IN.md"))
}

func TestSchemaRegistries_EveryBlockIsAValidConfiguration(t *testing.T) {
	require.Equal(t, []string{"registry"}, validateBlocks(t, "SCHEMA-REGISTRIES.md"))
}

// validateBlocks validates each block of TOML on a page, and returns the sections that they are
// about.
func validateBlocks(t *testing.T, name string) []string {
	t.Helper()
	t.Setenv("PGPASSWORD", "")
	page, err := os.ReadFile("../../docs/" + name)
	require.NoError(t, err)
	ca, err := os.ReadFile("testdata/ca.pem")
	require.NoError(t, err)
	dir := t.TempDir()
	blocks := tomlBlock.FindAllStringSubmatch(string(page), -1)
	require.Len(t, blocks, strings.Count(string(page), "```toml"))
	require.NotEmpty(t, blocks)
	sections := map[string]bool{}
	for _, block := range blocks {
		text := strings.ReplaceAll(block[1], "/etc/postrider", dir)
		for _, name := range regexp.MustCompile(dir+`/[a-z-]+\.pem`).FindAllString(text, -1) {
			require.NoError(t, os.WriteFile(name, ca, 0o600))
		}
		path := filepath.Join(dir, "postrider.toml")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		l, err := Load(Source{Path: path})
		require.NoError(t, err, text)
		about := []string{"sink"}
		switch {
		case strings.Contains(text, "[postgres]"):
			about = []string{"postgres"}
		case strings.Contains(text, "[registry]"):
			about = []string{"registry", "format", "router"}
		}
		sections[about[0]] = true
		require.NoError(t, l.Validate(about...), text)
	}
	return slices.Sorted(maps.Keys(sections))
}
