package debezium

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite testdata/*.golden")

const canary = "c4n4ry"

// samples are configurations in the style of those that people have.
func samples(t *testing.T) map[string]Connector {
	t.Helper()
	paths, err := filepath.Glob("testdata/*")
	require.NoError(t, err)
	connectors := map[string]Connector{}
	for _, path := range paths {
		if strings.HasSuffix(path, ".golden") {
			continue
		}
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		c, err := Parse(filepath.Base(path), data)
		require.NoError(t, err)
		connectors[path] = c
	}
	require.GreaterOrEqual(t, len(connectors), 12)
	return connectors
}

// described is a translation as a person reads it in a review.
func described(tr *Translation) string {
	var b strings.Builder
	for _, i := range tr.Items {
		name := i.Property
		if i.Default {
			name += " (default)"
		}
		if i.Attention {
			name += " !"
		}
		fmt.Fprintf(&b, "%s: %s\n", i.Outcome, name)
		for _, s := range i.Settings {
			fmt.Fprintf(&b, "    -> %s\n", s)
		}
		if i.Text != "" {
			fmt.Fprintf(&b, "    %s\n", i.Text)
		}
	}
	return fmt.Sprintf("%d mapped, %d not needed, %d refused\n\n%s\n----\n%s", tr.Count(Mapped),
		tr.Count(NotNeeded), len(tr.Refused()), b.String(), tr.TOML())
}

func TestSamples_AreTranslatedAsRecorded(t *testing.T) {
	for path, c := range samples(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			got := described(Translate(c, Options{}))
			golden := path + ".golden"
			if *update {
				require.NoError(t, os.WriteFile(golden, []byte(got), 0o600))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(want), got, "go test ./internal/debezium -update writes what has "+
				"changed; read the difference")
		})
	}
}

func TestSamples_GiveEveryPropertyOneItem(t *testing.T) {
	for path, c := range samples(t) {
		for _, o := range []Options{{}, {Brokers: []string{"a:1"}, KeyConverter: "string",
			ValueConverter: "json", Tables: []string{"public.outbox"}}} {
			seen := map[string]int{}
			for _, i := range Translate(c, o).Items {
				require.NotEmpty(t, i.Text+strings.Join(i.Settings, ""), "%s: %s", path, i.Property)
				if !i.Default {
					seen[i.Property]++
				}
			}
			for name := range c.Properties {
				require.Equal(t, 1, seen[c.nameInFile(name)], "%s: %s", path, name)
			}
			require.Len(t, seen, len(c.Properties), path)
		}
	}
}

func TestSamples_KeepTheirSecrets(t *testing.T) {
	with := 0
	for path, c := range samples(t) {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		if strings.Contains(string(data), canary) {
			with++
		}
		require.NotContains(t, described(Translate(c, Options{})), canary, path)
	}
	require.Greater(t, with, 10)
}
