package security

import (
	"io/fs"
	"strings"
)

// sources are the files of a tree that a build looks at.
type sources struct{ fs.FS }

// ReadDir leaves out what is no source: the history, and test data.
func (s sources) ReadDir(name string) ([]fs.DirEntry, error) {
	all, err := fs.ReadDir(s.FS, name)
	kept := all[:0]
	for _, e := range all {
		if !strings.HasPrefix(e.Name(), ".git") && e.Name() != "testdata" {
			kept = append(kept, e)
		}
	}
	return kept, err
}
