package main

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

func TestMutations_EachFitsAndEachPromiseHasOne(t *testing.T) {
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	promises := readPromises(t)
	found, err := patches(".")
	require.NoError(t, err)
	mutated := map[string]bool{}
	for _, p := range found {
		require.Contains(t, promises, p.promise, "%s: GUARANTEES.md has no such promise", p.name)
		require.Contains(t, promises[p.promise][p.test], p.dir, "%s: the promise names no test %s of %s", p.name, p.test, p.dir)
		require.NoError(t, p.apply(root, "--check"), "%s does not fit the code", p.name)
		mutated[p.promise] = true
	}
	without := slices.DeleteFunc(slices.Sorted(maps.Keys(promises)), func(promise string) bool { return mutated[promise] })
	require.Empty(t, without, "promises without a mutation")
}

var (
	row    = regexp.MustCompile("(?m)^\\| (.+) \\| (`Test[^|]+) \\|$")
	listed = regexp.MustCompile("`(Test\\w+)`|\\(([a-z][\\w/]*(?:, [a-z][\\w/]*)*)\\)")
)

// readPromises reads the table of docs/GUARANTEES.md: the tests of each promise, and the folders where each may be.
func readPromises(t *testing.T) map[string]map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/GUARANTEES.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(text), "\n## Promises and tests\n")
	require.True(t, found)
	promises := map[string]map[string][]string{}
	for _, m := range row.FindAllStringSubmatch(table, -1) {
		tests, before := map[string][]string{}, []string(nil)
		for _, part := range listed.FindAllStringSubmatch(m[2], -1) {
			if part[1] != "" {
				before = append(before, part[1])
				continue
			}
			for _, test := range before {
				tests[test] = strings.Split(part[2], ", ")
			}
			before = nil
		}
		require.Empty(t, before, "%q: no package after these tests", m[1])
		require.NotContains(t, promises, m[1], "the same promise twice")
		promises[m[1]] = tests
	}
	require.NotEmpty(t, promises)
	return promises
}

// TestTry_TellsWhatBecomesOfAMutation has a module with one promise.
func TestTry_TellsWhatBecomesOfAMutation(t *testing.T) {
	root, folder, dir := t.TempDir(), t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		"go.mod":        "module sums\n\ngo 1.21\n",
		"sum.go":        "package sums\n\n// Sum adds.\nfunc Sum(a, b int) int {\n\treturn a + b\n}\n",
		"at/at_test.go": "package at\n\nimport (\n\t\"testing\"\n\n\t\"sums\"\n)\n\nfunc TestSum(t *testing.T) {\n\tif sums.Sum(2, 3) != 5 {\n\t\tt.Fatal()\n\t}\n}\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o600))
	}
	write := func(name, test, from, to string) {
		text := "Promise: sums are right\nTest: at " + test + "\n\nWhy.\n\n--- a/sum.go\n+++ b/sum.go\n@@ -3,4 +3,4 @@\n" +
			" // Sum adds.\n func Sum(a, b int) int {\n-\treturn " + from + "\n+\treturn " + to + "\n }\n"
		require.NoError(t, os.WriteFile(filepath.Join(folder, name+".patch"), []byte(text), 0o600))
	}
	write("breaks", "TestSum", "a + b", "a - b")
	write("says the same", "TestSum", "a + b", "b + a")
	write("is no Go", "TestSum", "a + b", "a +")
	write("does not fit", "TestSum", "a * b", "a")
	write("has no test", "TestOther", "a + b", "a - b")

	require.NoError(t, copyModule(root, dir))
	found, err := patches(folder)
	require.NoError(t, err)
	became := map[string]fate{}
	for _, p := range found {
		require.Equal(t, "sums are right", p.promise)
		became[p.name], _, err = p.try(t.Context(), dir)
		require.NoError(t, err)
	}
	require.Equal(t, map[string]fate{
		"breaks": killed, "says the same": survived, "is no Go": broken, "does not fit": broken, "has no test": broken,
	}, became)
	text, err := os.ReadFile(filepath.Join(dir, "sum.go"))
	require.NoError(t, err)
	require.Contains(t, string(text), "return a + b", "a change is not taken back")
}
