package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// mostFiles bounds the files to open to follow one row.
const mostFiles = 15

var (
	walkTable = regexp.MustCompile(`\n\| step \| function \| file \|\n\|[-|]+\|\n((?:\|.*\n)+)`)
	walkRow   = regexp.MustCompile("^\\| [^|]+ \\| (`[^|]+`) \\| ([a-z/_]+\\.go) \\|$")
)

// TestArchitecture_WalksARowThroughFunctionsThatExist holds the table in ARCHITECTURE.md.
func TestArchitecture_WalksARowThroughFunctionsThatExist(t *testing.T) {
	table := walkTable.FindStringSubmatch(read(t, "ARCHITECTURE.md"))
	require.NotNil(t, table, "the table is gone")
	lines := strings.Split(strings.TrimSpace(table[1]), "\n")
	require.LessOrEqual(t, len(lines), mostFiles)
	opened := map[string]bool{}
	for _, line := range lines {
		row := walkRow.FindStringSubmatch(line)
		require.NotNil(t, row, "the row does not name functions and one file: %s", line)
		require.False(t, opened[row[2]], "%s is opened twice", row[2])
		opened[row[2]] = true
		file, err := parser.ParseFile(token.NewFileSet(), "../"+row[2], nil, 0)
		require.NoError(t, err)
		known := declared(file)
		for name := range strings.SplitSeq(row[1], ", ") {
			require.True(t, known[strings.Trim(name, "`")], "%s has no %s", row[2], name)
		}
	}
}

// declared are the functions of a file, its methods as Type.method, and its types.
func declared(file *ast.File) map[string]bool {
	known := map[string]bool{}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil {
				of := d.Recv.List[0].Type
				if star, ok := of.(*ast.StarExpr); ok {
					of = star.X
				}
				name = of.(*ast.Ident).Name + "." + name
			}
			known[name] = true
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				ts, ok := spec.(*ast.TypeSpec)
				if !ok {
					continue
				}
				known[ts.Name.Name] = true
				if i, ok := ts.Type.(*ast.InterfaceType); ok {
					for _, m := range i.Methods.List {
						for _, name := range m.Names {
							known[ts.Name.Name+"."+name.Name] = true
						}
					}
				}
			}
		}
	}
	return known
}

// TestArchitecture_ReadBuffersAreRetainedInTwoFiles holds what replication/chunk.go says.
func TestArchitecture_ReadBuffersAreRetainedInTwoFiles(t *testing.T) {
	var retain []string
	for _, pattern := range []string{"../replication/*.go", "../relay/*.go", "../router/*.go", "../internal/deadletter/*.go"} {
		paths, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, path := range paths {
			if !strings.HasSuffix(path, "_test.go") && strings.Contains(read(t, path), ".Retain()") {
				retain = append(retain, path)
			}
		}
	}
	require.Equal(t, []string{"../replication/chunk.go", "../relay/publish.go"}, retain)
}
