package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// patch is one mutation.
type patch struct {
	name    string // of the file, without .patch
	promise string
	dir     string // of the test's package, below the module
	test    string
	file    string // absolute
}

var head = regexp.MustCompile(`(?ms)\APromise: ([^\n]+)\nTest: ([\w/]+) (Test\w+)\n.*?^--- `)

// patches are those of a folder, by name.
func patches(folder string) ([]patch, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.patch"))
	if err != nil {
		return nil, err
	}
	var found []patch
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		m := head.FindSubmatch(text)
		if m == nil {
			return nil, fmt.Errorf("%s does not begin with its promise and its test", file)
		}
		file, err = filepath.Abs(file)
		if err != nil {
			return nil, err
		}
		found = append(found, patch{
			name:    strings.TrimSuffix(filepath.Base(file), ".patch"),
			promise: string(m[1]), dir: string(m[2]), test: string(m[3]), file: file,
		})
	}
	return found, nil
}

// apply changes the module in dir; with -R it takes the change back, with --check it only looks.
func (p patch) apply(dir string, options ...string) error {
	cmd := exec.Command("git", append(append([]string{"apply"}, options...), p.file)...)
	cmd.Dir = dir
	// The copy is no repository. In one, git apply would take paths from its root.
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("git apply: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}
