package test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// privateWords are words for which PostgreSQL, Kafka or Prometheus have a word of their own, and
// persons in place of the session, the process or the command that is meant.
var privateWords = regexp.MustCompile(`(?i)\b(nobody|somebody|anybody|everybody|whoever|anew|` +
	`blame|catalogues?|handed|hand-over|torn|given up|gave up|let go|moved on|standby gate|` +
	`keeper|desk|lanes?|asked|said|told|heard|knows)\b`)

// shownTexts are the files whose texts an operator reads at night.
var shownTexts = []string{
	"internal/metrics/help.txt",
	"deploy/prometheus/*.rules.yml",
	"deploy/grafana/*.json",
	"internal/httpserver/page/*.js",
	"internal/httpserver/page/*.html",
}

func TestWords_OfShownTextsAreThoseOfTheField(t *testing.T) {
	for _, pattern := range shownTexts {
		paths, err := filepath.Glob(filepath.Join("..", pattern))
		require.NoError(t, err)
		require.NotEmpty(t, paths, pattern)
		for _, path := range paths {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			number := 0
			for line := range strings.Lines(string(text)) {
				number++
				if word := privateWords.FindString(line); word != "" {
					t.Errorf("%s:%d: %q", strings.TrimPrefix(path, "../"), number, word)
				}
			}
		}
	}
}

func TestWords_FindsAPrivateWord(t *testing.T) {
	require.Equal(t, "Nobody", privateWords.FindString("Nobody reads slot orders"))
	require.Empty(t, privateWords.FindString("postrider_slot_standby_gate_blocked"))
}
