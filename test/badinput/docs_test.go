package badinput

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const docsPath = "../../docs/TROUBLESHOOTING.md"

// quoted is a message in docs/TROUBLESHOOTING.md, under the name of its entry.
var quoted = regexp.MustCompile("(?s)<!-- ([a-z-]+) -->\n```text\n(.*?)```\n")

// TestTroubleshooting_QuotesEveryMessageAsItIs holds the page for people to the page of messages.
func TestTroubleshooting_QuotesEveryMessageAsItIs(t *testing.T) {
	text, err := os.ReadFile(docsPath)
	require.NoError(t, err)
	messages := readPage(t).was
	found := map[string]bool{}
	now := quoted.ReplaceAllStringFunc(string(text), func(block string) string {
		name := quoted.FindStringSubmatch(block)[1]
		require.Contains(t, messages, name, "no such entry in %s", pagePath)
		require.False(t, found[name], "%s is quoted twice", name)
		found[name] = true
		return "<!-- " + name + " -->\n```text\n" + answerOfRun(messages[name]) + "```\n"
	})
	for name := range messages {
		require.True(t, found[name], "%s does not explain %s", docsPath, name)
	}
	if *update {
		require.NoError(t, os.WriteFile(docsPath, []byte(now), 0o600))
		return
	}
	require.Equal(t, now, string(text), "run with -update")
}

// answerOfRun is what run says in an entry, without what the probe repeats of it.
func answerOfRun(body string) string {
	_, answer, _ := strings.Cut(body, "\n$ postrider run")
	_, answer, _ = strings.Cut(answer, "\n")
	var b strings.Builder
	for line := range strings.Lines(answer + "\n") {
		if line == "\n" {
			break
		}
		if !strings.HasPrefix(line, "/readyz: ") {
			b.WriteString(line)
		}
	}
	return b.String()
}
