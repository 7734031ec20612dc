package test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	mostFolders = 13 // at the top
	mostFiles   = 25 // of a package, without tests
)

func TestTree_HasFewFoldersAtTheTop(t *testing.T) {
	entries, err := os.ReadDir("..")
	require.NoError(t, err)
	var folders []string
	for _, entry := range entries {
		if entry.IsDir() && !strings.HasPrefix(entry.Name(), ".") {
			folders = append(folders, entry.Name())
		}
	}
	require.Contains(t, folders, "relay")
	require.LessOrEqual(t, len(folders), mostFolders, folders)
}

func TestTree_HasNoPackageThatIsTooLargeToLookThrough(t *testing.T) {
	for dir, files := range sources(t) {
		require.LessOrEqual(t, len(files), mostFiles, dir)
	}
}

// The package doc is the table of contents: it names every file but the one in which it stands.
func TestTree_PackageDocsNameEveryFile(t *testing.T) {
	for dir, files := range sources(t) {
		if dir == "." { // main, and what it is with the tag statements
			continue
		}
		doc, in := "", ""
		for _, name := range files {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", dir, name), nil, parser.ParseComments|parser.PackageClauseOnly)
			require.NoError(t, err)
			if file.Doc != nil && strings.HasPrefix(file.Doc.Text(), "Package ") {
				require.Empty(t, in, "%s: a second package doc in %s", dir, name)
				doc, in = file.Doc.Text(), name
			}
		}
		require.NotEmpty(t, in, "%s has no package doc", dir)
		for _, name := range files {
			if name != in { // as a whole: owntopics.go does not name topics.go
				require.Regexp(t, `(^|[^\w/.-])`+regexp.QuoteMeta(name)+`\b`, doc,
					"%s: the package doc does not name %s", dir, name)
			}
		}
	}
}

func TestTree_CommandsAreMadeWithCobra(t *testing.T) {
	for _, name := range sources(t)["internal/cli"] {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", "internal", "cli", name), nil, parser.ImportsOnly)
		require.NoError(t, err)
		imported := false
		for _, i := range file.Imports {
			imported = imported || i.Path.Value == `"github.com/spf13/cobra"`
		}
		require.True(t, imported, "internal/cli/%s belongs elsewhere: it has no command", name)
	}
}

// sources are the Go files of the module without tests, by package. The programs in examples are modules of their own.
func sources(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	require.NoError(t, filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		switch {
		case entry.IsDir() && (name == "testdata" || path == filepath.Join("..", "examples") || strings.HasPrefix(name, ".") && name != ".."):
			return filepath.SkipDir
		case !entry.IsDir() && strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go"):
			dir, err := filepath.Rel("..", filepath.Dir(path))
			if err != nil {
				return err
			}
			found[filepath.ToSlash(dir)] = append(found[filepath.ToSlash(dir)], name)
		}
		return nil
	}))
	require.NotEmpty(t, found)
	return found
}
