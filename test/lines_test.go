package test

import (
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// TestLines_EndBeforeColumn100 leaves out raw strings, which are SQL, tags and examples for the most
// part, lines with nolint, and tests.
func TestLines_EndBeforeColumn100(t *testing.T) {
	err := filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		raw := rawStringLines(path, text)
		for i, line := range strings.Split(string(text), "\n") {
			if utf8.RuneCountInString(line) > 99 && !raw[i+1] && !strings.Contains(line, "//nolint") {
				t.Errorf("%s:%d has %d columns", path, i+1, utf8.RuneCountInString(line))
			}
		}
		return nil
	})
	require.NoError(t, err)
}

// rawStringLines are the numbers of the lines that a raw string begins, continues or ends in.
func rawStringLines(path string, text []byte) map[int]bool {
	lines := map[int]bool{}
	files := token.NewFileSet()
	file := files.AddFile(path, -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, 0)
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			return lines
		}
		if tok == token.STRING && literal[0] == '`' {
			first := file.Line(pos)
			for i := range 1 + strings.Count(literal, "\n") {
				lines[first+i] = true
			}
		}
	}
}
