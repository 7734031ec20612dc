package config

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var tomlBlock = regexp.MustCompile("(?s)```toml\n(.*?)```")

// Each block is complete for its cluster or server.
func TestSignIn_EveryBlockIsAValidConfiguration(t *testing.T) {
	t.Setenv("PGPASSWORD", "")
	page, err := os.ReadFile("../../docs/SIGN-IN.md")
	require.NoError(t, err)
	ca, err := os.ReadFile("testdata/ca.pem")
	require.NoError(t, err)
	dir := t.TempDir()
	blocks := tomlBlock.FindAllStringSubmatch(string(page), -1)
	require.Len(t, blocks, strings.Count(string(page), "```toml"))
	require.NotEmpty(t, blocks)
	sections := map[string]int{}
	for _, block := range blocks {
		text := strings.ReplaceAll(block[1], "/etc/postrider", dir)
		for _, name := range regexp.MustCompile(dir+`/[a-z-]+\.pem`).FindAllString(text, -1) {
			require.NoError(t, os.WriteFile(name, ca, 0o600))
		}
		path := filepath.Join(dir, "postrider.toml")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		l, err := Load(Source{Path: path})
		require.NoError(t, err, text)
		section := "sink"
		if strings.Contains(text, "[postgres]") {
			section = "postgres"
		}
		sections[section]++
		require.NoError(t, l.Validate(section), text)
	}
	require.Len(t, sections, 2)
}
