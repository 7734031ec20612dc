// Package docs_test holds the pages to what the code says.
package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(b)
}

// pages are the Markdown files of the repository that speak to people.
func pages(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, pattern := range []string{"*.md", "decisions/*.md", "../*.md"} {
		paths, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, path := range paths {
			found[path] = read(t, path)
		}
	}
	require.Contains(t, found, "GUARANTEES.md")
	return found
}

func TestPages_NameOnlySeriesThatExist(t *testing.T) {
	golden := read(t, "../internal/metrics/testdata/series.golden")
	for path, text := range pages(t) {
		for _, name := range regexp.MustCompile(`postrider_[a-z_]+`).FindAllString(text, -1) {
			switch name { // schemas, publications, slots and constraints
			case "postrider_demo", "postrider_bench", "postrider_own", "postrider_pruned":
				continue
			}
			series := strings.TrimSuffix(name, "_bucket")
			isPrefix := strings.HasSuffix(series, "_") || regexp.MustCompile(" "+series+"_").MatchString(golden)
			require.True(t, isPrefix || strings.Contains(golden, " "+series+"{"), "%s: %s", path, name)
		}
	}
}

func TestGuarantees_NameOnlyTestsThatExist(t *testing.T) {
	exist := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	require.NoError(t, filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		for _, m := range declared.FindAllStringSubmatch(read(t, path), -1) {
			exist[m[1]] = true
		}
		return nil
	}))
	named := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(read(t, "GUARANTEES.md"), -1)
	require.NotEmpty(t, named)
	for _, m := range named {
		require.True(t, exist[m[1]], "GUARANTEES.md names %s, which does not exist", m[1])
	}
}

func TestArchitecture_NamesOnlyFilesThatExist(t *testing.T) {
	named := regexp.MustCompile(`\b(?:[a-z]+/)+[a-z]+\.go\b`).FindAllString(read(t, "ARCHITECTURE.md"), -1)
	require.NotEmpty(t, named)
	for _, path := range named {
		require.FileExists(t, filepath.Join("..", path))
	}
}

// Whoever is called at night looks up the reason that stands in the log.
func TestOperations_ExplainsEveryReason(t *testing.T) {
	page := read(t, "RUNBOOKS.md")
	classify, errorsOfRows := read(t, "../relay/classify.go"), read(t, "../router/errors.go")
	var reasons []string
	for _, source := range []struct{ text, pattern string }{
		{classify, `(?:Retryable|Fatal|Poison), "([a-z_]+)"`},
		{classify, `reason\w+ += "([a-z_]+)"`},
		{errorsOfRows, `Reason\w+ += "([a-z_]+)"`},
	} {
		found := regexp.MustCompile(source.pattern).FindAllStringSubmatch(source.text, -1)
		require.NotEmpty(t, found, source.pattern)
		for _, m := range found {
			reasons = append(reasons, m[1])
		}
	}
	for _, reason := range reasons {
		if reason == "cancelled" || reason == "broker" {
			continue // how a session ends that ended already, and so never the first reason in the log
		}
		require.Regexp(t, "(?m)^(\\|.*`"+reason+"`|#### "+reason+"$)", page, "RUNBOOKS.md does not explain the reason %s", reason)
	}
}

// The second paragraph of a page says whom it is for.
func TestPages_SayWhomTheyAreFor(t *testing.T) {
	for path, text := range pages(t) {
		if strings.Contains(path, "/") {
			continue // decisions and the front page
		}
		require.Regexp(t, `^# .+\n\nFor (those|the DBA)`, text, path)
	}
}
